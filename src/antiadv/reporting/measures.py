"""Measures: functions of records. Nothing here loads a model or runs an attack.

A sample *stands* if its clean image is classified correctly and the attack found no wrong one inside the ball. Medians
of queries are those of Kaplan and Meier: a sample that stood is censored at the queries spent on it.

Without records there is no measure: every function raises `BadInput`.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, ROUND_UP, Context
from statistics import fmean, median
from typing import Literal

from antiadv.core.ball import Ball
from antiadv.core.errors import BadInput
from antiadv.core.interval import chance, wilson
from antiadv.evaluation.cell import Record
from antiadv.evaluation.early import FEW, guesses

BINS = 15  # of confidence, in the calibration error


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

    `low` and `high` are Newcombe's 95 % interval for paired proportions. Near 5 % it and p may disagree. `gained`
    samples stand only in the second, `lost` only in the first.
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

    @property
    def points(self) -> str:
        """`+18.6 [+15.9, +21.2]`, in points."""
        return f"{100 * self.value:+.1f} [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"


def right(record: Record) -> bool:
    """Whether the clean image is classified correctly, in the majority of the judge's draws."""
    return 2 * record.clean_right > record.draws


def standing(record: Record, ball: Ball) -> bool:
    """Whether the clean image is classified correctly and the attack found no image inside the ball that is not."""
    inside = record.distance <= ball.reach
    return right(record) and (2 * record.attacked_right > record.draws or not inside)


def search_judge_mismatch(record: Record, ball: Ball) -> bool:
    """Whether a minimal attack ended beyond the ball at an image that fooled the search but not the judge.

    The search, in a coarser precision, stopped too close. The distance of an image that fools the judge is not known.
    Randomised defences are left out, because there a single prediction may differ by chance.
    """
    return right(record) and record.draws == 1 == record.attacked_right and record.distance > ball.reach


def standing_by(record: Record, ball: Ball, queries: int) -> bool:
    """Whether a sample stands with a smaller budget than the run's.

    Only for attacks that stop at success and whose steps do not depend on the budget (NES, Bandits, Square).
    """
    return standing(record, ball) or (right(record) and record.queries > queries)


def unseen_by(records: Sequence[Record], budget: int, queries: int | None = None) -> dict[int, bool]:
    """Return for each sample whether it is correct and the attack saw no wrong prediction within so many queries.

    The attack stops at the first wrong prediction. On a randomised defence that one may be chance, and the majority of
    the judge's draws may differ. An attack that saw none has spent its budget, which is the same for all samples: the
    largest recorded number of queries, if it is close to the budget.
    """
    most = max((r.queries for r in records), default=0)
    end = most if most > 0.9 * budget else budget
    limit = end if queries is None else min(end, queries + 1)
    return {r.sample: right(r) and r.queries >= limit for r in records}


def by_first_error(records: Sequence[Record], budget: int | None) -> Sequence[Record]:
    """The records as the attacker sees them: of a randomised defence, one wrong answer within the budget is a success.

    The attack stops there. That the majority of the judge's draws is right then says little: it was not asked to last.
    """
    if budget is None or all(r.draws == 1 for r in records):
        return records
    unseen = unseen_by(records, budget)
    return [r if unseen[r.sample] else dataclasses.replace(r, attacked_right=0, distance=0.0) for r in records]


def robust_accuracy(records: Sequence[Record], ball: Ball) -> Share:
    return share(sum(standing(r, ball) for r in records), len(records))


def clean_accuracy(records: Sequence[Record]) -> Share:
    return share(sum(map(right, records)), len(records))


def guessing(records: Sequence[Record]) -> bool:
    """Whether the clean accuracy is no better than guessing; False for fewer than 20 records.

    The number of classes is taken from the largest label or prediction.
    """
    if len(records) < FEW:
        return False
    last = max(max(r.label, r.clean, r.attacked, r.base_clean, r.base_attacked) for r in records)
    return guesses(sum(map(right, records)), len(records), last + 1)


def share(count: int, n: int) -> Share:
    if n == 0:
        raise BadInput("there are no records to measure; evaluate the cell first.")
    return Share(count / n, *wilson(count, n), n)


def paired(first: Sequence[Record], second: Sequence[Record], ball: Ball) -> Difference:
    """Robust accuracy of the second minus that of the first, on the same samples."""
    return paired_by(first, second, lambda r: standing(r, ball))


def paired_by(first: Sequence[Record], second: Sequence[Record], good: Callable[[Record], bool]) -> Difference:
    return difference(*({r.sample: good(r) for r in records} for records in (first, second)))


