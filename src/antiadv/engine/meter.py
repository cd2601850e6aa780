"""Passes and seconds for the receipt: the cost of an attack for the defender, next to the queries of the attacker.

    with Meter(f) as meter: …     meter.forwards, meter.backwards: images through f, counted by hooks on f
    with aside() as seen: …       passes in the block are not counted, but returned in `seen`
    seconds(f, parts)             wall-clock seconds of one answer to each part
    bill(seen, images)            count `seen` for this many images: a replayed graph calls no hook

Several threads may attack at once, even the same module. A meter counts the passes of the context that opened it, and
none of other threads. "Open" means open in this context.
"""

from __future__ import annotations

import functools
import platform
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from antiadv.core.errors import BadInput


def seconds(model: nn.Module, parts: Sequence[Tensor]) -> float:
    """The wall-clock seconds that a classifier takes for these batches, one after the other."""
    start = time.perf_counter()
    with torch.no_grad():
        for part in parts:
            model(part).argmax(1).tolist()  # reading the numbers waits for a GPU
    return time.perf_counter() - start


@dataclass(frozen=True)
class Receipt:
    """The cost of a shard, and how it was run.

    forwards, backwards   images through the base network, those of the judge included
    agreement             share of the clean and attacked images that search and judge give the same label
    again                 samples that were rerun in float32 (`core/confirm.py`)
    checks                images that the judge was asked about during the search
    compiled              whether the network was compiled
    judge_queries         images that the judge sent to the classifier, `checks` included; None in old receipts
    sent                  for an endpoint: images that went over the wire, the judge's and repeats included; else None
    """

    seconds: float
    forwards: int
    backwards: int
    device: str
    versions: dict[str, str]
    revision: str
    agreement: float = 1.0
    again: int = 0
    checks: int = 0
    compiled: bool = False
    judge_queries: int | None = None
    sent: int | None = None

    def json(self) -> dict[str, Any]:
        return asdict(self)


class Meter:
    """Counts the images that pass through a module, forward and backward, inside the block."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.forwards = self.backwards = 0
        self._revision = revision()  # now: a checkout may change before the receipt is written
        self._start = time.perf_counter()

    def __enter__(self) -> Meter:
        try:
            self._hook = self.module.register_forward_hook(self._count)
        except RuntimeError as error:
            raise BadInput(
                "passes are counted by a hook, which a TorchScript module does not take. "
                "Call it from the forward of a torch.nn.Module of your own, and pass that."
            ) from error
        self._others = _OPEN.set((*_OPEN.get(), self))
        if (tally := _TALLY.get()) is not None:
            tally.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _OPEN.reset(self._others)
        self._hook.remove()

    def _count(self, module: nn.Module, args: tuple[Any, ...], s: Tensor) -> None:
        if self not in _OPEN.get():
            return  # a pass of another thread
        if not isinstance(s, Tensor) or s.is_nested or s.ndim == 0:
            return  # not a classifier: the caller reports it
        self.forwards += len(s)
        if s.requires_grad:
            s.register_hook(self._back)  # belongs to this context in any thread

    def _back(self, g: Tensor) -> None:
        self.backwards += len(g)

    def seconds(self) -> float:
        return round(time.perf_counter() - self._start, 3)

    def receipt(self, device: torch.device, **more: Any) -> Receipt:
        """`more` are further fields, such as `agreement`."""
        return Receipt(self.seconds(), self.forwards, self.backwards, _name(device), versions(), self._revision, **more)


_OPEN: ContextVar[tuple[Meter, ...]] = ContextVar("open meters", default=())

_TALLY: ContextVar[list[Meter] | None] = ContextVar("meters opened", default=None)

Passes = dict[nn.Module, tuple[int, int]]  # module → images forward and backward


@contextmanager
def tallied() -> Iterator[list[Meter]]:
    """The meters opened in the block. They give the cost of an attack that failed without a receipt."""
    meters: list[Meter] = []
    before = _TALLY.set(meters)
    try:
        yield meters
    finally:
        _TALLY.reset(before)


@contextmanager
def aside() -> Iterator[Passes]:
    """Take the passes of the block off the open meters. The mapping with them is filled at the end."""
    before, seen = [(m, m.forwards, m.backwards) for m in _OPEN.get()], Passes()
    try:
        yield seen
    finally:
        for m, forwards, backwards in before:
            seen[m.module] = (m.forwards - forwards, m.backwards - backwards)
            m.forwards, m.backwards = forwards, backwards


def metered() -> set[nn.Module]:
    """The modules whose passes are being counted."""
    return {m.module for m in _OPEN.get()}


def bill(passes: Passes, images: int) -> None:
    """Add the passes of one image to the open meters, times the number of images."""
    for m in _OPEN.get():
        forwards, backwards = passes.get(m.module, (0, 0))
        m.forwards += forwards * images
        m.backwards += backwards * images


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{device.type} {platform.machine()}"


@functools.cache
def versions() -> dict[str, str]:
    try:
        own = version("antiadv")
    except PackageNotFoundError:  # run from a source tree that was never installed
        own = "source"
    return {"antiadv": own, "torch": torch.__version__, "python": platform.python_version()}


@functools.cache
def revision() -> str:
    """The commit of a source checkout, with a + if its code was changed; empty outside a checkout."""
    return revision_of(Path(__file__).resolve().parents[3])


def revision_of(root: Path) -> str:
    commit = _git(root, "rev-parse", "--short=12", "HEAD") if (root / ".git").exists() else None
    if not commit:
        return ""
    changed = _git(root, "status", "--porcelain", "--untracked-files=all", "--", "*.py")
    return commit if changed == "" else f"{commit}+"


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
