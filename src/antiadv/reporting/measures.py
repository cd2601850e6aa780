"""Numbers are functions of records: nothing here loads a model or runs an attack.

    standing(r, ball)        right on the clean image, and not wrong inside the ball
    standing_by(r, ball, q)  the same as of a budget of q queries: what fell later had not fallen yet
    unseen_by(records, q)    right, and never seen to fall by then: as an attacker counts who believes one wrong answer
    robust_accuracy          standing / all, with a 95 % Wilson interval
    clean_accuracy           right on the clean image / all, likewise
    guessing(records)        whether as many are right on the clean image as a guess would have
    paired(a, b)             b's accuracy minus a's on the samples both have, with Newcombe's 95 % interval and exact
                             McNemar's p: the two are made differently, and near 5 % they may disagree
    worst_case(a, b, …)      standing in every one of several cells: the individual mode of a set of attacks
    median_queries           of the samples that were right and were fooled
    queries_to_fall          Kaplan and Meier's median: a sample that stood is censored at what was spent on it
    query_ratio(a, b)        b's such median over a's on the samples right in both, or a bound on it; soonest_ratio, of
                             several attacks at once
    calibration              expected calibration error (15 equal bins), log-loss, mean confidence, on clean images

No records is not zero: every measure of nothing is a `BadInput`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_UP, Context
from statistics import fmean, median
from typing import Literal

from antiadv.core.ball import Ball
from antiadv.core.errors import BadInput
from antiadv.core.interval import wilson
from antiadv.evaluation.cell import Record

CHANCE = 0.05  # the p above which right answers are put down to chance
FEW = 20  # records without which nothing is said of chance


@dataclass(frozen=True)
class Share:
    """A share of n samples with its 95 % Wilson interval."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


@dataclass(frozen=True)
class Difference:
    """Accuracy of the second minus the first on the n samples both have; p by McNemar's exact test.

    `low` and `high` are Newcombe's 95 % interval for paired proportions. `gained` samples stand only in the second,
    `lost` only in the first.
    """

    value: float
    low: float
    high: float
    gained: int
    lost: int
    p: float
    n: int

    def __str__(self) -> str:
        return f"{100 * self.value:+.1f} (p {self.p:.2g})"


def right(record: Record) -> bool:
    """Right on the clean image, in the majority of the judge's looks."""
    return 2 * record.clean_right > record.draws


def standing(record: Record, ball: Ball) -> bool:
    """Right on the clean image, and not made wrong by an image inside the ball."""
    inside = record.distance <= ball.reach
    return right(record) and (2 * record.attacked_right > record.draws or not inside)


def search_judge_mismatch(record: Record, ball: Ball) -> bool:
    """Right, and still right by the judge at an image beyond the ball, where only one that fooled the search can lie:
    with fewer digits than the judge it ended too close, and how far one lies that fools is not known. (Of a defence
    that rolls dice one answer may have been luck.)"""
    return right(record) and record.draws == 1 == record.attacked_right and record.distance > ball.reach


def standing_by(record: Record, ball: Ball, queries: int) -> bool:
    """Standing as of a smaller budget than the run's, for attacks that stop at success and whose way does not depend
    on their budget (NES, Bandits, Square)."""
    return standing(record, ball) or (right(record) and record.queries > queries)


def unseen_by(records: Sequence[Record], budget: int, queries: int | None = None) -> dict[int, bool]:
    """By sample: right, and no answer was wrong within so many queries, of an attack that stops at the first.

    On a defence that rolls dice that one answer may have been luck, and the majority of the judge's looks another. Who
    saw none has spent what the budget pays for, which is the same for all: the most that is recorded, if it is near it.
    """
    most = max((r.queries for r in records), default=0)
    end = most if most > 0.9 * budget else budget
    limit = end if queries is None else min(end, queries + 1)
    return {r.sample: right(r) and r.queries >= limit for r in records}


def robust_accuracy(records: Sequence[Record], ball: Ball) -> Share:
    return share(sum(standing(r, ball) for r in records), len(records))


def clean_accuracy(records: Sequence[Record]) -> Share:
    return share(sum(map(right, records)), len(records))


def guesses(good: int, n: int, classes: int) -> bool:
    """Whether so many right answers of n are no more than chance explains: one-sided exact test against 1 / classes.

    >>> guesses(10, 64, 10), guesses(30, 64, 10)
    (True, False)
    """
    from scipy.stats import binomtest

    return float(binomtest(good, n, 1 / max(2, classes), alternative="greater").pvalue) > CHANCE


