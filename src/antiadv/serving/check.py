"""The check of an exported file: its answers against those of the network in PyTorch.

    compare(backend, model, images)  →  Check; raises BadInput if the file gives other answers

Engines round differently. Where a gradient is nearly zero its sign may differ, and then the layer takes another step at
that pixel. So equal bits are not asked for. Asked are: finite scores of the right shape, the same labels except at near
ties, and few samples whose scores differ by more than `FAR`. How many is few depends on the network: at most `FEW` of
all, or `TIMES` as many as differ in PyTorch itself if each pixel moves by `NUDGES` steps of float32, as rounding does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from antiadv.core.defence import base_of
from antiadv.core.errors import BadInput
from antiadv.serving.backend import Backend

FAR = 1e-3  # difference of scores
TIE = 1e-2  # a margin below this share of the largest minus the smallest score is a near tie
FEW = 0.01  # share of samples that may be far
TIMES, NUDGES = 2, 4
LARGEST_BATCH = 64


@dataclass(frozen=True)
class Check:
    """`far` samples differ by more than `FAR`; `batches` are the sizes of the requests.

    `rounding` says how many differ in PyTorch itself by rounding alone. It is counted if `far` is more than few, and
    then it is the reason that the file was kept.
    """

    images: int
    same_labels: int
    largest_difference: float
    far: int
    batches: tuple[int, ...]
    rounding: int | None = None

    def __str__(self) -> str:
        differ = "sample differs" if self.far == 1 else "samples differ"
        return (
            f"{self.same_labels} of {self.images} labels are equal, the largest difference of a score is "
            f"{self.largest_difference:.1e}, and {self.far} {differ} by more than {FAR:g}"
            + ("" if self.rounding is None else f" (in PyTorch itself {self.rounding} by rounding alone)")
        )

    def json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def compare(backend: Backend, model: nn.Module, images: Tensor) -> Check:
    """Ask both about these images: the first alone, then in batches."""
    parts = _split(len(images))
    asked = list(images.split(parts))
    with torch.no_grad():
        want = torch.cat([model(part).float() for part in asked])
        bare = torch.cat([base_of(model)(part.clone()).float() for part in asked])
    answers = [backend.run(np.ascontiguousarray(part.numpy())) for part in asked]
    found = _joined([answer.scores for answer in answers], want, "scores")
    check = _compared(found, want, tuple(sorted(set(parts))), partial(rounding, model, asked, want))
    base = [answer.base_scores for answer in answers if answer.base_scores is not None]
    if base:
        off = (_joined(base, bare, "base_scores") - bare).abs().max().item()
        if off > FAR:
            raise BadInput(
                f"the exported file must give the scores of the bare network too; they differ by up to {off:.2g}. "
                "Nothing was kept."
            )
    return check


def rounding(model: nn.Module, asked: list[Tensor], want: Tensor) -> int:
    """How many samples differ by more than `FAR` in PyTorch itself if the images change by rounding alone."""
    with torch.no_grad():
        return _far(torch.cat([model(_nudged(part)).float() for part in asked]), want)


def _nudged(x: Tensor) -> Tensor:
    for _ in range(NUDGES):
        x = torch.nextafter(x, torch.full_like(x, 0.5))
    return x


def _far(found: Tensor, want: Tensor) -> int:
    return int(((found - want).abs().amax(1) > FAR).sum())


def _split(n: int) -> list[int]:
    """1, then 1, 2, 4 … up to the largest batch."""
    parts, size, left = [1], 1, n - 1
    while left > 0:
        parts.append(min(size, left))
        left -= parts[-1]
        size = min(2 * size, LARGEST_BATCH)
    return parts


def _joined(parts: list[Any], want: Tensor, name: str) -> Tensor:
    plain = all(type(part) is np.ndarray and part.dtype == np.float32 and part.ndim == 2 for part in parts)
    found = torch.from_numpy(np.concatenate(parts)) if plain else None
    if found is None or found.shape != want.shape or not torch.isfinite(found).all():
        what = "NaN or infinity" if found is not None and found.shape == want.shape else "another shape or type"
        raise BadInput(
            f"the exported file must give finite {name} of shape {tuple(want.shape)}; found {what}. Nothing was kept."
        )
    return found


def _compared(found: Tensor, want: Tensor, batches: tuple[int, ...], own: Callable[[], int]) -> Check:
    """`own` gives the number of samples that differ by rounding alone. It is only asked if there are many."""
    same = found.argmax(1) == want.argmax(1)
    top = want.topk(2, 1).values
    clear = (top[:, 0] - top[:, 1]) > TIE * (want.amax(1) - want.amin(1))
    far = _far(found, want)
    few = far <= max(1, FEW * len(want))
    by_rounding = None if few else own()
    largest = (found - want).abs().max().item()
    check = Check(len(want), int(same.sum()), largest, far, batches, by_rounding)
    if (clear & ~same).any() or (by_rounding is not None and far > TIMES * by_rounding):
        raise BadInput(
            f"the exported file must answer as the network does, but {check}. Nothing was kept; use another format, "
            "or report this network."
        )
    return check
