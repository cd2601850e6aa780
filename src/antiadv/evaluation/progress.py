"""How far an evaluation is, told as it goes: of the cell last heard of, and of all cells together.

    count = Count(jobs, tell)      count.asked(job, queries)  ·  count.finished(result)  ·  count.failed(failure)
    tell(Progress)                 what shows it is the caller's affair

What was stored before is not counted, so a rate is that of this run. Queries include those of the shards in hand, of
which there are as many as workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from antiadv import attacks
from antiadv.evaluation.cell import Cell, Job, Record
from antiadv.evaluation.judge import idle
from antiadv.evaluation.runners.work import Failure
from antiadv.evaluation.shard import Result


@dataclass(frozen=True)
class Tally:
    """Samples asked for, done, and of these fooled or standing still; those of shards that failed; queries."""

    total: int = 0
    done: int = 0
    fooled: int = 0
    standing: int = 0
    failed: int = 0
    queries: int = 0

    def plus(self, records: Sequence[Record], reach: float, idle: int = 0) -> Tally:
        """`idle` of them were not attacked, and so do not stand."""
        right = [r for r in records if r.clean == r.label]
        fooled = sum(r.attacked != r.label and r.distance <= reach for r in right)
        return replace(
            self,
            done=self.done + len(records),
            fooled=self.fooled + fooled,
            standing=self.standing + len(right) - fooled - idle,
            queries=self.queries + sum(r.queries for r in records),
        )

    @property
    def over(self) -> bool:
        return self.done + self.failed == self.total


@dataclass(frozen=True)
class Progress:
    """`cell` is the one last heard of and `here` its tally, `overall` that of all cells, after so many seconds."""

    cell: Cell
    here: Tally
    overall: Tally
    seconds: float


class Count:
    """Adds up what is done, and tells."""

    def __init__(self, jobs: Sequence[Job], tell: Callable[[Progress], None] | None) -> None:
        self._tell, self._start = tell, time.monotonic()
        self._overall, self._cells = Tally(), dict[Cell, Tally]()
        for job in jobs:
            self._change(job, lambda t, n=len(job.ids): replace(t, total=t.total + n))  # type: ignore[misc]
        self._in_hand: dict[Job, int] = {}

    def asked(self, job: Job, queries: int) -> None:
        self._in_hand[job] = queries
        self._report(job.cell)

    def finished(self, result: Result) -> None:
        threat, attack = result.job.cell.threat, attacks.parse(result.job.cell.attack)
        lost = sum(idle(result.records, attack, threat))
        self._over(result.job, lambda t: t.plus(result.records, threat.ball.reach, lost))

    def failed(self, failure: Failure) -> None:
        self._over(failure.job, lambda t: replace(t, failed=t.failed + len(failure.job.ids)))

    def _over(self, job: Job, change: Callable[[Tally], Tally]) -> None:
        self._in_hand.pop(job, None)
        self._change(job, change)
        self._report(job.cell)

    def _change(self, job: Job, change: Callable[[Tally], Tally]) -> None:
        self._overall = change(self._overall)
        self._cells[job.cell] = change(self._cells.get(job.cell, Tally()))

    def _report(self, cell: Cell) -> None:
        if self._tell is not None:
            here, overall = self._cells[cell], self._overall
            mine = sum(queries for job, queries in self._in_hand.items() if job.cell == cell)
            here = replace(here, queries=here.queries + mine)
            overall = replace(overall, queries=overall.queries + sum(self._in_hand.values()))
            self._tell(Progress(cell, here, overall, time.monotonic() - self._start))