def guessing(records: Sequence[Record]) -> bool:
    """The same of clean images; of fewer than 20 records nothing is said. There are as many classes as any label or
    answer names."""
    if len(records) < FEW:
        return False
    last = max(max(r.label, r.clean, r.attacked, r.base_clean, r.base_attacked) for r in records)
    return guesses(sum(map(right, records)), len(records), last + 1)


def worst_case(cells: Sequence[Sequence[Record]], ball: Ball) -> Share:
    """The share of samples that stand in every one of these cells, on the samples all of them have."""
    if not cells:
        raise BadInput("there are no cells to take the worst of; name at least one.")
    stand = [{r.sample: standing(r, ball) for r in records} for records in cells]
    common = set.intersection(*(set(s) for s in stand))
    return share(sum(all(s[i] for s in stand) for i in common), len(common))


def share(count: int, n: int) -> Share:
    if n == 0:
        raise BadInput("there are no records to measure; evaluate the cell first.")
    return Share(count / n, *wilson(count, n), n)


def paired(first: Sequence[Record], second: Sequence[Record], ball: Ball) -> Difference:
    """How much better the second stands than the first, on the same samples."""
    return paired_by(first, second, lambda r: standing(r, ball))


def paired_by(first: Sequence[Record], second: Sequence[Record], good: Callable[[Record], bool]) -> Difference:
    return difference(*({r.sample: good(r) for r in records} for records in (first, second)))


def difference(before: Mapping[int, bool], after: Mapping[int, bool]) -> Difference:
    """Which samples are good, before and after: compared on those that both name."""
    from scipy.stats import binomtest

    both = before.keys() & after.keys()
    if not both:
        raise BadInput("the two cells have no sample in common, so they cannot be compared; evaluate the same samples.")
    gained = sum(after[i] and not before[i] for i in both)
    lost = sum(before[i] and not after[i] for i in both)
    kept = sum(before[i] and after[i] for i in both)
    p = float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
    low, high = newcombe(kept, gained, lost, len(both) - kept - gained - lost)
    return Difference((gained - lost) / len(both), low, high, gained, lost, p, len(both))


def newcombe(both: int, second: int, first: int, neither: int) -> tuple[float, float]:
    """95 % interval of a paired difference, second minus first (Newcombe, Stat. Med. 17:2635, 1998, method 10).

    The Wilson intervals [l₁, u₁] of the first and [l₂, u₂] of the second share are joined by Pythagoras, less what
    their correlation φ explains; φ is pulled towards zero by half a sample in each term where it is positive.
    """
    n = both + second + first + neither
    one, two = share(both + first, n), share(both + second, n)
    product = both * neither - first * second
    scale = (both + first) * (second + neither) * (both + second) * (first + neither)
    phi = (max(product - n / 2, 0) if product > 0 else product) / math.sqrt(scale) if scale else 0.0
    below = _joined(two.value - two.low, one.high - one.value, phi)
    above = _joined(two.high - two.value, one.value - one.low, phi)
    middle = (second - first) / n
    return max(-1.0, middle - below), min(1.0, middle + above)


def _joined(a: float, b: float, phi: float) -> float:
    return math.sqrt(max(0.0, a * a - 2 * phi * a * b + b * b))


def median_queries(records: Sequence[Record], ball: Ball) -> float | None:
    """Of the samples that were right and fell; None when none fell."""
    spent = [r.queries for r in records if right(r) and not standing(r, ball)]
    return float(median(spent)) if spent else None


@dataclass(frozen=True)
class Median:
    """A median of censored counts: `value`, or None where it lies beyond `beyond`, the largest count seen."""

    value: float | None
    beyond: float

    def __str__(self) -> str:
        return f"> {self.beyond:g}" if self.value is None else f"{self.value:g}"


@dataclass(frozen=True)
class Ratio:
    """How many times as much: exactly `value`, or `more` or `less` than it where one side is only bounded."""

    value: float
    bound: Literal["exactly", "more", "less"] = "exactly"

    def __str__(self) -> str:
        return {"exactly": "", "more": "> ", "less": "< "}[self.bound] + self.digits

    @property
    def digits(self) -> str:
        """Two significant ones, and of a bound none that would say more than it does."""
        rounding = {"exactly": ROUND_HALF_EVEN, "more": ROUND_DOWN, "less": ROUND_UP}[self.bound]
        return f"{Context(prec=2, rounding=rounding).create_decimal(repr(float(self.value))).normalize():f}"


def queries_to_fall(records: Sequence[Record], ball: Ball) -> Median | None:
    """The median number of queries it takes to fool a sample that is right; None where nothing was asked of any.

    Samples that stood are censored at what was spent on them (Kaplan and Meier): the smallest count by which at least
    half would have fallen.
    """
    return _median(list(soonest([records], ball).values()))


