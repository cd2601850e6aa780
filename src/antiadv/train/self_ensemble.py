"""RSE, random self-ensemble: noise layers in training and prediction (Liu et al., ECCV 2018, arXiv:1712.00673).

    minimise   mean CE(f_n(x), y)             one noisy pass per step; the network adds the noise n (models/noise.py)
    predict    log (1/m) Σ softmax f_n(x)     over m noisy passes, batch norm in eval mode

Notation:   m → `passes`. σ is set by the architecture: `preact18:noise=0.1,first_noise=0.2` as published.
Cost:       as standard training; m passes for a prediction.
Departures: none known. The authors' code adds noise in training only; their paper and we add it always.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from antiadv.core.errors import BadInput, BadSpec
from antiadv.models.noise import noise_layers
from antiadv.train.inner import cross_entropy
from antiadv.train.recipe import Loss, Phase, Recipe


@dataclass(frozen=True)
class SelfEnsemble(Recipe):
    passes: int = 10

    limits: ClassVar[tuple[str, ...]] = (
        "Its predictions are random: an attack that does not average over the noise, as `eot` does, is weak.",
        "It is loaded without noise; the accuracies are those with the `self_ensemble` defence.",
    )

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise BadSpec(f"self_ensemble needs at least one pass; found {self.passes}")

    def loss(self, net: nn.Module, x: Tensor, z: Tensor, y: Tensor) -> Loss:
        s = net(x)
        return Loss(cross_entropy(s, y), s)

    def phases(self) -> tuple[Phase, ...]:
        return (Phase("train", self, enter=require_noise),)

    def classifier(self, net: nn.Module) -> nn.Module:
        return Averaged(net, self.passes)


class Averaged(nn.Module):
    """The classifier of a noisy network: its logits are the logarithm of the mean probability."""

    def __init__(self, net: nn.Module, passes: int) -> None:
        super().__init__()
        self.net, self.passes = net, passes

    def forward(self, x: Tensor) -> Tensor:
        return average_predictions(self.net, x, self.passes)


def average_predictions(net: nn.Module, x: Tensor, passes: int) -> Tensor:
    """log (1/m) Σ softmax f_n(x), [N, K]: logits whose softmax is the average probability."""
    log_p = torch.stack([net(x).float().log_softmax(1) for _ in range(passes)])
    return log_p.logsumexp(0) - math.log(passes)


def require_noise(net: nn.Module, classes: int) -> nn.Module:
    if not noise_layers(net):
        raise BadInput(
            "self_ensemble needs a network with noise layers, but this one has none; "
            "use for example preact18:noise=0.1,first_noise=0.2"
        )
    return net
