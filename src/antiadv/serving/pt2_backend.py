"""PyTorch's own exported files as backends: `.pt2` programs and ahead-of-time compiled packages.

    Pt2Backend(path, shape, classes, threads=None)      an exported program, run by PyTorch
    AotiBackend(path, shape, classes, threads=None)     native code, compiled by AOTInductor

Both run code of the maker of the file. `torch.export.load` unpickles tensors without `weights_only`, and evaluates
expressions (torch/export/pt2_archive/_package.py, torch 2.13); its documentation says never to load untrusted files. An
AOTInductor package is a shared library. So a bundle opens either only if the person says that they trust it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from antiadv.core import torch_private
from antiadv.core.errors import BadInput, first_line
from antiadv.serving.backend import Answer, Images


class Pt2Backend:
    """Runs a program on the CPU. `threads` is a setting of the whole process in PyTorch."""

    kind = "pt2"

    def __init__(self, path: Path, shape: tuple[int, ...], classes: int, threads: int | None = None) -> None:
        self.shape, self.classes, self.threads = shape, classes, threads
        try:
            self._program = self._load(path)
        except Exception as error:  # a damaged file may raise anything
            raise BadInput(f"{path} cannot be loaded by PyTorch: {first_line(error)}. Export it again.") from error

    def _load(self, path: Path) -> Callable[[Tensor], Sequence[Tensor]]:
        return torch.export.load(path).module()

    def run(self, images: Images) -> Answer:
        if len(images) == 0:
            return Answer(np.zeros((0, self.classes), np.float32))
        if self.threads is not None and torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        with torch.no_grad():
            found = [s.numpy() for s in self._program(torch.from_numpy(np.array(images)))]
        return Answer(found[0], found[1] if len(found) > 1 else None)


class AotiBackend(Pt2Backend):
    """Runs a compiled package."""

    kind = "aoti"

    def _load(self, path: Path) -> Callable[[Tensor], Sequence[Tensor]]:
        return torch_private.load_compiled(str(path))
