"""Clocks and conditions of a fair timing: what is timed, by which clock, and how busy the machine was."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import torch


class Clock:
    """Measures the seconds spent inside a `with` block.

    On a GPU this is wall time, and the device is synchronised at both ends. On a CPU it is processor time, because
    other programs may share the machine, unless `wall` is set.
    """

    def __init__(self, device: torch.device, wall: bool = False) -> None:
        self._device, self._wall, self.seconds = device, wall, 0.0

    def __enter__(self) -> Clock:
        self._start = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = self._now() - self._start

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            return time.perf_counter()
        return time.perf_counter() if self._wall else time.process_time()


def clock(device: torch.device) -> Clock:
    """Return a clock that uses wall time with several threads: a waiting thread also spends processor time."""
    return Clock(device, wall=torch.get_num_threads() > 1)


def now(device: torch.device) -> float:
    """Return the time as `clock` counts it, compilers in child processes included."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() if device.type == "cuda" or torch.get_num_threads() > 1 else processor_seconds()


def processor_seconds() -> float:
    """Return the processor seconds of this process and of its ended child processes."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class OtherPrograms:
    """Measures which share of the processors other programs used during a `with` block; None if it is not known."""

    def __enter__(self) -> OtherPrograms:
        self.share: float | None = None
        self._start = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        everyone, mine, seconds = (b - a for a, b in zip(self._start, self._now(), strict=True))
        if self._start[0]:
            self.share = round(max(0.0, everyone - mine) / (seconds * (os.cpu_count() or 1)), 4)

    @staticmethod
    def _now() -> tuple[float, float, float]:
        return machine_seconds(), processor_seconds(), time.perf_counter()


def machine_seconds(path: Path = Path("/proc/stat")) -> float:
    """Return the busy seconds of all processors since the system started, or 0 if the system does not say.

    This includes the time that a host took from this virtual machine.
    """
    if not path.exists():
        return 0.0
    user, nice, system, _, _, hard, soft, stolen = map(int, path.read_text().split(maxsplit=9)[1:9])
    return (user + nice + system + hard + soft + stolen) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread inside the block, and restore the number of threads after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def compiling_afresh(compiled: bool) -> Iterator[None]:
    """Compile with an empty cache and in this process, so that the time of compiling is measured in full."""
    if not compiled:
        yield
        return
    import torch._inductor.config as inductor  # imported here: it takes as long to load as the rest of torch
    from torch._inductor.utils import fresh_inductor_cache

    before = inductor.compile_threads
    torch.compiler.reset()
    with fresh_inductor_cache():
        inductor.compile_threads = 1
        try:
            yield
        finally:
            inductor.compile_threads = before
