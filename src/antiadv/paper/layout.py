"""What a table is made of, before anything is run: lines and columns, and the cells behind each of their meetings.

    Ask        a cell in words: a network, a defence, an attack, a threat, so many samples
    Column     a heading, the attacks behind it, and what is measured of their records
    Line       a network behind a defence, with the columns it has and the paper's number for each
    Layout     a title, the lines, and what must be said about them

Where several attacks stand behind a column, a sample counts as standing if it withstands all of them: AutoAttack is the
worst case over four cells, made of the same facts as the columns of the four. A gain is against the line's own network
without its defence, sample by sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from antiadv import attacks, data, defences, models
from antiadv.evaluation.cell import make_threat, normal_attack
from antiadv.paper.networks import Network

Measure = Literal["clean", "robust", "clean gain", "gain"]
Words = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Ask:
    """`samples` is how many, from the first on."""

    network: Network
    defence: str
    attack: str
    threat: str
    samples: int

    @property
    def words(self) -> Words:
        """What names the cell in any store, wherever its files lie: but for its digests, seed and precision."""
        return _words(self.network.data, self.network.model, self.defence, self.attack, self.threat)

    def __str__(self) -> str:
        behind = "" if self.defence == defences.BARE else f" behind {self.defence}"
        return f"{normal_attack(self.attack)} ({self.threat}) on {self.network.name}{behind}"


@lru_cache(maxsize=4096)
def _words(images: str, model: str, defence: str, said: str, threat: str) -> Words:
    attack = attacks.parse(said)
    return (
        data.canonical(images),
        models.canonical(model),
        defences.full_text(defence),
        attacks.full_text(attack),
        str(make_threat(threat, attack)),
    )


@dataclass(frozen=True)
class Column:
    """`queries` reads the records as of a smaller budget, `radius` as of another ball of the same norm.

    With `one_look` a sample has fallen once the attacker saw one wrong answer, whatever the judge's majority says.
    """

    heading: str
    attacks: tuple[tuple[str, str], ...]  # an attack and its threat
    measure: Measure = "robust"
    queries: int | None = None
    radius: float | None = None
    one_look: bool = False

    @property
    def as_gain(self) -> Column:
        """The same, as what a defence changes of it."""
        return replace(self, measure="clean gain" if self.measure.startswith("clean") else "gain")


@dataclass(frozen=True)
class Line:
    """`label` says what stands before the network, or in which setting; `paper` holds a number per heading."""

    network: Network
    label: str
    defence: str
    columns: tuple[Column, ...]
    samples: int
    paper: Mapping[str, float] = field(default_factory=dict)

    def asks(self, column: Column) -> tuple[Ask, ...]:
        return self._asks(column, self.defence)

    def against(self, column: Column) -> tuple[Ask, ...]:
        """The same attacks on the bare network, where a gain is asked for."""
        return self._asks(column, defences.BARE) if "gain" in column.measure else ()

    def _asks(self, column: Column, defence: str) -> tuple[Ask, ...]:
        return tuple(Ask(self.network, defence, attack, threat, self.samples) for attack, threat in column.attacks)


@dataclass(frozen=True)
class Layout:
    """`notes` are sentences below the table: settings where the paper is silent, and its own slips."""

    title: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    @property
    def headings(self) -> list[str]:
        """As the fullest line has them; what only others have comes after."""
        fullest = sorted(self.lines, key=lambda line: -len(line.columns))
        return list(dict.fromkeys(column.heading for line in fullest for column in line.columns))

    @property
    def asks(self) -> list[Ask]:
        """Every cell behind it, once, in the order of the lines."""
        found = (ask for line in self.lines for c in line.columns for ask in (*line.asks(c), *line.against(c)))
        return list({(ask.words, ask.samples): ask for ask in found}.values())
