"""Recipe: a training loss, and the phases in which it is used.

    z = perturb(net, batch)                the inner maximisation; by default z = x
    ℓ, s = loss(net, x, z, y)              a loss [N] and logits [N, K]
    g = ∇_w mean ℓ                         the gradient of a step; `awp` takes it at perturbed weights
    phases                                 (recipe, share of epochs, data), usually one

A recipe is a frozen dataclass, so it has a text form (`trades:beta=6`). A new recipe needs one file and one line in
`RECIPES`. The loop only calls `phases`, and `gradients` within a phase.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from antiadv.core.errors import BadSpec


@dataclass(frozen=True)
class Batch:
    """The input of one step, with all random numbers, so that a step is a pure function."""

    x: Tensor  # [N, C, H, W] images in [0, 1], augmented
    y: Tensor  # [N] labels
    d: Tensor  # like x, standard normal: random numbers for the inner maximisation
    t: Tensor  # a number in [0, 1): the finished share of the phase


class Loss(NamedTuple):
    value: Tensor  # [N]
    scores: Tensor  # [N, K], on the training images, for the accuracy curve


class Recipe(ABC):
    """Base of all recipes. Only `loss` is required. `limits` are notes for users of its networks."""

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
        """Return the classifier to evaluate and to use."""
        return net


class Wrapper(Recipe):
    """A recipe that uses the loss of another one, `recipe`."""

    recipe: Recipe

    def perturb(self, net: nn.Module, batch: Batch) -> Tensor:
        return self.recipe.perturb(net, batch)

    def loss(self, net: nn.Module, x: Tensor, z: Tensor, y: Tensor) -> Loss:
        return self.recipe.loss(net, x, z, y)

    def require_one_phase(self, name: str) -> None:
        if len(self.recipe.phases()) != 1:
            raise BadSpec(f"{name} needs a recipe of one phase; found one of {len(self.recipe.phases())} phases")


def descent(
    recipe: Recipe, net: nn.Module, weights: Sequence[Tensor], batch: Batch, z: Tensor
) -> tuple[list[Tensor], Loss]:
    """Return g = ∇_w mean ℓ at the current weights, and the loss."""
    loss = recipe.loss(net, batch.x, z, batch.y)
    g = torch.autograd.grad(loss.value.mean(), list(weights), materialize_grads=True)
    return list(g), Loss(loss.value.detach(), loss.scores.detach())


def keep(net: nn.Module, classes: int) -> nn.Module:
    return net


def stay(net: nn.Module) -> nn.Module:
    return net


@dataclass(frozen=True)
class Phase:
    """A part of a training. It ends with the averaged weights, from which the next phase starts."""

    name: str
    recipe: Recipe
    share: float = 1.0  # of the epochs
    rate: float = 1.0  # of the learning rate
    data: str | None = None  # data set, if not that of the training
    enter: Callable[[nn.Module, int], nn.Module] = keep  # changes the network, such as a new last layer …
    leave: Callable[[nn.Module], nn.Module] = stay  # … and returns a plain network

    def epochs(self, asked: int) -> int:
        return max(1, round(self.share * asked))