def difference(before: Mapping[int, bool], after: Mapping[int, bool]) -> Difference:
    """Compare which samples are good before and after, on the samples that both name."""
    both = before.keys() & after.keys()
    if not both:
        raise BadInput("the two cells have no sample in common, so they cannot be compared; evaluate the same samples.")
    gained = sum(after[i] and not before[i] for i in both)
    lost = sum(before[i] and not after[i] for i in both)
    kept = sum(before[i] and after[i] for i in both)
    p = min(1.0, 2 * chance(max(gained, lost), gained + lost, 0.5))  # McNemar's exact test
    low, high = newcombe(kept, gained, lost, len(both) - kept - gained - lost)
    return Difference((gained - lost) / len(both), low, high, gained, lost, p, len(both))


def newcombe(both: int, second: int, first: int, neither: int) -> tuple[float, float]:
    """95 % interval of a paired difference, second minus first (Newcombe, Stat. Med. 17:2635, 1998, method 10).

    It combines the Wilson intervals [l₁, u₁] and [l₂, u₂] of the two shares and their correlation φ. A positive φ is
    corrected towards zero by n/2.
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
    """The median over the samples that were correct and fell; None if none fell."""
    spent = [r.queries for r in records if right(r) and not standing(r, ball)]
    return float(median(spent)) if spent else None


@dataclass(frozen=True)
class Median:
    """A median of censored counts: `value`, or None if it is larger than `beyond`, the largest count seen."""

    value: float | None
    beyond: float

    def __str__(self) -> str:
        return f"> {self.beyond:g}" if self.value is None else f"{self.value:g}"


@dataclass(frozen=True)
class Ratio:
    """A ratio: exactly `value`, or `more` or `less` than it if only a bound is known."""

    value: float
    bound: Literal["exactly", "more", "less"] = "exactly"

    def __str__(self) -> str:
        return {"exactly": "", "more": "> ", "less": "< "}[self.bound] + self.digits

    @property
    def digits(self) -> str:
        """Two significant digits. A bound is rounded so that it remains a bound."""
        rounding = {"exactly": ROUND_HALF_EVEN, "more": ROUND_DOWN, "less": ROUND_UP}[self.bound]
        return f"{Context(prec=2, rounding=rounding).create_decimal(repr(float(self.value))).normalize():f}"


def queries_to_fall(records: Sequence[Record], ball: Ball) -> Median | None:
    """The median number of queries it takes to fool a correct sample; None if no query was made."""
    return _median(list(soonest([records], ball).values()))


Spent = tuple[int, bool]  # queries, and whether the sample still stands after them


def soonest(cells: Sequence[Sequence[Record]], ball: Ball) -> dict[int, Spent]:
    """Return the queries after which the first of several attacks breaks each sample.

    Only samples that all attacks have and that are correct count. A sample that stands is censored at the end of the
    longest attack. Censored at the end of the shortest, standing samples would leave Kaplan and Meier's risk set too
    early, and the median would be too small.
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
    """The smallest count by which at least half would have fallen (Kaplan and Meier); None if no query was made."""
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
    """The second's median queries over the first's, or a bound, on the samples correct in both; None if unknown."""
    return soonest_ratio([first], [second], ball)


def soonest_ratio(first: Sequence[Sequence[Record]], second: Sequence[Sequence[Record]], ball: Ball) -> Ratio | None:
    """The same for several attacks on each side. For each sample the attack that breaks it first counts.

    A median beyond the observed queries is bounded by the queries of the shortest attack: beyond these not all attacks
    were still running.
    """
    sides = [soonest(side, ball) for side in (first, second)]
    both = sides[0].keys() & sides[1].keys()  # medians are compared on the same samples
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
    """The number of queries up to which all of these attacks were running."""
    return min(max(r.queries for r in records if r.sample in samples) for records in cells)


@dataclass(frozen=True)
class Calibration:
    """Calibration on clean images. Smaller `error` and `loss` are better."""

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
    """The calibration of the scores of clean images."""
    return calibrated([(r.clean_confidence, r.clean_truth, right(r)) for r in records])


def calibrated(predictions: Sequence[tuple[float, float, bool]]) -> Calibration:
    """The calibration of predictions: the probability of the predicted class and of the true class, and correctness.

    Σ_b n_b/n · |accuracy_b − confidence_b| over equal bins ((b−1)/15, b/15] of confidence; the mean of −log p_y.
    """
    if not predictions:
        raise BadInput("there are no records to measure; evaluate the cell first.")
    sums: dict[int, float] = {}
    for confidence, _, fine in predictions:
        b = max(0, math.ceil(confidence * BINS) - 1)
        sums[b] = sums.get(b, 0.0) + fine - confidence
    return Calibration(
        sum(map(abs, sums.values())) / len(predictions),
        max(0.0, -fmean(math.log(max(truth, sys.float_info.min)) for _, truth, _ in predictions)),  # not −0
        fmean(confidence for confidence, _, _ in predictions),
        fmean(fine for *_, fine in predictions),
        len(predictions),
    )
