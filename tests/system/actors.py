"""Actors that stand in for workers of Ray where no work is to be done. They import no torch, so they start quickly."""

from __future__ import annotations


class Placed:
    """An actor that says what it was given instead of working."""

    def __init__(self, device: str, *said: object) -> None:
        self.device = device

    def ready(self) -> tuple[str, int]:
        import ray

        return self.device, len(ray.get_gpu_ids())


class Stillborn:
    """An actor on a node that lacks what it needs."""

    def __init__(self, *said: object) -> None:
        raise ImportError("no such package here")

    def ready(self) -> None:
        """Never answered."""
