"""Networks that misbehave on one image: they raise, leave, answer with no number, kill their process, take their time.

All else is the exact toy, of which they have the digest: what one of them leaves undone, the toy can finish.
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


class Near(Misfit):
    """Bears its sample, and nothing that was made of it."""

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
    """Leaves its node's name in a folder, and begins when two nodes have; on the node `trap` it never begins.

    The process that made it, which asks it for its probes, is no worker and does not wait.
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
    """Raises, and from then on for every image in that process, as CUDA does after a failed assertion."""

    poisoned = False

    def forward(self, x: Tensor) -> Tensor:
        if Poisons.poisoned:
            raise RuntimeError("poisoned before")
        return super().forward(x)

    def meet(self, s: Tensor, hit: Tensor) -> Tensor:
        Poisons.poisoned = True
        raise RuntimeError("poisoned")


class Held(Misfit):
    """A process that has met the sample works on; any other says that it waits, and does until `go` lies beside."""

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
    """Leaves a file wherever it is packed, unpacked and asked, with the process and its threads in the name."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.eval()

    def __getstate__(self) -> dict[str, object]:
        self.note("packed")
        return self.__dict__

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)
        self.note("unpacked")

    def forward(self, x: Tensor) -> Tensor:
        (self.folder / f"{torch.get_num_threads()}-threads").touch()
        return super().forward(x)

    def note(self, what: str) -> None:
        (self.folder / f"{what}-{os.getpid()}-{time.monotonic_ns()}").touch()


class Rooted(Bands):
    """Can be packed and sent, and not unpacked where it arrives."""

    def __setstate__(self, state: dict[str, object]) -> None:
        raise RuntimeError("it knows its own process alone")


class Locked(Bands):
    """Holds what no other process can have."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


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
