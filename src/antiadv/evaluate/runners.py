"""Runners: functions shaped like `map` that carry out jobs, here or elsewhere, and yield results as they come.

runner(run, jobs)  →  results, in any order
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from antiadv.core import spec
from antiadv.evaluate.cell import Job
from antiadv.evaluate.shard import Result

Runner = Callable[[Callable[[Job], Result], Iterable[Job]], Iterator[Result]]


def local() -> Runner:
    """In this process, one job after the other."""
    return map


RUNNERS: dict[str, Callable[..., Runner]] = {"local": local}


def parse_runner(text: str) -> Runner:
    runner: Runner = spec.parse(text, RUNNERS, "runner")
    return runner
