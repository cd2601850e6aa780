"""Runners: where jobs run. A runner is called like `map` and yields results in any order.

    local                        in this process, one after the other
    processes:4                  in four processes of this machine
    ray, ray:ADDRESS             on the GPUs or cores of a Ray cluster

All call the same `Work`, so the records are equal everywhere. Only the process that called the runner writes them.
"""

from __future__ import annotations

from collections.abc import Callable

from antiadv.core import spec
from antiadv.evaluation.runners.processes import in_processes
from antiadv.evaluation.runners.work import Runner

__all__ = ["RUNNERS", "parse_runner"]


def locally() -> Runner:
    """In this process, one job after the other."""
    return map


def _on_ray(address: str | None = None, workers: int | None = None) -> Runner:
    """On Ray: the cluster at this address or on this machine. By default one worker for each GPU or core."""
    from antiadv.evaluation.runners.ray import on_ray  # imported here, so that nothing else needs Ray

    return on_ray(address, workers)


RUNNERS: dict[str, Callable[..., Runner]] = {"local": locally, "processes": in_processes, "ray": _on_ray}


def parse_runner(text: str) -> Runner:
    """The runner of a spec: `local`, `processes:4`, `ray`, `ray:10.0.0.1:6379`."""
    runner: Runner = spec.parse(text, RUNNERS, "runner")
    return runner
