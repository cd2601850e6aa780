"""The local runner: one job after the other in this process."""

from __future__ import annotations

from antiadv.evaluation.runners.work import Runner


def locally() -> Runner:
    """In this process, one job after the other."""
    return map
