"""AWP: train with adversarial weight perturbations (Wu et al., NeurIPS 2020, arXiv:2004.05884); wraps any recipe.

    z          from the wrapped recipe
    v          = ‖w‖ · g / ‖g‖,  g = ∇_w mean ℓ(w; x, z), for every tensor of more than one dimension
    step       along ∇ mean ℓ at w + γ v; the weights are restored to w before the optimiser step

Notation:   γ → `gamma`; `warmup` is the share of the phase during which γ is 0.
Cost:       one forward and backward pass of the loss more than the wrapped recipe.
Departures: the weights are restored exactly, from a copy; the authors subtract γ v. The pass for v does not change the
            batch statistics (the authors use a proxy network). In the warm-up v is computed and multiplied by 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from antiadv.core.errors import BadSpec
from antiadv.train.recipe import Batch, Loss, Phase, Recipe, Wrapper, descent
from antiadv.train.trades import TRADES


@dataclass(frozen=True)
class AWP(Wrapper):
    recipe: Recipe = TRADES()
    gamma: float = 0.005
    warmup: float = 0.1

    def __post_init__(self) -> None:
        if not (self.gamma >= 0 and 0 <= self.warmup < 1):
            raise BadSpec(f"awp needs gamma >= 0 and 0 <= warmup < 1; found gamma {self.gamma}, warmup {self.warmup}")

    def gradients(self, net: nn.Module, weights: Sequence[Tensor], batch: Batch) -> tuple[list[Tensor], Loss]:
        z = self.perturb(net, batch)
        tensors = [w for w in weights if w.dim() > 1]
        with unchanged(list(net.buffers())):
            g, _ = descent(self.recipe, net, tensors, batch, z)
        gamma = self.gamma * (batch.t >= self.warmup)
        with unchanged(tensors):
            move(tensors, g, gamma)
            return descent(self.recipe, net, weights, batch, z)

    def phases(self) -> tuple[Phase, ...]:
        return tuple(replace(p, recipe=replace(self, recipe=p.recipe)) for p in self.recipe.phases())

    def classifier(self, net: nn.Module) -> nn.Module:
        return self.recipe.classifier(net)


@torch.no_grad()
def move(tensors: Sequence[Tensor], g: Sequence[Tensor], gamma: Tensor | float) -> None:
    """w ← w + γ v in place: move each tensor by γ‖w‖ along its gradient."""
    for w, gradient in zip(tensors, g, strict=True):
        w.add_(gradient * (gamma * w.norm() / (gradient.norm() + 1e-20)))


@contextmanager
def unchanged(tensors: list[Tensor]) -> Iterator[None]:
    """Restore the tensors exactly at the end."""
    before = [t.detach().clone() for t in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for t, value in zip(tensors, before, strict=True):
                t.copy_(value)
