"""The engine: how a request becomes passes. The oracle and the judge use one; attacks do not see it.

Samples are independent, so a request may be cut anywhere. The faster engine is in `engine/fast.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from antiadv.core.draws import Draws
from antiadv.core.losses import Loss
from antiadv.core.strides import guarded
from antiadv.core.validation import check_shape, check_slope, require_gradient


class Engine(Protocol):
    """Scores, gradients ∂ Σ loss(s, y, …) / ∂z or Jacobians ∂ s / ∂z `[N, K, …]` of any number of images.

    `draws`, one key per image, are the random numbers of a randomised model.
    """

    def scores(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> Tensor: ...

    def gradient(
        self, model: nn.Module, z: Tensor, loss: Loss, *targets: Tensor, draws: Draws | None = None
    ) -> tuple[Tensor, Tensor]: ...

    def jacobian(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> tuple[Tensor, Tensor]: ...

    def judge(self, model: nn.Module) -> Engine:
        """The engine that the judge uses for this model: plain float32. This engine itself, if it is one."""
        ...


@dataclass(frozen=True)
class Eager:
    """Micro-batches of at most `batch` images through the module as it is."""

    batch: int = 256

    def scores(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> Tensor:
        with torch.no_grad():
            return _join([answer(model, part, d) for part, d in self._parts(z, draws)])

    def gradient(
        self, model: nn.Module, z: Tensor, loss: Loss, *targets: Tensor, draws: Draws | None = None
    ) -> tuple[Tensor, Tensor]:
        cuts = zip(*(t.split(self.batch) for t in (z, *targets)), strict=True)
        parts = zip(self._parts(z, draws), cuts, strict=True)
        pairs = [scores_and_gradient(model, part, d, loss, *cut) for (part, d), (_, *cut) in parts]
        return _join([s for s, _ in pairs]), _join([g for _, g in pairs])

    def jacobian(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> tuple[Tensor, Tensor]:
        pairs = [scores_and_jacobian(model, part, d) for part, d in self._parts(z, draws)]
        return _join([s for s, _ in pairs]), _join([j for _, j in pairs])

    def judge(self, model: nn.Module) -> Eager:
        return self

    def _parts(self, z: Tensor, draws: Draws | None) -> list[tuple[Tensor, Draws | None]]:
        parts = z.detach().split(self.batch)
        if draws is None:
            return [(part, None) for part in parts]
        return [(part, Draws(keys)) for part, keys in zip(parts, draws.keys.split(self.batch), strict=True)]


def answer(model: nn.Module, z: Tensor, draws: Draws | None) -> Tensor:
    """One forward pass of one micro-batch."""
    with guarded(model, z.device):
        s: Tensor = model(z) if draws is None else model(z, draws)
    check_shape(s, z)
    return s


def scores_and_gradient(
    model: nn.Module, z: Tensor, draws: Draws | None, loss: Loss, *targets: Tensor
) -> tuple[Tensor, Tensor]:
    """One forward and one backward pass."""
    with torch.inference_mode(False), torch.enable_grad():
        z = z.clone().requires_grad_()
        s = answer(model, z, draws)
        check_slope(s)
        total = loss(s, *targets).sum()  # samples are independent, so each one gets its own gradient
        (g,) = torch.autograd.grad(total, z, allow_unused=True)
    return s.detach(), require_gradient(g)


def scores_and_jacobian(model: nn.Module, z: Tensor, draws: Draws | None) -> tuple[Tensor, Tensor]:
    """One forward pass, and one backward pass per class."""
    with torch.inference_mode(False), torch.enable_grad():
        z = z.clone().requires_grad_()
        s = answer(model, z, draws)
        check_slope(s)
        each = s.sum(0).unbind()  # samples are independent, so ∂ Σ_n s_nk / ∂z_n is sample n's own gradient
        rows = [torch.autograd.grad(e, z, retain_graph=e is not each[-1], allow_unused=True)[0] for e in each]
    return s.detach(), torch.stack([require_gradient(row) for row in rows], 1)


def _join(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
