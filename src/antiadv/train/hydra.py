"""HYDRA: train, prune by learned scores, fine-tune (Sehwag et al., NeurIPS 2020, arXiv:2002.10509).

    train      the wrapped recipe's loss over the weights w
    prune      w is fixed; scores s are trained; the network runs with w ⊙ M(s)
               M(s) = 0 for the lowest int((1 − k)·numel) of |s| in each layer, else 1
               straight through: ∂L/∂|s| := ∂L/∂M;  start s = √(6/fan_in) · w / max|w|
    fine-tune  M is fixed; w is trained; the network runs with w ⊙ M

Notation:   k → `keep` (0.1 prunes 90 %); `shares` of the epochs and `rates` of the learning rate, for each phase.
Departures: the optimiser and its schedule are those of the loop, so the authors' 100/20/100 epochs at rates 1/1/0.1
            become shares and rates. The loss is any recipe of one phase (the authors use TRADES). As in their code,
            biases and batch norm are never pruned, and are trained in every phase.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from antiadv.core.errors import BadInput, BadSpec
from antiadv.models.checkpoints import mask
from antiadv.train.recipe import Phase, Recipe, Wrapper
from antiadv.train.trades import TRADES


@dataclass(frozen=True)
class Hydra(Wrapper):
    recipe: Recipe = TRADES()
    keep: float = 0.1
    shares: tuple[float, ...] = (0.55, 0.1, 0.35)
    rates: tuple[float, ...] = (1.0, 1.0, 0.5)

    limits: ClassVar[tuple[str, ...]] = (
        *Recipe.limits,
        "Its zeros save no time: it runs as a dense network.",
    )

    def __post_init__(self) -> None:
        if not 0 < self.keep <= 1:
            raise BadSpec(f"hydra needs 0 < keep <= 1, the share of weights to keep; found {self.keep}")
        if len(self.shares) != 3 or len(self.rates) != 3 or min(*self.shares, *self.rates) <= 0:
            raise BadSpec(f"hydra needs three shares and three rates above 0; found {self.shares} and {self.rates}")
        self.require_one_phase("hydra")

    def phases(self) -> tuple[Phase, ...]:
        return (
            Phase("train", self.recipe, self.shares[0], self.rates[0]),
            Phase(
                "prune", self.recipe, self.shares[1], self.rates[1], enter=partial(_scored, keep=self.keep), leave=plain
            ),
            Phase("fine-tune", self.recipe, self.shares[2], self.rates[2], enter=_masked, leave=plain),
        )


class Scored(nn.Module):
    """A network that runs with w ⊙ M(s) and trains s; w gets no gradient."""

    def __init__(self, net: nn.Module, keep: float) -> None:
        super().__init__()
        self.net, self.keep = net, keep
        self.names = prunable(net)
        weights = [net.get_parameter(name).requires_grad_(False) for name in self.names]
        self.scores = nn.ParameterList([nn.Parameter(first_scores(w)) for w in weights])

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = functional_call(self.net, self.effective(), (x,))
        return s

    def effective(self) -> dict[str, Tensor]:
        weights = {}
        for name, score in zip(self.names, self.scores, strict=True):
            a = score.abs()
            straight = mask(a, self.keep) + (a - a.detach())  # value exactly M, gradient of |s|
            weights[name] = self.net.get_parameter(name) * straight
        return weights


class Masked(nn.Module):
    """A network that runs with w ⊙ M and trains w; M is 1 where the initial weights are not 0."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.names = prunable(net)
        for i, name in enumerate(self.names):
            self.register_buffer(f"mask_{i}", net.get_parameter(name).detach() != 0)

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = functional_call(self.net, self.effective(), (x,))
        return s

    def effective(self) -> dict[str, Tensor]:
        return {name: self.net.get_parameter(name) * self.get_buffer(f"mask_{i}") for i, name in enumerate(self.names)}


@torch.no_grad()
def first_scores(w: Tensor) -> Tensor:
    """√(6/fan_in) · w / max|w|: ordered by magnitude, at the scale of an untrained layer."""
    fan_in = w[0].numel()
    return math.sqrt(6 / fan_in) * w / w.abs().max().clamp(min=1e-12)


def prunable(net: nn.Module) -> list[str]:
    """Return the names of the pruned weights: all convolutions and linear layers, also the first and last."""
    names = [f"{name}.weight" for name, m in net.named_modules() if isinstance(m, nn.Conv2d | nn.Linear) and name]
    if not names:
        raise BadInput("hydra prunes convolutions and linear layers, but the network has none; use another network")
    return names


@torch.no_grad()
def plain(wrapped: nn.Module) -> nn.Module:
    """Return the inner network with the mask multiplied into its weights, all parameters trainable."""
    assert isinstance(wrapped, Scored | Masked)
    for name, value in wrapped.effective().items():
        wrapped.net.get_parameter(name).copy_(value)
    return wrapped.net.requires_grad_(True)


def _scored(net: nn.Module, classes: int, keep: float) -> nn.Module:
    return Scored(net, keep)


def _masked(net: nn.Module, classes: int) -> nn.Module:
    return Masked(net)
