"""PyTorch behind the server: a classifier, bare or defended, as it is, or from CUDA graphs on a GPU.

    TorchBackend(model, shape, device, captured=False)     kind `eager`
    TorchBackend(model, shape, device, captured=True)      kind `graph`: `antiadv.Replayed`, on CUDA

The scores of the bare network come with the answer where the defence computes them anyway: a gated layer asks the bare
network first (`stages`), and the layer without a gate needs its label (`branch_free`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from antiadv.core.errors import AntiadvError, BadInput, reason
from antiadv.core.validation import check_base
from antiadv.engine.cuda_graphs import static_size
from antiadv.engine.fast import Replayed
from antiadv.serving.backend import Answer, Images, check_no_memory, copied

Scores = tuple[Tensor, Tensor | None]  # of the classifier, and of the bare network if they are known


class TorchBackend:
    """See the head of this file. It keeps a copy of the network with frozen weights: requests need no gradient of them.

    `batch` is the largest number of rows in one graph.
    """

    def __init__(
        self, model: nn.Module, shape: tuple[int, ...], device: torch.device, captured: bool = False, batch: int = 32
    ) -> None:
        check_base(model)
        if captured and device.type != "cuda":
            raise BadInput(f"captured graphs need a CUDA device; found {device.type}. Use the backend eager there.")
        check_no_memory(model)
        own = copied(model).to(device).requires_grad_(False)
        self._scores = _scores_of(own, captured, batch)
        self._shape, self._device, self._captured = shape, device, captured
        self._classes = _classes(own, torch.full((1, *shape), 0.5, device=device))

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
        x = torch.from_numpy(np.array(images, np.float32)).to(self._device)  # a copy: bytes of requests are read-only
        with torch.no_grad():
            scores, base = self._scores(x)
        return Answer(_array(scores), None if base is None else _array(base))


def _classes(model: nn.Module, image: Tensor) -> int:
    """How many scores the classifier gives to one image."""
    try:
        with torch.no_grad():
            scores = model(image)
    except Exception as error:  # whatever other code raises
        own = error.__cause__ or error  # of the network, where `fitting` explained it
        if isinstance(own, AntiadvError):
            raise
        shape = ",".join(map(str, image.shape[1:]))
        raise BadInput(
            f"the classifier fails on an image of shape {shape}: {reason(own)}. "
            "If its images have another shape, give that as --shape."
        ) from error
    if not isinstance(scores, Tensor) or scores.ndim != 2 or len(scores) != 1:
        raise BadInput("a classifier must answer one row of scores for one image; found something else.")
    return int(scores.shape[1])


def _scores_of(model: nn.Module, captured: bool, batch: int) -> Callable[[Tensor], Scores]:
    """How this classifier is asked."""

    def part(module: nn.Module) -> nn.Module:
        return Replayed(module, batch) if captured else module

    split, both = getattr(model, "stages", None), getattr(model, "branch_free", None)
    if split is not None and (stages := split()) is not None:
        return _in_stages(part(stages.first), stages.goes_on, part(stages.second), batch)
    if both is not None and not captured:
        return lambda x: both(x)
    whole = part(model)
    return lambda x: (whole(x), None)


def _in_stages(
    first: nn.Module, goes_on: Callable[[Tensor], Tensor], second: nn.Module, batch: int
) -> Callable[[Tensor], Scores]:
    """All rows through the bare network, and those that go on through the layer, in few sizes as in the batcher."""

    def ask(x: Tensor) -> Scores:
        base: Tensor = first(x)
        rows = goes_on(base).nonzero().flatten()
        if len(rows) == 0:
            return base, base
        size = static_size(len(rows), max(batch, len(x)), 1)
        some = second(x[rows[torch.arange(size, device=x.device) % len(rows)]])  # the first of them again, to fill up
        return base.index_copy(0, rows, some[: len(rows)]), base

    return ask


def _array(t: Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = t.detach().float().cpu().numpy()
    return found
