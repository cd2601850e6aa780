"""Numbers are functions of records: nothing here loads a model or runs an attack.

    standing(r, ball)        right on the clean image, and not wrong inside the ball
    robust_accuracy          standing / all, with a 95 % Wilson interval
    clean_accuracy           right on the clean image / all, likewise
    paired(a, b)             b's accuracy minus a's on the samples both have, with exact McNemar's p
    median_queries           of the samples that were right and were fooled

No records is not zero: every measure of nothing is a `BadInput`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from antiadv.core.ball import Ball
from antiadv.core.errors import BadInput
from antiadv.evaluate.cell import Record


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

    `gained` samples stand only in the second, `lost` only in the first.
    """

    value: float
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


def robust_accuracy(records: Sequence[Record], ball: Ball) -> Share:
    return share(sum(standing(r, ball) for r in records), len(records))


def clean_accuracy(records: Sequence[Record]) -> Share:
    return share(sum(map(right, records)), len(records))


def share(count: int, n: int) -> Share:
    from scipy.stats import binomtest  # here, so that evaluation can be imported without it

    if n == 0:
        raise BadInput("there are no records to measure; evaluate the cell first.")
    interval = binomtest(count, n).proportion_ci(confidence_level=0.95, method="wilson")
    return Share(count / n, float(interval.low), float(interval.high), n)


def paired(first: Sequence[Record], second: Sequence[Record], ball: Ball) -> Difference:
    """How much better the second stands than the first, on the same samples."""
    return paired_by(first, second, lambda r: standing(r, ball))


def paired_by(first: Sequence[Record], second: Sequence[Record], good: Callable[[Record], bool]) -> Difference:
    from scipy.stats import binomtest

    before, after = ({r.sample: good(r) for r in records} for records in (first, second))
    both = before.keys() & after.keys()
    if not both:
        raise BadInput("the two cells have no sample in common, so they cannot be compared; evaluate the same samples.")
    gained = sum(after[i] and not before[i] for i in both)
    lost = sum(before[i] and not after[i] for i in both)
    p = float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
    return Difference((gained - lost) / len(both), gained, lost, p, len(both))


def median_queries(records: Sequence[Record], ball: Ball) -> float | None:
    """Of the samples that were right and fell; None when none fell."""
    spent = [r.queries for r in records if right(r) and not standing(r, ball)]
    return float(median(spent)) if spent else None