Spent = tuple[int, bool]  # queries, and whether the sample still stands after them


def soonest(cells: Sequence[Sequence[Record]], ball: Ball) -> dict[int, Spent]:
    """By when the first of several attacks breaks each sample, of those that all of them have and that are right.

    A sample that none of them breaks stands to the end of the longest: counted to the end of the shortest, those who
    stand would leave Kaplan and Meier's risk set first, and only the ones that fall would be left to tell of them.
    """
    each = [{r.sample: r for r in records} for records in cells]
    common = set.intersection(*map(set, each)) if each else set()
    found: dict[int, Spent] = {}
    for i in sorted(common):
        at = [records[i] for records in each]
        if all(map(right, at)):
            fell = [r.queries for r in at if not standing(r, ball)]
            found[i] = (min(fell), False) if fell else (max(r.queries for r in at), True)
    return found


def _median(asked: Sequence[Spent]) -> Median | None:
    from scipy.stats import CensoredData, ecdf

    most = max((q for q, _ in asked), default=0)
    if most == 0:
        return None
    fell, stood = [q for q, stands in asked if not stands], [q for q, stands in asked if stands]
    if not fell:
        return Median(None, most)
    left = ecdf(CensoredData(uncensored=fell, right=stood)).sf
    reached = [float(q) for q, share in zip(left.quantiles, left.probabilities, strict=True) if share <= 0.5 + 1e-12]
    return Median(reached[0] if reached else None, most)


def query_ratio(first: Sequence[Record], second: Sequence[Record], ball: Ball) -> Ratio | None:
    """The second's median queries over the first's, on the samples right in both; None where nothing is known of it."""
    return soonest_ratio([first], [second], ball)


def soonest_ratio(first: Sequence[Sequence[Record]], second: Sequence[Sequence[Record]], ball: Ball) -> Ratio | None:
    """The same for several attacks on either side, of which for each sample the one that breaks it first counts.

    A median beyond what was seen is bounded by what the shortest of them spent: for longer than that not all have
    tried, and a ratio of one attack's queries to another's would say nothing.
    """
    sides = [soonest(side, ball) for side in (first, second)]
    both = sides[0].keys() & sides[1].keys()  # medians of different samples are not compared
    before, after = (_median([side[i] for i in both]) for side in sides)
    if before is None or after is None or before.value == 0:
        return None
    if before.value is not None and after.value is not None:
        return Ratio(after.value / before.value)
    if before.value is not None:
        most = _all_tried(second, both)
        return Ratio(most / before.value, "more") if most >= before.value else None
    if after.value is not None:
        most = _all_tried(first, both)
        return Ratio(after.value / most, "less") if 0 < after.value <= most else None  # nothing is less than 0
    return None


def _all_tried(cells: Sequence[Sequence[Record]], samples: Collection[int]) -> int:
    """For how many queries every one of these attacks went on."""
    return min(max(r.queries for r in records if r.sample in samples) for records in cells)


@dataclass(frozen=True)
class Calibration:
    """What the confidence on clean images is worth: `error` and `loss` are better smaller."""

    error: float
    loss: float
    confidence: float
    accuracy: float
    n: int

    def __str__(self) -> str:
        return (
            f"calibration error {self.error:.3f}, log-loss {self.loss:.3f}, "
            f"mean confidence {100 * self.confidence:.1f} % at {100 * self.accuracy:.1f} % accuracy"
        )


def calibration(records: Sequence[Record]) -> Calibration:
    """Of the scores of clean images."""
    return calibrated([(r.clean_confidence, r.clean_truth, right(r)) for r in records])


def calibrated(said: Sequence[tuple[float, float, bool]], bins: int = 15) -> Calibration:
    """Of answers, each with the probability of the class it names, that of the true class, and whether it is right.

    Σ_b n_b/n · |accuracy_b − confidence_b| over equal bins ((b−1)/15, b/15] of confidence; the mean of −log p_y.
    """
    if not said:
        raise BadInput("there are no records to measure; evaluate the cell first.")
    sums: dict[int, float] = {}
    for confidence, _, fine in said:
        b = max(0, math.ceil(confidence * bins) - 1)
        sums[b] = sums.get(b, 0.0) + fine - confidence
    return Calibration(
        sum(map(abs, sums.values())) / len(said),
        max(0.0, -fmean(math.log(max(truth, sys.float_info.min)) for _, truth, _ in said)),  # not −0
        fmean(confidence for confidence, _, _ in said),
        fmean(fine for *_, fine in said),
        len(said),
    )
