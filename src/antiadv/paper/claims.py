"""The paper's claims, each with a rule that stored numbers pass or fail.

    claims(shelf, source)   →  Claim: what the paper says, the rule, and a Check for every line that speaks to it

A check is a difference on the same samples with its interval, and whether it passes. A claim holds if every check
passes, does not hold if none does, holds partly otherwise, and is not measured yet if there is no check. While some
checks cannot be made for want of stored cells, it holds or does not hold *so far*; a check on fewer samples than the
table asks for says on how many. A rule with a bar (15 points) looks at the value, one without at the interval: a gain
must be above zero beyond chance. A check is settled where the interval leaves no doubt on which side of the bar it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, pairwise, product

from antiadv import defences
from antiadv.paper import figure_3, figure_4, figure_5, table_1, table_2, table_3, table_5, table_6
from antiadv.paper.behind import setting
from antiadv.paper.fill import StoreIndex, compare, labels
from antiadv.paper.layout import Column, Layout, Line
from antiadv.paper.networks import Source
from antiadv.paper.noise import races
from antiadv.reporting.measures import Difference


@dataclass(frozen=True)
class Bar:
    """Where a difference must lie; `whole`: with all of its interval."""

    least: float
    most: float = math.inf
    whole: bool = False

    def passes(self, d: Difference) -> bool:
        return self._holds(d) if self.whole else self.least <= d.value <= self.most

    def settles(self, d: Difference) -> bool:
        return self._holds(d) or d.high < self.least or d.low > self.most

    def _holds(self, d: Difference) -> bool:
        return self.least < d.low and d.high <= self.most


ABOVE_ZERO = Bar(0.0, whole=True)
Rule = Callable[[Line], Bar]


@dataclass(frozen=True)
class Check:
    """One line's word on a claim, of so many samples asked for; `found` is None where its cells are not stored."""

    line: str
    found: Difference | None
    bar: Bar
    samples: int

    @property
    def passes(self) -> bool:
        return self.found is not None and self.bar.passes(self.found)

    @property
    def settled(self) -> bool:
        """Passed or failed with its whole interval, not by its value alone."""
        return self.found is not None and self.bar.settles(self.found)

    def __str__(self) -> str:
        if self.found is None:
            return self.line
        few = f" (n = {self.found.n})" if self.found.n < self.samples else ""
        return f"{self.line} {points(self.found)}{few}"


@dataclass(frozen=True)
class Claim:
    name: str
    paper: str
    rule: str
    checks: tuple[Check, ...]
    why: str = ""  # the best explanation that was tested, for the checks that fail

    @property
    def measured(self) -> list[Check]:
        return [check for check in self.checks if check.found is not None]

    @property
    def settled(self) -> int:
        """Of how many checks the interval, too, says what the verdict does."""
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


def points(d: Difference) -> str:
    """`+18.6 [+15.9, +21.2]`"""
    return f"{100 * d.value:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]"


