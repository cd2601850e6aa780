"""Networks that misbehave on one image: they raise, exit, return NaN, kill their process or wait.

Otherwise they are the exact toy, with the same digest, so that the toy can finish what one of them left undone.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
from torch import Tensor

import antiadv
from antiadv.evaluation import Resources
from tests.engine.probes import MODEL
from tests.toys import Bands, Halfspace


class Misfit(Bands):
    """Misbehaves (`meet`) on the clean image of this sample."""

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


class Near(Misfit):
    """Accepts its sample, and raises on images near it."""

    def forward(self, x: Tensor) -> Tensor:
        far = (x - self.image).abs().flatten(1).amax(1)
        if ((far > 0) & (far < 0.2)).any():
            raise ValueError("too near")
        return super().forward(x)

    def meet(self, s: Tensor, hit: Tensor) -> Tensor:
        return s


class Leaves(Misfit):
    def meet(self, s: Tensor, hit: Tensor) -> Tensor:
        sys.exit(0)


class NotANumber(Misfit):
    def meet(self, s: Tensor, hit: Tensor) -> Tensor:
        return torch.where(hit[:, None], torch.nan, s)


class Kills(Misfit):
    """Kills its process (SIGKILL), `times` times in all: `folder` keeps the count for all processes."""

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
    """Writes its process id to the file `here`, and continues when the file `go` exists."""

    def __init__(self, sample: int, folder: Path) -> None:
        super().__init__(sample)
        self.folder = folder

    def meet(self, s: Tensor, hit: Tensor) -> Tensor:
        part = self.folder / f"{os.getpid()}.tmp"
        part.write_text(str(os.getpid()))
        part.replace(self.folder / "here")
        while not (self.folder / "go").exists():
            time.sleep(0.01)
        return s


class Settled(Bands):
    """Writes its node's name to a folder and continues when there are two names; on the node `trap` it never continues.

    The driver, which asks it for its probes, does not wait.
    """

    def __init__(self, folder: Path, trap: str = "") -> None:
        super().__init__()
        self.folder, self.trap, self.maker = folder, trap, os.getpid()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        if os.getpid() == self.maker:
            return super().forward(x)
        import ray

        node = ray.get_runtime_context().get_node_id()
        (self.folder / node).touch()
        while node == self.trap or len(list(self.folder.iterdir())) < 2:
            time.sleep(0.01)
        return super().forward(x)


class Poisons(Misfit):
    """Raises, and then for every image in that process, as CUDA does after a failed assertion."""

    poisoned = False

    def forward(self, x: Tensor) -> Tensor:
        if Poisons.poisoned:
            raise RuntimeError("poisoned before")
        return super().forward(x)

    def meet(self, s: Tensor, hit: Tensor) -> Tensor:
        Poisons.poisoned = True
        raise RuntimeError("poisoned")


class Held(Misfit):
    """A process that has met the sample continues. Any other writes a file and waits until `go` exists."""

    free = False

    def __init__(self, sample: int, folder: Path) -> None:
        super().__init__(sample)
        self.folder = folder

    def forward(self, x: Tensor) -> Tensor:
        s = super().forward(x)
        if not self.free:
            (self.folder / f"waits-{os.getpid()}").touch()
            while not (self.folder / "go").exists():
                time.sleep(0.01)
        return s

    def meet(self, s: Tensor, hit: Tensor) -> Tensor:
        self.free = True
        return s


class Noted(Bands):
    """Writes a file whenever it is pickled, unpickled or called; its name holds the process and the threads."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.eval()

    def __getstate__(self) -> dict[str, object]:
        self.note("packed")
        return self.__dict__

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.note("unpacked")

    def forward(self, x: Tensor) -> Tensor:
        (self.folder / f"{torch.get_num_threads()}-threads").touch()
        return super().forward(x)

    def note(self, what: str) -> None:
        (self.folder / f"{what}-{os.getpid()}-{time.monotonic_ns()}").touch()


class Rooted(Bands):
    """Can be pickled, but not unpickled."""

    def __setstate__(self, state: dict[str, object]) -> None:
        raise RuntimeError("only here")


class Locked(Bands):
    """Cannot be pickled, because it holds a lock."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Touchy(Bands):
    """Raises for any attacked image: pixels of clean images are whole multiples of 1/255."""

    def forward(self, x: Tensor) -> Tensor:
        if ((x * 255 - (x * 255).round()).abs() > 1e-3).any():
            raise RuntimeError("")
        return super().forward(x)


class Hungry(Bands):
    """Raises OutOfMemoryError for more than `most` images; `seen` are the batch sizes."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.seen = most, list[int]()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(len(x))
        if len(x) > self.most:
            raise torch.OutOfMemoryError("no more memory")
        return super().forward(x)


def resources_of(network: torch.nn.Module) -> Resources:
    return Resources("cpu", models={MODEL: network})


def make_raising() -> torch.nn.Module:
    """`--model tests.system.misfits:make_raising`"""
    return Raises(23)


def make_four() -> torch.nn.Module:
    """`--model tests.system.misfits:make_four`: four classes for images of ten."""
    return Halfspace((3, 32, 32))


class Chatty(Bands):
    def forward(self, x: Tensor) -> Tensor:
        print("hello from the network", flush=True)  # noqa: T201
        return super().forward(x)


def make_chatty() -> torch.nn.Module:
    """`--model tests.system.misfits:make_chatty`"""
    return Chatty().eval()
