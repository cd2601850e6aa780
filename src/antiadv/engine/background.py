"""Compile a network in another process while the attack runs, so that nothing waits for the compiler.

    background = Background(precision, queries)    for a job of at most this many queries
    background.ready(model, x)                     asked before each request: whether to go on with the compiled network

The other process gets a copy of the model, makes one request of each kind on it, compiled, and ends. What it leaves is
the compiler's cache on disk (TORCHINDUCTOR_CACHE_DIR, or torch's default), from which this process compiles within
seconds. A note in `NOTES` says that the cache is filled. A later process finds the note and compiles at once.

A job that is too short for this runs as it is. So does a model that cannot be sent: one that cannot be pickled, or
whose class is defined in a script. It is a process, not a thread, so that the compiler cannot disturb the capture of
CUDA graphs.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import os
import pickle
import subprocess
import sys
import tempfile
import weakref
from collections import OrderedDict
from pathlib import Path

import torch
from torch import Tensor, nn

from antiadv.core import torch_private
from antiadv.core.defence import base_of
from antiadv.core.files import atomic_write
from antiadv.core.losses import ce
from antiadv.engine.cuda_graphs import LEAST_IMAGES
from antiadv.engine.optimise import compilable

NOTES = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "antiadv" / "compiled"

# From so many queries on, the compiled network pays. On an H200 a gradient of wrn16-4:trades for 224 images takes
# 1.71 ms as it is and 1.35 ms compiled, and reading the cache takes 5 s. So AutoAttack on 512 images, at most 4.1
# million queries, would lose by it.
QUERIES_THAT_PAY = 12_000_000

COMMAND = "from antiadv.engine.background import serve; serve()"


class Background:
    """See the head of this file. It is made for one network: the first request decides."""

    def __init__(self, precision: str, queries: int) -> None:
        self.precision, self.queries = precision, queries
        self._process: subprocess.Popen[bytes] | None = None
        self._decided = False

    def ready(self, model: nn.Module, x: Tensor) -> bool:
        """Whether the compiled network can be had within seconds. x are the images of the next request."""
        if not self._decided:
            self._decided = True
            if self.queries < QUERIES_THAT_PAY or not compilable(base_of(model)):
                return False
            note = note_of(model, x, self.precision)
            if is_filled(note):
                return True
            self._process = start(model, x, self.precision, note)
            if self._process is not None:
                weakref.finalize(self, _end, self._process)  # also at the end of this process
        return self._process is not None and self._process.poll() == 0


def start(model: nn.Module, x: Tensor, precision: str, note: Path) -> subprocess.Popen[bytes] | None:
    """Start the other process; None if the model cannot be sent to it."""
    paths = os.pathsep.join(str(Path(path).absolute()) for path in sys.path)
    with tempfile.TemporaryFile() as file:
        try:
            pickle.dump((_without_hooks(model), x, precision, note), file)
            file.seek(0)
            return subprocess.Popen(
                [sys.executable, "-c", COMMAND],
                stdin=file,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": paths},
            )
        except Exception:  # a network may hold anything, such as a lock or a file
            return None


def serve() -> None:
    """The other process: compile the model that stands in its input, and write the note."""
    fill(*pickle.load(sys.stdin.buffer))


def fill(model: nn.Module, x: Tensor, precision: str, note: Path) -> None:
    """Fill the compiler's cache with what requests on this many images need."""
    from antiadv.engine.fast import Fast  # here, because it imports this file

    engine = Fast(max(LEAST_IMAGES, len(x)), precision, compiled=True)
    labels = engine.scores(model, x).argmax(1)
    engine.gradient(model, x, ce, labels)
    with (
        contextlib.suppress(OSError),
        atomic_write(note) as part,
    ):  # without the note a later process fills the cache again
        part.write_text(torch_private.compiler_cache())


def note_of(model: nn.Module, x: Tensor, precision: str) -> Path:
    """The note of a model's kind: its classes and the shapes of its weights, not their values."""
    classes = [f"{name} {type(m).__module__}.{type(m).__qualname__}" for name, m in model.named_modules()]
    shapes = [f"{name} {tuple(t.shape)} {t.dtype}" for name, t in model.state_dict().items()]
    images = f"{tuple(x.shape[1:])} {x.dtype} {x.device.type} {precision}"
    where = torch.cuda.get_device_name(x.device) if x.is_cuda else "cpu"
    facts = [torch.__version__, str(torch.version.cuda), where, images, *classes, *shapes]
    return NOTES.expanduser() / hashlib.sha256("\n".join(facts).encode()).hexdigest()[:20]


def is_filled(note: Path) -> bool:
    """Whether there is a note, and the folder that it names still exists."""
    try:
        return Path(note.read_text()).is_dir()
    except (OSError, ValueError):
        return False


def _without_hooks(model: nn.Module) -> nn.Module:
    """A copy that can be sent: hooks, such as those that count passes, belong to this process."""
    hooks = [h for m in model.modules() for name, h in vars(m).items() if "_hooks" in name]
    return copy.deepcopy(model, {id(h): OrderedDict() for h in hooks})


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
