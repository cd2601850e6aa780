"""What a recipe is: a loss to step along, and the phases in which it is used.

    z = perturb(net, batch)                the inner maximisation; the images themselves where there is none
    ℓ, s = loss(net, x, z, y)              one loss [N] and one row of scores [N, K] per sample
    g = ∇_w mean ℓ                         what the loop descends along; `awp` takes it elsewhere than at w
    phases                                 (what, how long, on which data), one after the other; as a rule there is one

A recipe is a frozen dataclass, so it has a text form (`trades:beta=6`) and adding one touches one file and one line of
`RECIPES`. The loop knows none of them: it asks for `phases`, and within a phase for `gradients`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

Net = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Batch:
    """What one step is made of. All of it is drawn beforehand, so a step is a pure function and can be captured."""

    x: Tensor  # [N, C, H, W] images in [0, 1], augmented
    y: Tensor  # [N] labels
    d: Tensor  # like x, standard normal: the dice of the inner maximisation
    t: Tensor  # a number in [0, 1): how much of the phase has passed


class Loss(NamedTuple):
    value: Tensor  # [N]
    scores: Tensor  # [N, K], of the images that are trained on: what the accuracy curve is made of


class Recipe(ABC):
    """Base of all recipes. Only `loss` must be written. `limits` are what whoever uses its networks must know."""

    limits: ClassVar[tuple[str, ...]] = (
        "It was trained against one radius of one norm; others were not tested.",
        "Robust accuracies are upper bounds, not certificates: a stronger attack can lower them.",
    )

    def perturb(self, net: nn.Module, batch: Batch) -> Tensor:
        return batch.x

    @abstractmethod
    def loss(self, net: nn.Module, x: Tensor, z: Tensor, y: Tensor) -> Loss: ...

    def gradients(self, net: nn.Module, weights: Sequence[Tensor], batch: Batch) -> tuple[list[Tensor], Loss]:
        return descent(self, net, weights, batch, self.perturb(net, batch))

    def phases(self) -> tuple[Phase, ...]:
        return (Phase("train", self),)

    def classifier(self, net: nn.Module) -> nn.Module:
        """What is evaluated, and what a user should classify with."""
        return net


def descent(
    recipe: Recipe, net: nn.Module, weights: Sequence[Tensor], batch: Batch, z: Tensor
) -> tuple[list[Tensor], Loss]:
    """g = ∇_w mean ℓ at the weights as they are now."""
    loss = recipe.loss(net, batch.x, z, batch.y)
    g = torch.autograd.grad(loss.value.mean(), list(weights), materialize_grads=True)
    return list(g), Loss(loss.value.detach(), loss.scores.detach())


def keep(net: nn.Module, classes: int) -> nn.Module:
    return net


def stay(net: nn.Module) -> nn.Module:
    return net


@dataclass(frozen=True)
class Phase:
    """A stretch of training. A phase ends with the averaged weights, and the next one starts from them."""

    name: str
    recipe: Recipe
    share: float = 1.0  # of the epochs asked for
    rate: float = 1.0  # of the learning rate asked for
    data: str | None = None  # another data set than the one asked for
    enter: Callable[[nn.Module, int], nn.Module] = keep  # a new head, scores beside the weights …
    leave: Callable[[nn.Module], nn.Module] = stay  # … and back to a plain network

    def epochs(self, asked: int) -> int:
        return max(1, round(self.share * asked))
