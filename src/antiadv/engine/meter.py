"""Passes and seconds, for the receipt: what the defender pays, beside the queries that the attacker pays.

with Meter(f) as meter: …     meter.forwards, meter.backwards: images through f, counted by hooks on f itself
with aside() as seen: …       what passes meanwhile is left off the open meters, and told
bill(seen, images)            put it on them, for so many images: a replayed graph calls no hook

Several threads may attack at once, the same module too. A meter counts what the context that opened it passes, and
nothing of other threads: "open" above means open in this context.
"""

from __future__ import annotations

import functools
import platform
import subprocess
import time
from collections.abc import Iterator
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


@dataclass(frozen=True)
class Receipt:
    """`forwards` and `backwards` are images through the base network, the judge's included: what the defender paid.

    `agreement` is the share of the clean and attacked images on which the precision that searched gives the judge's
    label; `checks` counts the images about which the judge was asked in the middle of a search, `again` the samples
    that were searched again in float32, since search and judge parted in the end. `compiled`: how the network was run.
    `judge_queries` counts the images that the judge sent to the classifier to look at, `checks` included: whoever owns
    it sees these beside the attack's queries. Receipts written before it was counted have none.
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

    def json(self) -> dict[str, Any]:
        return asdict(self)


class Meter:
    """Counts the images that pass through a module, forward and backward, while the context is open."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.forwards = self.backwards = 0
        self._revision = revision()  # of the code that runs: a checkout may move on before the receipt is written
        self._start = time.perf_counter()

    def __enter__(self) -> Meter:
        try:
            self._hook = self.module.register_forward_hook(self._count)
        except RuntimeError as error:
            raise BadInput(
                "passes are counted by a hook, which a TorchScript module does not take. "
                "Call it from the forward of a torch.nn.Module of your own, and hand in that."
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
            return  # another thread's pass
        if not isinstance(s, Tensor) or s.is_nested or s.ndim == 0:
            return  # no classifier, as whoever asked it will say
        self.forwards += len(s)
        if s.requires_grad:
            s.register_hook(self._back)  # the graph is this context's own, whichever thread goes back through it

    def _back(self, g: Tensor) -> None:
        self.backwards += len(g)

    def seconds(self) -> float:
        return round(time.perf_counter() - self._start, 3)

    def receipt(self, device: torch.device, **more: Any) -> Receipt:
        """`more` is what else is to stand on it: how often search and judge agreed, for example."""
        return Receipt(self.seconds(), self.forwards, self.backwards, _name(device), versions(), self._revision, **more)


_OPEN: ContextVar[tuple[Meter, ...]] = ContextVar("open meters", default=())

_TALLY: ContextVar[list[Meter] | None] = ContextVar("meters opened", default=None)

Passes = dict[nn.Module, tuple[int, int]]  # by module: images forward and backward


@contextmanager
def tallied() -> Iterator[list[Meter]]:
    """The meters opened inside: what an attack that failed has cost is on a meter that gave no receipt."""
    meters: list[Meter] = []
    before = _TALLY.set(meters)
    try:
        yield meters
    finally:
        _TALLY.reset(before)


@contextmanager
def aside() -> Iterator[Passes]:
    """What passes inside is taken off the open meters again; the mapping is filled at the end."""
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
    """Put on the open meters what one image was seen to cost, for so many."""
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
    """The commit of a source checkout, with a + where its code is another by now; or nothing."""
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
