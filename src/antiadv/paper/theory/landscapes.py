"""Losses for which everything is known: L(x) = Σ_i ℓ(x_i), the sum of one curve over the coordinates.

    Sigmoids   ℓ(t) = 1 / (1 + e⁻ᵗ)                        |ℓ''| ≤ 1/(6√3), ℓ < 1: rises everywhere
    Hill       ℓ(t) = −½ l t²                              |ℓ''| = l,       ℓ ≤ 0: its top is at 0
    Valley     ℓ(t) = ½ l t²                 |t| ≤ r
                    = l r² − ½ l (2r − |t|)²       ≤ 2r
                    = l r²                   beyond        |ℓ''| ≤ l,       ℓ ≤ l r²: its floor is at 0

Such a loss is as smooth as its curve, and bounded if the curve is. A step along a coordinate depends on that coordinate
only, so it only matters how often each coordinate was picked, not in which order.

Notation:   l → `smoothness`, r → `radius`, sup ℓ → `top`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


class Landscape(ABC):
    """A curve ℓ, and the loss L, its sum over the last dimension of x."""

    smoothness: float

    @property
    @abstractmethod
    def top(self) -> float:
        """sup ℓ."""

    @abstractmethod
    def height(self, t: Tensor) -> Tensor:
        """ℓ, value by value."""

    @abstractmethod
    def slope(self, t: Tensor) -> Tensor:
        """ℓ', value by value."""

    def loss(self, x: Tensor) -> Tensor:
        """L(x), `[…]` for x `[…, n]`."""
        return self.height(x).sum(-1)

    def gap(self, x: Tensor) -> float:
        """L* − L(x): how much the loss can still rise from one point `[n]`."""
        return self.top * len(x) - float(self.loss(x))


@dataclass(frozen=True)
class Sigmoids(Landscape):
    smoothness: float = 1 / (6 * math.sqrt(3))

    @property
    def top(self) -> float:
        return 1.0

    def height(self, t: Tensor) -> Tensor:
        return t.sigmoid()

    def slope(self, t: Tensor) -> Tensor:
        return t.sigmoid() * (-t).sigmoid()  # σ(−t) is 1 − σ(t) without the cancellation


@dataclass(frozen=True)
class Hill(Landscape):
    smoothness: float = 1.0

    @property
    def top(self) -> float:
        return 0.0

    def height(self, t: Tensor) -> Tensor:
        return -self.smoothness / 2 * t.square()

    def slope(self, t: Tensor) -> Tensor:
        return -self.smoothness * t


@dataclass(frozen=True)
class Valley(Landscape):
    smoothness: float = 1.0
    radius: float = 1.0

    @property
    def top(self) -> float:
        return self.smoothness * self.radius**2

    def height(self, t: Tensor) -> Tensor:
        left = (2 * self.radius - t.abs()).clamp_min(0)
        rim = self.top - self.smoothness / 2 * left.square()
        return torch.where(t.abs() <= self.radius, self.smoothness / 2 * t.square(), rim)

    def slope(self, t: Tensor) -> Tensor:
        left = (2 * self.radius - t.abs()).clamp_min(0)
        return self.smoothness * t.sign() * torch.minimum(t.abs(), left)
