"""PyTorch behind the server: a classifier, bare or defended, as it is, or from CUDA graphs on a GPU.

    TorchBackend(model, shape, device)       kind `eager` on a CPU, `graph` on a GPU (`antiadv.Replayed`)
"""

from __future__ import annotations

import copy
import numpy as np
import torch
from torch import Tensor, nn

from antiadv.core.errors import BadInput
from antiadv.core.validation import check_base, fitting
from antiadv.engine.fast import Replayed
from antiadv.serving.backend import Answer, Images


class TorchBackend:
    """See the head of this file. It keeps a copy of the network, with frozen weights: no request needs their gradients.

    With `captured` the passes are replayed from CUDA graphs, at most `batch` rows at once.
    """

    def __init__(
        self, model: nn.Module, shape: tuple[int, ...], device: torch.device, captured: bool, batch: int = 32
    ) -> None:
        check_base(model)
        if captured and device.type != "cuda":
            raise BadInput(f"captured graphs need a CUDA device; found {device.type}. Use the backend eager there.")
        own = copy.deepcopy(model).to(device).requires_grad_(False)
        self._run: nn.Module = Replayed(own, batch) if captured else own
        self._shape, self._device, self._captured = shape, device, captured
        probe = torch.full((1, *shape), 0.5, device=device)
        with torch.no_grad(), fitting(own, probe):
            scores = own(probe)
        if scores.ndim != 2 or len(scores) != 1:
            raise BadInput(f"a classifier must answer [N, K] scores; found {list(scores.shape)} for one image.")
        self._classes = int(scores.shape[1])

    @property
    def kind(self) -> str:
        return "graph" if self._captured else "eager"

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def classes(self) -> int:
        return self._classes

    def run(self, images: Images) -> Answer:
        x = torch.from_numpy(np.array(images, np.float32)).to(self._device)  # a copy: requests are read-only bytes
        with torch.no_grad():
            return Answer(_array(self._run(x)))


def _array(t: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    found: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = t.detach().float().cpu().numpy()
    return found