def claims(shelf: StoreIndex, source: Source | None = None) -> list[Claim]:
    """All eight, in the order in which the paper makes them."""
    source = Source() if source is None else source
    nominal, asked, white = (table.layout(source) for table in (table_1, table_2, table_3))
    alphas, steps, more = (figure.layout(source) for figure in (figure_3, figure_4, figure_5))
    bounded = (white, *(table.layout(source) for table in (table_5, table_6)), alphas, steps, more)
    return [
        Claim(
            "Clean accuracy is kept",
            "The layer costs no clean accuracy (table 3: at most 0.04 points on CIFAR-10, 0.95 on CIFAR-100).",
            "Table 3: the change is at most 0.2 points either way on CIFAR-10, 1 on CIFAR-100.",
            _checks(shelf, _of(white, "clean"), lambda line: _within(0.002 if _small(line) else 0.01)),
        ),
        Claim(
            "Gains under black-box attacks",
            "The layer gains accuracy under Bandits, NES and Square, on nominal and on robust networks.",
            "Tables 1 and 2: every gain is above zero, its interval included.",
            _checks(
                shelf,
                (*_of(nominal, "Bandits", "NES", label="+ Anti-Adv"), *_of(asked, "Bandits", "NES", "Square")),
                lambda line: ABOVE_ZERO,
            ),
        ),
        Claim(
            "Gains under AutoAttack",
            "Under AutoAttack the layer gains 19 points on CIFAR-10 and 11 on CIFAR-100, on average.",
            "Table 3: the gain is at least 15 points on CIFAR-10, 8 on CIFAR-100.",
            _checks(shelf, _of(white, "AA"), lambda line: Bar(0.15 if _small(line) else 0.08)),
            "Steps that go too far cost a network its gain where f bends most: had g always f's label, it would be "
            "what *behind the gains* has in its last column but one.",
        ),
        Claim(
            "Better than small noise (SND)",
            "The layer outperforms SND across attacks, budgets and data sets.",
            "Table 1: the layer's accuracy minus that of SND is above zero, its interval included; in the attacker's "
            "counting, where one wrong answer is enough (one look), and in the judge's, by majority.",
            tuple(_against_noise(shelf, nominal)),
            "An attack on noise ends at the first wrong answer, which may have been luck: looked at ten times, most of "
            "those images are right again on CIFAR-10, about half of them on ResNet-50. So noise seems weak to who "
            "counts one look, and strong to who counts most. "
            "On ResNet-50 the layer's own step goes too far: had g always f's label, it would do no worse than noise "
            "against NES by one look (*beside small noise*).",
        ),
        Claim(
            "A gain for every α",
            "Whatever α of the set, the layer gains under AutoAttack.",
            "Figure 3: every gain under AutoAttack is above zero, its interval included.",
            _checks(shelf, _of(alphas, "AA"), lambda line: ABOVE_ZERO),
        ),
        Claim(
            "Ten points for every α",
            "Whatever α of the set, that gain is at least 10 points.",
            "Figure 3: the gain under AutoAttack is at least 10 points.",
            _checks(shelf, _of(alphas, "AA"), lambda line: Bar(0.10)),
            "The gain follows how much surer g is than f (*behind the gains*); the shortest steps raise that least.",
        ),
        Claim(
            "Larger K, larger gain",
            "The more steps, the larger the gain; K = 3 is the best of 1, 2, 3.",
            "Figures 4 and 5: accuracy under AutoAttack with K + 1 steps minus that with K is above zero, its interval "
            "included.",
            tuple(_step_by_step(shelf, (*steps.lines, *more.lines))),
            "From K = 3 on, what still falls, mostly falls to squares that cross f's own boundary, which no K moves: g "
            "grows surer, and the column of Square does not rise any more.",
        ),
        Claim(
            "The bare network bounds it from below",
            "Against an adaptive attacker, g is at least as robust as f.",
            "Tables 3, 5 and 6 and the figures: in the worst case of AutoAttack and the adaptive attack, the gain is "
            "within 1 point of zero. (Below −1 the bound fails; above +1 the attack was too weak, or the layer is "
            "worth something.)",
            _checks(shelf, _once(_of(table, "adaptive") for table in bounded), lambda line: _within(0.01)),
            "The bound takes g's label for f's. A step that goes too far leaves the class that f gives x, g errs where "
            "f is right, and an attacker has a second way in (*behind the gains*).",
        ),
    ]


def _small(line: Line) -> bool:
    """Of ten classes: the paper's two data sets have bars of their own."""
    return labels(line)[0] == "cifar10"


def _within(bar: float) -> Bar:
    return Bar(-bar, bar)


def _of(layout: Layout, *headings: str, label: str | None = None) -> Iterator[tuple[Line, Column]]:
    """The defended lines, and of each the columns whose headings begin so, as gains."""
    for line in layout.lines:
        if line.defence != defences.BARE and label in (None, line.label):
            for column in line.columns:
                if column.heading.startswith(headings) and "gain" not in column.measure:
                    yield line, column.as_gain


def _once(found: Iterable[Iterable[tuple[Line, Column]]]) -> Iterator[tuple[Line, Column]]:
    """Each network behind each defence, in the first of these tables that has it, by K and α."""
    seen = set()
    for line, column in chain.from_iterable(found):
        if (line.network.name, line.defence) not in seen:
            seen.add((line.network.name, line.defence))
            yield replace(line, label=setting(line.defence)), column


def _checks(shelf: StoreIndex, asked: Iterable[tuple[Line, Column]], rule: Rule) -> tuple[Check, ...]:
    found = []
    for line, column in asked:
        gain = compare(shelf, line.against(column), line.asks(column), column)
        found.append(Check(_name(line, column), gain, rule(line), line.samples))
    return tuple(found)


def _name(line: Line, column: Column) -> str:
    setting = f", {line.label}" if line.label and line.label != "+ Anti-Adv" else ""
    return f"{line.network.name}{setting}, {column.heading}"


def _against_noise(shelf: StoreIndex, nominal: Layout) -> Iterator[Check]:
    for (snd, layer, column), one_look in product(races(nominal), (True, False)):
        same = replace(column, one_look=one_look)
        d = compare(shelf, snd.asks(same), layer.asks(same), same)
        counted = "one look" if one_look else "majority"
        yield Check(f"{_name(layer, column)}, {counted}", d, ABOVE_ZERO, layer.samples)


def _step_by_step(shelf: StoreIndex, lines: Iterable[Line]) -> Iterator[Check]:
    """Each K against the one before, once."""
    by_steps = {line.label: line for line in lines if line.defence != defences.BARE}
    for fewer, more in pairwise(sorted(by_steps)):
        one, other = by_steps[fewer], by_steps[more]
        column = next(c for c in other.columns if c.heading == "AA")
        d = compare(shelf, one.asks(column), other.asks(column), column)
        yield Check(f"{other.network.name}, {fewer} to {more}", d, ABOVE_ZERO, other.samples)
