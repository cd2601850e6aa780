"""The progress of an evaluation: counts for one cell and for all cells together.

    count = Count(jobs, report)      count.queried(job, queries)  ·  count.finished(result)  ·  count.failed(failure)
    report(Progress)                 called after each change; the caller shows it

Samples stored before are not counted, so that rates are those of this run. Queries include those of unfinished shards.
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
    """Numbers of samples: asked for, done, fooled, still standing, and in shards that failed. And the queries."""

    total: int = 0
    done: int = 0
    fooled: int = 0
    standing: int = 0
    failed: int = 0
    queries: int = 0

    def plus(self, records: Sequence[Record], reach: float, idle: int = 0) -> Tally:
        """With these records added. `idle` of them were not attacked, so they do not count as standing."""
        right = [r for r in records if r.clean == r.label]
        fooled = sum(r.attacked != r.label and r.distance <= reach for r in right)
        return replace(
            self,
            done=self.done + len(records),
            fooled=self.fooled + fooled,
            standing=self.standing + len(right) - fooled - idle,
            queries=self.queries + sum(r.queries for r in records),
        )

    def __str__(self) -> str:
        failed = f"{self.failed} failed, " if self.failed else ""
        return f"{self.done} of {self.total} samples, {failed}{self.fooled} fooled, {self.standing} robust"

    @property
    def over(self) -> bool:
        return self.done + self.failed == self.total


@dataclass(frozen=True)
class Progress:
    """`cell` is the cell that changed last, `here` its tally, `overall` the tally of all cells after `seconds`."""

    cell: Cell
    here: Tally
    overall: Tally
    seconds: float


class Count:
    """Adds up the results of a run and reports each change."""

    def __init__(self, jobs: Sequence[Job], report: Callable[[Progress], None] | None) -> None:
        self._callback, self._start = report, time.monotonic()
        self._overall, self._cells = Tally(), dict[Cell, Tally]()
        for job in jobs:
            self._change(job, lambda t, n=len(job.ids): replace(t, total=t.total + n))  # type: ignore[misc]
        self._running: dict[Job, int] = {}  # queries of unfinished shards

    def queried(self, job: Job, queries: int) -> None:
        self._running[job] = queries
        self._report(job.cell)

    def finished(self, result: Result) -> None:
        threat, attack = result.job.cell.threat, attacks.parse(result.job.cell.attack)
        not_attacked = sum(idle(result.records, attack, threat))
        self._end(result.job, lambda t: t.plus(result.records, threat.ball.reach, not_attacked))

    def failed(self, failure: Failure) -> None:
        self._end(failure.job, lambda t: replace(t, failed=t.failed + len(failure.job.ids)))

    def _end(self, job: Job, change: Callable[[Tally], Tally]) -> None:
        self._running.pop(job, None)
        self._change(job, change)
        self._report(job.cell)

    def _change(self, job: Job, change: Callable[[Tally], Tally]) -> None:
        self._overall = change(self._overall)
        self._cells[job.cell] = change(self._cells.get(job.cell, Tally()))

    def _report(self, cell: Cell) -> None:
        if self._callback is None:
            return
        here, overall = self._cells[cell], self._overall
        running = sum(queries for job, queries in self._running.items() if job.cell == cell)
        here = replace(here, queries=here.queries + running)
        overall = replace(overall, queries=overall.queries + sum(self._running.values()))
        self._callback(Progress(cell, here, overall, time.monotonic() - self._start))
