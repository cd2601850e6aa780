"""A trial: a short battery against a classifier, bare and behind a defence, within a budget of time.

    verdict(model, x, y, defence="anti_adversary", minutes=5)  →  Verdict       for a model and images in hand
    battery(ball, defence, queries)                            →  the attacks, from who sees scores to who knows it all
    rounds(todo, seconds, run)                                 →  how many samples were done in time

Samples are taken in rounds, each through the whole battery, so that every row has the same samples. The first round is
small and always runs; a later one is cut to what those before say will fit, and not begun where that is less than the
first: so a trial may end early, and ends late only where the machine slows down, or is too slow for the first round.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv import attacks, defences
from antiadv.core import spec
from antiadv.core.ball import Ball, Linf
from antiadv.core.defence import TRANSFERS, Defence, Randomised
from antiadv.core.engine import Eager
from antiadv.core.errors import BadInput
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import check_base, check_images, check_labels, check_scores, fitting, untouched
from antiadv.engine.meter import Meter
from antiadv.evaluation import attack as attack_and_judge
from antiadv.evaluation.cell import Cell, Record
from antiadv.reporting import Report, as_markdown, report_of
from antiadv.reporting.flags import Flag, before
from antiadv.reporting.measures import Calibration, calibrated
from antiadv.reporting.render.html import table_as_html
from antiadv.reporting.rows import IN_HAND, Row, make_row, row_table

QUERIES = 200  # of the score-based attack, per sample
FIRST = 8  # samples of the first round
LOOKED_AT = 256  # images that are looked at before the first attack
FITTED = 20  # samples without which no temperature is fitted
SLACK = 1.15  # a round is taken to last so much longer than those before say
AVERAGED = "eot:attack=(apgd:steps=20),samples=10"


def battery(ball: Ball, defence: Defence, queries: int | None = None) -> list[tuple[str, Threat]]:
    """Scores, gradients, and going round the defence: by its base, and as it says itself that it is undone.

    Where it rolls dice, these are averaged out. The targeted transfer, which it may name, is left out: it takes nine
    times as long as the other.
    """
    named = [t for t in defence.adaptive if t not in TRANSFERS and ball.p in attacks.parse(t).norms]
    if defence.randomised:
        named = [AVERAGED, *(f"eot:attack=({t}),samples=10" for t in named if t not in Randomised.adaptive)]
    texts = dict.fromkeys(("square", "apgd", TRANSFERS[0], *named))
    asked = {"square": queries or QUERIES}
    return [(t, Threat(ball, attacks.parse(t).access, asked.get(t))) for t in texts]


def check_minutes(minutes: float) -> None:
    if not minutes > 0:
        raise BadInput(f"a trial needs some time; found {minutes:g} minutes. Give for example 5.")


def rounds(
    todo: Sequence[int],
    seconds: float,
    run: Callable[[Sequence[int]], None],
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Run these samples in rounds while there is time; how many were done, from the first on."""
    check_minutes(seconds / 60)
    end, done, size = clock() + seconds, 0, FIRST
    first: tuple[int, float] | None = None
    while done < len(todo):
        size = min(size, len(todo) - done)
        start = clock()
        run(todo[done : done + size])
        done += size
        last = size, clock() - start
        first = last if first is None else first
        size = min(2 * size, fits(first, last, end - clock()))
        if size < min(FIRST, len(todo) - done):
            break
    return done


def fits(first: tuple[int, float], last: tuple[int, float], seconds: float) -> int:
    """How many samples a round may take that must end in time, by how many the others took in how many seconds.

    A round takes T(n) = a + b·n, since small batches are slow for what they hold. So T(m) ≤ T(n)·m/n beyond the last;
    between it and the first T lies on the line through both; and below the first, nothing is known but T ≤ the first's.

    >>> [fits((8, 20.0), (16, 30.0), SLACK * left) for left in (90, 25, 19)]
    [48, 12, 0]
    """
    (few, short), (many, long), left = first, last, seconds / SLACK
    if left >= long:
        return int(min(many * left / max(long, 1e-9), sys.maxsize))  # the time may be without end
    return few + int((left - short) * (many - few) / (long - short)) if left >= short else 0


