"""Networks that misbehave on one image: they raise, leave, answer with no number, kill their process, take their time.

All else is the exact toy, of which they have the digest: what one of them leaves undone, the toy can finish.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import Tensor

import antiadv
from antiadv.evaluate import World
from tests.evaluate.probes import MODEL
from tests.toys import Bands, Halfspace


class Misfit(Bands):
    """`sample` is the embedded image that it cannot bear, as long as nobody has touched it."""

    def __init__(self, sample: int) -> None:
        super().__init__()
        self.image = antiadv.data.load("cifar10:test").images([sample])  # no buffer: the digest is the toy's
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        hit = (x == self.image).flatten(1).all(1)
        s = super().forward(x)
        return self.meet(s, hit) if hit.any() else s

    def meet(self, s: Tensor, hit: Tensor) -> Tensor:
        raise NotImplementedError


class Raises(Misfit):
    def meet(self, s: Tensor, hit: Tensor) -> Tensor:
        raise ValueError("too dark.\nAnd more of it")


class Leaves(Misfit):
    def meet(self, s: Tensor, hit: Tensor) -> Tensor:
        sys.exit(0)


class NotANumber(Misfit):
    def meet(self, s: Tensor, hit: Tensor) -> Tensor:
        return torch.where(hit[:, None], torch.nan, s)


class Kills(Misfit):
    """SIGKILL to whoever runs it, so many times: `folder` keeps the count, over all processes."""

    def __init__(self, sample: int, folder: Path, times: int) -> None:
        super().__init__(sample)
        self.folder, self.times = folder, times

    def meet(self, s: Tensor, hit: Tensor) -> Tensor:
        for k in range(self.times):
            try:
                os.close(os.open(self.folder / f"death-{k}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        return s


class Waits(Misfit):
    """Says where it is (a file with its process id), and goes on when the file `go` lies beside."""

    def __init__(self, sample: int, folder: Path) -> None:
        super().__init__(sample)
        self.folder = folder

    def meet(self, s: Tensor, hit: Tensor) -> Tensor:
        beside = self.folder / f"{os.getpid()}.tmp"
        beside.write_text(str(os.getpid()))
        beside.replace(self.folder / "here")
        while not (self.folder / "go").exists():
            time.sleep(0.01)
        return s


class Settled(Bands):
    """Leaves its node's name in a folder, and begins when two nodes have; on the node `trap` it never begins."""

    def __init__(self, folder: Path, trap: str = "") -> None:
        super().__init__()
        self.folder, self.trap = folder, trap
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        import ray

        node = ray.get_runtime_context().get_node_id()
        (self.folder / node).touch()
        while node == self.trap or len(list(self.folder.iterdir())) < 2:
            time.sleep(0.01)
        return super().forward(x)


class Poisons(Misfit):
    """Raises, and from then on for every image in that process, as CUDA does after a failed assertion."""

    poisoned = False

    def forward(self, x: Tensor) -> Tensor:
        if Poisons.poisoned:
            raise RuntimeError("poisoned before")
        return super().forward(x)

    def meet(self, s: Tensor, hit: Tensor) -> Tensor:
        Poisons.poisoned = True
        raise RuntimeError("poisoned")


class Touchy(Bands):
    """Raises for any image that has been changed: pixels of a photograph are whole multiples of 1/255."""

    def forward(self, x: Tensor) -> Tensor:
        if ((x * 255 - (x * 255).round()).abs() > 1e-3).any():
            raise RuntimeError("")
        return super().forward(x)


class Hungry(Bands):
    """Its device has memory for so many images at a time; `seen` are the sizes of what it was asked."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.seen = most, list[int]()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        if len(x) > self.most:
            raise torch.OutOfMemoryError("no more memory")
        return super().forward(x)


def world_of(network: torch.nn.Module) -> World:
    return World("cpu", models={MODEL: network})


def make_raising() -> torch.nn.Module:
    """`--model tests.engine.misfits:make_raising`"""
    return Raises(23)


def make_four() -> torch.nn.Module:
    """`--model tests.engine.misfits:make_four`: four classes for images of ten."""
    return Halfspace((3, 32, 32))


class Chatty(Bands):
    def forward(self, x: Tensor) -> Tensor:
        print("hello from the network", flush=True)  # noqa: T201
        return super().forward(x)


def make_chatty() -> torch.nn.Module:
    """`--model tests.engine.misfits:make_chatty`"""
    return Chatty().eval()
