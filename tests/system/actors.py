"""Ray actors for tests without work. They do not import torch, so they start quickly."""

from __future__ import annotations


class Placed:
    """An actor that reports the device and the GPUs that it was given."""

    def __init__(self, device: str, *more: object) -> None:
        self.device = device

    def ready(self) -> tuple[str, int]:
        import ray

        return self.device, len(ray.get_gpu_ids())


class FailsToStart:
    """An actor on a node where a package is missing."""

    def __init__(self, *more: object) -> None:
        raise ImportError("no such package here")

    def ready(self) -> None:
        """Never reached."""