@dataclass(frozen=True)
class Cost:
    """What one answer costs: images through the base network for each image asked, and milliseconds for each."""

    forwards: float
    backwards: float
    bare_ms: float
    defended_ms: float

    def __str__(self) -> str:
        times = f" ({self.defended_ms / self.bare_ms:.1f} times)" if self.bare_ms > 0 else ""
        return (
            f"An answer of the defence costs {self.forwards:g} forward and {self.backwards:g} backward passes, "
            f"{self.defended_ms:.2g} ms an image against {self.bare_ms:.2g} bare{times}."
        )


def cost(model: nn.Module, defended: nn.Module, x: Tensor, repeats: int = 5) -> Cost:
    """Passes counted by hooks on the base; the shortest of a few answers to x, taken in turns, after one to warm up."""
    with Meter(model) as meter, torch.no_grad():
        defended(x)
    times = [(_seconds(model, x), _seconds(defended, x)) for _ in range(1 + repeats)][1:]
    bare, behind = (1000 * min(of) / len(x) for of in zip(*times, strict=True))
    return Cost(meter.forwards / len(x), meter.backwards / len(x), bare, behind)


def _seconds(model: nn.Module, x: Tensor) -> float:
    start = time.perf_counter()
    with torch.no_grad():
        model(x).argmax(1).tolist()  # on a GPU, only asking for the numbers waits for them
    return time.perf_counter() - start


def scaled(model: nn.Module, x: Tensor, y: Tensor, batch: int = 256) -> Calibration | None:
    """What the bare scores are worth when divided by a temperature: what any defence of confidence must beat.

    The temperature for the samples at even places is fitted on those at odd places, and the other way round. None for
    fewer than 20 samples, to which anything can be fitted.
    """
    if len(x) < FITTED:
        return None
    with torch.no_grad():
        s = torch.cat([model(part).double() for part in x.split(batch)])
    y = y.to(s.device).long()
    said: list[tuple[float, float, bool]] = []
    for half in (0, 1):
        mine, others = slice(half, None, 2), slice(1 - half, None, 2)
        p = (s[mine] / temperature(s[others], y[others])).softmax(1)
        truth = p.gather(1, y[mine, None]).squeeze(1)
        said += zip(p.amax(1).tolist(), truth.tolist(), (p.argmax(1) == y[mine]).tolist(), strict=True)
    return calibrated(said)


def temperature(s: Tensor, y: Tensor) -> float:
    """The T of least Σ −log softmax(s / T)_y + ½(log T)² (Guo et al., ICML 2017, arXiv:1706.04599, without the prior).

    Among a few samples there may be no wrong answer, and the likelihood alone would ask for T = 0. Before any sample
    log T is therefore taken to be a standard normal; a few hundred outweigh that.
    """
    from scipy.optimize import minimize_scalar

    def loss(log_t: float) -> float:
        return F.cross_entropy(s / math.exp(log_t), y, reduction="sum").item() + log_t**2 / 2

    widest = math.log(100)
    return math.exp(float(minimize_scalar(loss, bounds=(-widest, widest), method="bounded").x))


@dataclass(frozen=True)
class Verdict:
    """What a trial found. In a notebook it shows itself as a table; `print` gives the same in Markdown."""

    report: Report
    cost: Cost
    scaled: Calibration | None
    samples: int
    seconds: float

    @property
    def rows(self) -> list[Row]:
        return self.report.rows

    @property
    def flags(self) -> list[Flag]:
        return self.report.flags

    @property
    def sentence(self) -> str:
        return " ".join(self.report.verdict)

    @property
    def sentences(self) -> list[str]:
        """What stands below the table: cost, warning signs and confidence; the verdict last."""
        *others, last = self.report.sentences
        cheap = [] if self.scaled is None else [f"The bare one, scaled by a fitted temperature, has {self.scaled}."]
        return [str(self.cost), *others, *cheap, last]

    def __str__(self) -> str:
        return as_markdown(self.rows, self.sentences)

    def _repr_html_(self) -> str:
        return table_as_html(row_table(self.rows), self.sentences)

    def json(self) -> dict[str, Any]:
        said = {"samples": self.samples, "seconds": round(self.seconds, 1), "cost": vars(self.cost)}
        return {**said, "scaled": None if self.scaled is None else vars(self.scaled), **self.report.json()}


