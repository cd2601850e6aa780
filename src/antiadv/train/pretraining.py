"""Adversarial pre-training on other data, a new head, adversarial fine-tuning (Hendrycks et al., ICML 2019).

    pre-train  the wrapped recipe on the data set `source`, with a last layer for its classes
    fine-tune  a new last layer for the target classes; all layers are trained, with a lower learning rate

Notation:   `share` of the epochs for pre-training; `rate` of the learning rate for fine-tuning.
Departures: the authors (arXiv:1901.09960) pre-train on 32 x 32 ImageNet-1k for 100 epochs and fine-tune for 5 epochs
            at a hundredth of the rate. Here the source is another CIFAR, so fine-tuning needs more: the defaults are
            0.65 and 0.25. The ball is around the clean image (in their code around the noisy one).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from antiadv.core.errors import BadInput, BadSpec
from antiadv.train.pgd import PGD
from antiadv.train.recipe import Phase, Recipe, Wrapper


@dataclass(frozen=True)
class Pretraining(Wrapper):
    source: str = "cifar100"
    recipe: Recipe = PGD()
    share: float = 0.65
    rate: float = 0.25

    limits: ClassVar[tuple[str, ...]] = (
        *Recipe.limits,
        "It was pre-trained on another small data set; the network of the paper on ImageNet.",
    )

    def __post_init__(self) -> None:
        if not (0 < self.share < 1 and self.rate > 0):
            raise BadSpec(f"pretraining needs 0 < share < 1 and rate > 0; found share {self.share}, rate {self.rate}")
        self.require_one_phase("pretraining")

    def phases(self) -> tuple[Phase, ...]:
        return (
            Phase("pre-train", self.recipe, self.share, data=self.source, enter=new_head),
            Phase("fine-tune", self.recipe, 1 - self.share, self.rate, enter=new_head),
        )


def new_head(net: nn.Module, classes: int) -> nn.Module:
    """Replace the last linear layer by an untrained one with that many classes."""
    layers = [(name, m) for name, m in net.named_modules() if isinstance(m, nn.Linear) and name]
    if not layers:
        raise BadInput("pretraining replaces the last linear layer, but the network has none; use another network")
    name, old = layers[-1]
    head = torch.nn.utils.skip_init(nn.Linear, old.in_features, classes)  # does not use the global generator
    bound = 1 / math.sqrt(old.in_features)
    with torch.no_grad():
        head.weight.uniform_(-bound, bound, generator=torch.Generator().manual_seed(classes))
        head.bias.zero_()
    net.set_submodule(name, head.to(old.weight.device))
    return net
