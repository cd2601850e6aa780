"""The paper's claims, each with a rule that stored numbers pass or fail.

    claims(index, source)   →  a Claim each: what the paper says, the rule, and a Check for every line that tests it

A check is a difference on the same samples, with its interval. A rule with a bar (15 points) uses the value. A rule
without one uses the whole interval: the gain must be above zero beyond chance. A check is *settled* if its whole
interval is on one side of the bar.

A claim holds if every check passes, does not hold if none does, and holds partly otherwise. It holds *so far* while
some checks have no stored cells. A check with fewer samples than its table needs says how many it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product

from antiadv import defences
from antiadv.paper import table_1, table_2, table_3
from antiadv.paper.ablations import FIGURE_3, FIGURE_4, FIGURE_5
from antiadv.paper.filled_table import compare, gain, labels, samples
from antiadv.paper.layer_against_noise import comparisons
from antiadv.paper.networks import Source
from antiadv.paper.steps_too_far import LAYOUTS, defended_lines, setting
from antiadv.paper.store_index import StoreIndex
from antiadv.paper.table_layout import Column, Layout, Line
from antiadv.reporting.measures import Difference


@dataclass(frozen=True)
class Bar:
    """The range in which a difference must lie: its value, or with `interval` its whole interval."""

    least: float
    most: float = math.inf
    interval: bool = False

    def passes(self, d: Difference) -> bool:
        return self._holds_interval(d) if self.interval else self.least <= d.value <= self.most

    def settles(self, d: Difference) -> bool:
        return self._holds_interval(d) or d.high < self.least or d.low > self.most

    def _holds_interval(self, d: Difference) -> bool:
        return self.least < d.low and d.high <= self.most


ABOVE_ZERO = Bar(0.0, interval=True)
Rule = Callable[[Line], Bar]


@dataclass(frozen=True)
class Check:
    """A claim tested on one line. `found` is None if its cells are not stored; the table needs `samples` samples."""

    line: str
    found: Difference | None
    bar: Bar
    samples: int
    behind: str = ""  # the samples behind the difference, see `table.samples_of`

    @property
    def passes(self) -> bool:
        return self.found is not None and self.bar.passes(self.found)

    @property
    def settled(self) -> bool:
        """Whether the whole interval passes or fails, not only the value."""
        return self.found is not None and self.bar.settles(self.found)

    def __str__(self) -> str:
        if self.found is None:
            return self.line
        fewer = f" (n = {self.found.n})" if self.found.n < self.samples else ""
        return f"{self.line} {self.found.points}{fewer}"


@dataclass(frozen=True)
class Claim:
    """`why` explains the checks that fail, with the best explanation that was tested."""

    name: str
    paper: str
    rule: str
    checks: tuple[Check, ...]
    why: str = ""

    @property
    def measured(self) -> list[Check]:
        return [check for check in self.checks if check.found is not None]

    @property
    def settled(self) -> int:
        """How many checks are settled."""
        return sum(check.settled for check in self.measured)

    @property
    def verdict(self) -> str:
        passed = [check.passes for check in self.measured]
        if not passed:
            return "not measured yet"
        if any(passed) and not all(passed):
            return "holds partly"
        so_far = "" if len(passed) == len(self.checks) else " so far"
        return f"{'holds' if all(passed) else 'does not hold'}{so_far}"


def claims(index: StoreIndex, source: Source | None = None) -> list[Claim]:
    """The eight claims, in the order of the paper."""
    source = Source() if source is None else source
    return [make(index, source) for make in CLAIMS]


# ---------------------------------------------------------------- the eight claims


def clean_accuracy(index: StoreIndex, source: Source) -> Claim:
    columns = _columns(table_3.layout(source), "clean")
    return Claim(
        "Clean accuracy is kept",
        "The layer costs no clean accuracy (table 3: at most 0.04 points on CIFAR-10, 0.95 on CIFAR-100).",
        "Table 3: clean accuracy changes by at most 0.2 points on CIFAR-10, 1 on CIFAR-100.",
        _checks(index, columns, lambda line: _within(0.002 if _is_cifar10(line) else 0.01)),
    )


def black_box_gains(index: StoreIndex, source: Source) -> Claim:
    nominal = _columns(table_1.layout(source), "Bandits", "NES", label="+ Anti-Adv")
    robust = _columns(table_2.layout(source), "Bandits", "NES", "Square")
    return Claim(
        "Gains under black-box attacks",
        "The layer gains accuracy under Bandits, NES and Square, on nominal and on robust networks.",
        "Tables 1 and 2: the whole interval of every gain is above zero.",
        _checks(index, (*nominal, *robust), lambda line: ABOVE_ZERO),
    )


def auto_attack_gains(index: StoreIndex, source: Source) -> Claim:
    columns = _columns(table_3.layout(source), "AA")
    return Claim(
        "Gains under AutoAttack",
        "Under AutoAttack the layer gains 19 points on CIFAR-10 and 11 on CIFAR-100, on average.",
        "Table 3: the gain is at least 15 points on CIFAR-10, 8 on CIFAR-100.",
        _checks(index, columns, lambda line: Bar(0.15 if _is_cifar10(line) else 0.08)),
        "Steps that go too far cost a network part of its gain. The column “AA gain, f's label” of the table on steps "
        "that go too far shows the gain without them.",
    )


def better_than_noise(index: StoreIndex, source: Source) -> Claim:
    return Claim(
        "Better than small noise (SND)",
        "The layer outperforms SND across attacks, budgets and data sets.",
        "Table 1: the whole interval of the layer's accuracy minus that of SND is above zero. It is counted in two "
        "ways: one wrong prediction breaks a sample (first error), or the judge's majority decides (majority).",
        tuple(_against_noise(index, table_1.layout(source))),
        "An attack on noise stops at the first wrong prediction, which may be chance. Of ten predictions for such an "
        "image, most are right again for most images on CIFAR-10, and for about half of them on ResNet-50. So noise "
        "looks weak if the first error counts, and strong if the majority counts. On ResNet-50 the layer's own step "
        "goes too far: if g always kept f's label, it would be no worse than noise against NES by first error.",
    )


def gain_for_every_alpha(index: StoreIndex, source: Source) -> Claim:
    return Claim(
        "A gain for every α",
        "The layer gains under AutoAttack for every α of the set.",
        "Figure 3: the whole interval of every gain under AutoAttack is above zero.",
        _checks(index, _columns(FIGURE_3.layout(source), "AA"), lambda line: ABOVE_ZERO),
    )


def ten_points_for_every_alpha(index: StoreIndex, source: Source) -> Claim:
    return Claim(
        "Ten points for every α",
        "That gain is at least 10 points for every α of the set.",
        "Figure 3: the gain under AutoAttack is at least 10 points.",
        _checks(index, _columns(FIGURE_3.layout(source), "AA"), lambda line: Bar(0.10)),
        "The gain follows how much more confident g is than f. The shortest steps raise confidence least.",
    )


def larger_k(index: StoreIndex, source: Source) -> Claim:
    lines = (*FIGURE_4.layout(source).lines, *FIGURE_5.layout(source).lines)
    return Claim(
        "Larger K, larger gain",
        "The more steps, the larger the gain; K = 3 is the best of 1, 2, 3.",
        "Figures 4 and 5: the whole interval of the accuracy under AutoAttack with K + 1 steps minus that with K is "
        "above zero.",
        tuple(_step_by_step(index, lines)),
        "From K = 3 on, Square breaks most of the samples that are still broken, with images that f itself gets "
        "wrong. No K helps against these: g becomes more confident, and the Square column does not rise.",
    )


def lower_bound(index: StoreIndex, source: Source) -> Claim:
    lines = defended_lines(layout(source) for layout in LAYOUTS)
    columns = [(replace(line, label=setting(line.defence)), line.column("adaptive")) for line in lines]
    return Claim(
        "The bare network bounds it from below",
        "Against an adaptive attacker, g is at least as robust as f.",
        "Tables 3, 5 and 6 and the figures: in the worst case of AutoAttack and the adaptive attack, the gain is "
        "within 1 point of zero. (Below −1 the bound fails; above +1 the attack is too weak, or the layer helps.)",
        _checks(index, columns, lambda line: _within(0.01)),
        "The bound assumes that g keeps f's label. A step that goes too far leaves f's class: g is wrong where f is "
        "right, and an attacker can use that.",
    )


CLAIMS = (
    clean_accuracy,
    black_box_gains,
    auto_attack_gains,
    better_than_noise,
    gain_for_every_alpha,
    ten_points_for_every_alpha,
    larger_k,
    lower_bound,
)


# ---------------------------------------------------------------- checks


def _is_cifar10(line: Line) -> bool:
    return labels(line)[0] == "cifar10"


def _within(bar: float) -> Bar:
    return Bar(-bar, bar)


def _columns(layout: Layout, *headings: str, label: str | None = None) -> Iterator[tuple[Line, Column]]:
    """Pairs of a defended line and one of its columns whose heading starts like this."""
    for line in layout.lines:
        if line.defence != defences.BARE and label in (None, line.label):
            for column in line.columns:
                if column.heading.startswith(headings) and "gain" not in column.measure:
                    yield line, column


def _checks(index: StoreIndex, columns: Iterable[tuple[Line, Column]], rule: Rule) -> tuple[Check, ...]:
    return tuple(
        Check(
            _name(line, column),
            gain(index, line, column),
            rule(line),
            line.samples,
            samples(index, line.requests(column), line.bare_requests(column.as_gain), column),
        )
        for line, column in columns
    )


def _name(line: Line, column: Column) -> str:
    setting = f", {line.label}" if line.label and line.label != "+ Anti-Adv" else ""
    return f"{line.network.name}{setting}, {column.heading}"


def _against_noise(index: StoreIndex, nominal: Layout) -> Iterator[Check]:
    """The layer minus SND, counted in both ways."""
    for (snd, layer, column), first_error in product(comparisons(nominal), (True, False)):
        counted = replace(column, first_error=first_error)
        better = compare(index, snd.requests(counted), layer.requests(counted), counted)
        name = f"{_name(layer, column)}, {'first error' if first_error else 'majority'}"
        behind = samples(index, layer.requests(counted), snd.requests(counted), counted)
        yield Check(name, better, ABOVE_ZERO, layer.samples, behind)


def _step_by_step(index: StoreIndex, lines: Iterable[Line]) -> Iterator[Check]:
    """Each K minus the K before it, once."""
    by_steps = {line.label: line for line in lines if line.defence != defences.BARE}
    for fewer, more in pairwise(sorted(by_steps)):
        before, after = by_steps[fewer], by_steps[more]
        column = after.column("AA")
        better = compare(index, before.requests(column), after.requests(column), column)
        behind = samples(index, after.requests(column), before.requests(column), column)
        yield Check(f"{after.network.name}, {fewer} to {more}", better, ABOVE_ZERO, after.samples, behind)
