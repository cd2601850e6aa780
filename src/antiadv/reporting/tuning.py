"""The result of `tune`: settings of the layer with what each is worth, as a table, a sentence, a figure and files."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from antiadv.core.errors import BadInput, MissingExtra
from antiadv.core.files import write_text
from antiadv.core.spec import show_number
from antiadv.defences.anti_adversary import AntiAdversary
from antiadv.reporting.figures import Figure, Panel, Series, alone, draw
from antiadv.reporting.measures import Difference, Share
from antiadv.reporting.render.csv import table_as_csv
from antiadv.reporting.render.html import table_as_html
from antiadv.reporting.render.markdown import table_as_markdown
from antiadv.reporting.table import Entry, Table, code, measured
from antiadv.reporting.verdict import change

BATCH = 64  # images of the larger batch whose time is measured


@dataclass(frozen=True)
class Setting:
    """One setting of the layer.

    >>> Setting(2, 0.012, 0.99).text, Setting(1, 0.05).text
    ('anti_adversary:steps=2,step_size=0.012,gate=0.99', 'anti_adversary:steps=1,step_size=0.05')
    """

    steps: int
    step_size: float
    gate: float = 1.0

    @property
    def text(self) -> str:
        gate = f",gate={show_number(self.gate)}" if self.gate < 1 else ""
        return f"anti_adversary:steps={self.steps},step_size={show_number(self.step_size)}{gate}"

    def layer(self, model: nn.Module) -> AntiAdversary:
        return AntiAdversary(model, steps=self.steps, step_size=self.step_size, gate=self.gate)


@dataclass(frozen=True)
class Latency:
    """Milliseconds for a batch of 1 and per image in a batch of 64, and the mean passes for a clean image."""

    one_ms: float
    bare_one_ms: float
    many_ms: float
    bare_many_ms: float
    forwards: float
    backwards: float

    @property
    def passes(self) -> float:
        return self.forwards + self.backwards

    @property
    def ratio_one(self) -> float:
        return self.one_ms / max(self.bare_one_ms, 1e-9)

    @property
    def ratio_many(self) -> float:
        return self.many_ms / max(self.bare_many_ms, 1e-9)


@dataclass(frozen=True)
class Candidate:
    """A setting and its numbers: labels kept, gain under a score attack, gain if the attacker knows the layer."""

    setting: Setting
    kept: Share
    gain: Difference
    adaptive: Difference
    latency: Latency

    def json(self) -> dict[str, Any]:
        return {"spec": self.setting.text, **dataclasses.asdict(self)}


@dataclass(frozen=True)
class Tried:
    """A setting and its numbers on the half that is used to choose. What was not measured is None."""

    setting: Setting
    kept: Share
    gain: Difference | None
    adaptive: Difference | None
    latency: Latency | None

    def json(self) -> dict[str, Any]:
        return {"spec": self.setting.text, **dataclasses.asdict(self)}


@dataclass(frozen=True)
class Tuning:
    """What `tune` found. `candidates` have the numbers of the check half; `compared` and `curves` those of the other.

    `recommended` is None if no setting fulfils what was asked; `reason` then says which demand failed.
    """

    candidates: list[Candidate]
    recommended: Candidate | None
    reason: str
    keep: float
    latency_ms: float | None
    attack: str
    images: tuple[int, int]  # chosen on, checked on
    attacked: int
    compared: list[Tried]
    curves: dict[int, list[tuple[float, float]]]  # K → α and the share of labels kept, without a gate

    @property
    def tried(self) -> int:
        """How many settings were compared."""
        return len(self.compared)

    @property
    def spec(self) -> str | None:
        """The recommended spec text, for `--defence`."""
        return None if self.recommended is None else self.recommended.setting.text

    @property
    def sentence(self) -> str:
        if self.recommended is None:
            return f"No setting is recommended: {self.reason}."
        c = self.recommended
        return (
            f"Use {c.setting.text}. On the {c.kept.n} images of the check half it keeps {c.kept} % of the labels and "
            f"takes {c.latency.one_ms:.3g} ms for one image, {c.latency.ratio_one:.1f} times the bare network. Of "
            f"{c.gain.n} images that the bare network classifies correctly, it {change(c.gain)} against "
            f"{self.attack}, and {change(c.adaptive)} against an attacker who knows the layer."
        )

    @property
    def sentences(self) -> list[str]:
        first, second = self.images
        which = f"of {second} other images" if self.candidates else "of these, because none came to the check"
        how = (
            f"{self.tried} settings were compared on {first} images; the numbers are {which}. "
            "The gain is against attackers who do not know the layer."
        )
        return [how, self.sentence]

    @property
    def table(self) -> Table:
        head = ("setting", "labels kept %", "gain", "adaptive gain", "ms, batch 1", "× bare", f"ms, batch {BATCH}")
        lines = tuple(self._line(c) for c in self.candidates or self.compared)
        return Table("tune", "Settings of the layer", (*head, "× bare ", "passes", ""), lines)

    def _line(self, c: Candidate | Tried) -> tuple[Entry, ...]:
        t, none = c.latency, Entry("")
        numbers = () if t is None else (t.one_ms, t.ratio_one, t.many_ms, t.ratio_many, t.passes)
        return (
            code(c.setting.text),
            measured(c.kept),
            none if c.gain is None else measured(c.gain),
            none if c.adaptive is None else measured(c.adaptive),
            *([Entry(f"{v:.3g}", round(v, 4)) for v in numbers] or [none] * 5),
            Entry("recommended" if c is self.recommended else ""),
        )

    def __repr__(self) -> str:
        return f"Tuning({self.sentence})"

    def __str__(self) -> str:
        return table_as_markdown(self.table) + "".join(f"\n{sentence}\n" for sentence in self.sentences)

    def _repr_html_(self) -> str:
        return table_as_html(self.table, self.sentences)

    def json(self) -> dict[str, Any]:
        names = ("keep", "latency_ms", "attack", "images", "attacked", "tried", "reason")
        plain: dict[str, Any] = {"recommended": self.spec} | {name: getattr(self, name) for name in names}
        curves = {str(steps): points for steps, points in self.curves.items()}
        rows = {name: [c.json() for c in getattr(self, name)] for name in ("candidates", "compared")}
        return plain | rows | {"curves": curves, "verdict": self.sentence}

    @property
    def figure(self) -> Figure:
        """Labels kept against α, and gains against the time for one image."""
        kept = tuple(_curve(f"K = {steps}", sorted(found)) for steps, found in self.curves.items() if found)
        level = Series("asked for", (), (100 * self.keep,), kind="level")
        first = Panel("Labels kept", "step size α", "% of labels", (*kept, level), log=True)
        ms = tuple(c.latency.one_ms for c in self.candidates)
        both = {"score attack": [c.gain for c in self.candidates]}
        both["knows the layer"] = [c.adaptive for c in self.candidates]
        gains = tuple(_marks(label, ms, found) for label, found in both.items() if found)
        second = Panel("Gain and cost", "ms for one image", "gain, points", gains, zero=0.0)
        return Figure("tune", "Settings of the layer", "", (first, second) if gains else (first,))

    def write(self, folder: str | Path) -> list[Path]:
        """Write tune.json, tune.csv and, with matplotlib, a drawing of each panel. Return their paths."""
        texts = {"tune.json": json.dumps(self.json(), indent=1) + "\n", "tune.csv": table_as_csv(self.table)}
        with contextlib.suppress(MissingExtra):  # the numbers are in the other two
            texts |= {f"{name}.svg": alone(element) for name, element in draw([self.figure]).items()}
        try:
            for name, text in texts.items():
                write_text(Path(folder) / name, text)
        except OSError as error:
            raise BadInput(
                f"{folder} cannot be written ({error.strerror or error}); name another with --out."
            ) from None
        return [Path(folder) / name for name in texts]


def _curve(label: str, found: list[tuple[float, float]]) -> Series:
    return Series(label, tuple(a for a, _ in found), tuple(100 * share for _, share in found), kind="dots")


def _marks(label: str, x: tuple[float, ...], found: list[Difference]) -> Series:
    order = sorted(range(len(x)), key=x.__getitem__)
    values = [[100 * v for v in (found[i].value, found[i].low, found[i].high)] for i in order]
    y, low, high = (tuple(column) for column in zip(*values, strict=True))
    return Series(label, tuple(x[i] for i in order), y, low, high, kind="dots")