def doubts(model: nn.Module, x: Tensor, y: Tensor, batch: int = 256) -> list[Flag]:
    """Warning signs that the first images show before anything is attacked; what no attack would take is refused."""
    x, y = x[:LOOKED_AT], y[:LOOKED_AT]
    with fitting(model, x), untouched(x):
        s = Eager(batch).scores(model, x)
    check_scores(s, x, y.to(s.device))
    return before(x, y, s)


def flagged(made: Report, first: Sequence[Flag]) -> Report:
    """The report with the signs that were seen before the attacks, each once."""
    seen = {flag.name for flag in first}
    return dataclasses.replace(made, flags=[*first, *(flag for flag in made.flags if flag.name not in seen)])


def verdict(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    defence: str | Defence = "anti_adversary",
    *,
    minutes: float = 5,
    ball: Ball | None = None,
    queries: int | None = None,
    seed: int = 0,
    batch: int = 256,
) -> Verdict:
    """What a defence is worth on this classifier and these images: gains, warning signs, cost, in one value.

    `defence` is a text or a defence that wraps `model`; `ball` is where the attacker may go (by default Linf(8/255));
    `queries` the budget of the score-based attack. Images are taken in order, as many as fit into `minutes`.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval()
    >>> x = torch.full((4, 3, 2, 2), 0.5)
    >>> made = verdict(net, x, net(x).argmax(1), "anti_adversary", queries=10)
    >>> made.samples, [row.cell.attack for row in made.rows[::2]]
    (4, ['square', 'apgd', 'transfer:attack=apgd', 'bpda:attack=apgd', 'pseudo_label'])
    """
    check_base(model)
    check_images(x)
    check_labels(y, x)
    if not isinstance(minutes, (int, float)):
        raise BadInput(f"a trial takes a number of minutes; found {minutes!r}. Give for example 5.")
    check_minutes(minutes)
    if len(x) == 0:
        raise BadInput("a verdict needs images and a label for each; found none. Pass at least one.")
    if defence == defences.BARE:
        raise BadInput("a verdict compares a defence with the bare classifier; name one, for example anti_adversary.")
    defended = defences.wrap(defence, model) if isinstance(defence, str) else defence
    if not isinstance(defended, Defence) or defended.base is not model:
        raise BadInput("the defence does not wrap this model; make it of the same one, or give its text.")
    sides = {defences.BARE: model, _text(defended): defended}
    limits = Threat(Linf(8 / 255) if ball is None else ball, Access.SCORES, queries)
    tried = battery(limits.ball, defended, queries)
    found: dict[tuple[str, str], list[Record]] = {(d, a): [] for a, _ in tried for d in sides}
    start = time.monotonic()
    first = doubts(model, x, y, batch)
    for flag in first:
        warnings.warn(f"Flag {flag}", stacklevel=2)  # now, and not after minutes of attacks

    def run(ids: Sequence[int]) -> None:
        rows = torch.tensor(ids, device=x.device)
        for text, threat in tried:
            for name, side in sides.items():
                images, labels = x[rows], y[rows.to(y.device)]
                outcome = attack_and_judge(
                    side,
                    images,
                    labels,
                    text,
                    threat.ball,
                    queries=threat.queries,
                    seed=seed,
                    ids=torch.tensor(ids),
                    batch=batch,
                )
                found[name, text] += outcome.records

    done = rounds(range(len(x)), 60 * minutes, run)
    name = type(model).__name__

    def row(text: str, threat: Threat, side: str) -> Row:
        cell = Cell(IN_HAND, "", name, "", side, text, threat, range(done), seed)
        return make_row(cell, found[side, text], [] if side == defences.BARE else found[defences.BARE, text])

    made = flagged(report_of([row(text, threat, side) for text, threat in tried for side in sides]), first)
    spent = cost(model, defended, x[:64])
    return Verdict(made, spent, scaled(model, x[:done], y[:done], batch), done, time.monotonic() - start)


def _text(defence: Defence) -> str:
    """Its spec where it is registered, else the name of its class."""
    return spec.text(defence) if type(defence) in defences.DEFENCES.values() else type(defence).__name__
