"""Standard training: cross-entropy on clean images.

    minimise   mean CE(f(x), y)
Cost:       one forward and backward pass per step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from antiadv.train.inner import cross_entropy
from antiadv.train.recipe import Loss, Recipe


@dataclass(frozen=True)
class Standard(Recipe):
    limits: ClassVar[tuple[str, ...]] = ("It was trained without adversarial images.",)

    def loss(self, net: nn.Module, x: Tensor, z: Tensor, y: Tensor) -> Loss:
        s = net(x)
        return Loss(cross_entropy(s, y), s)
