"""Runners: where the jobs are done. Each is shaped like `map` and yields what came of the jobs in any order.

    local                        in this process, one after the other
    processes:4                  in four processes of this machine
    ray, ray:ADDRESS             on the GPUs or cores of a Ray cluster

All call the same `Work`, so the records are equal wherever they were made; one process, this one, writes them.
"""

from __future__ import annotations

from collections.abc import Callable

from antiadv.core import spec
from antiadv.evaluation.runners.processes import processes
from antiadv.evaluation.runners.work import Runner


def local() -> Runner:
    """In this process, one job after the other."""
    return map


def ray(address: str | None = None, workers: int | None = None) -> Runner:
    """On Ray: the cluster at this address, or the one on this machine; a worker per GPU or core unless said."""
    from antiadv.evaluation.runners.ray_runner import on_ray  # here, so that nothing else needs Ray

    return on_ray(address, workers)


RUNNERS: dict[str, Callable[..., Runner]] = {"local": local, "processes": processes, "ray": ray}


def parse_runner(text: str) -> Runner:
    """`local`, `processes:4`, `ray`, `ray:10.0.0.1:6379`."""
    runner: Runner = spec.parse(text, RUNNERS, "runner")
    return runner
