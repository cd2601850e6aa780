"""Corollary 1: how many steps of STP along coordinates are enough to reach a small gradient.

    L is L-smooth and bounded by L*;  q uniform on e₁ … e_n;  0 < ε < ρ/(nL)
    B > K = (L* − L(x⁰)) / ((ρ/n − Lε/2) ε)     ⟹     min_{k=1…B} E|∇L(xᵏ)|₁ < ρ                    (1)

Why: smoothness gives L(xᵏ⁺¹) ≥ L(xᵏ) + ε|∂_q L| − Lε²/2. While the gradient is not below ρ, each step therefore raises
the expected loss by at least (ρ/n − Lε/2) ε. That can happen at most K times. The proof needs only ε < 2ρ/(nL), which
`beyond=True` allows. K steps are enough, but not needed: the paper calls K the minimum budget, but no bound from below
is proved.

Notation:   L → `smoothness`, n → `dimension`, ρ → `target` (of the 1-norm), ε → `step`, ρ/(nL) → `limit`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from antiadv.core.errors import BadInput


@dataclass(frozen=True)
class BlackBox:
    """An attack that sees scores. `beyond=True` allows steps beyond the assumptions of the paper.

    >>> box = BlackBox(dimension=4, smoothness=0.125, target=0.5, step=0.5)
    >>> box.limit
    1.0
    """

    dimension: int
    smoothness: float
    target: float
    step: float
    beyond: bool = False

    def __post_init__(self) -> None:
        if not (isinstance(self.dimension, int) and self.dimension >= 1):
            raise BadInput(
                f"the dimension must be a whole number of at least 1; found {self.dimension!r}. Give the number of "
                "inputs."
            )
        positive(smoothness=self.smoothness, target=self.target)
        if not 0 < self.step < self.limit * (2 if self.beyond else 1):
            raise BadInput(
                f"beyond the paper's range the bound needs a step in (0, 2ρ/(nL)) = (0, {2 * self.limit:g}); "
                f"found {self.step!r}. Use a shorter step."
                if self.beyond
                else f"Corollary 1 assumes a step in (0, ρ/(nL)) = (0, {self.limit:g}); found {self.step!r}. "
                "Use a shorter step, or set beyond=True for up to twice that."
            )

    @property
    def limit(self) -> float:
        return self.target / (self.dimension * self.smoothness)


def enough(gap: float, box: BlackBox) -> float:
    """K of (1), for a loss that can rise by `gap` = L* − L(x⁰).

    >>> enough(2.0, BlackBox(dimension=4, smoothness=0.125, target=0.5, step=0.5))
    42.666666666666664
    """
    at_least_zero(gap)
    return gap / ((box.target / box.dimension - box.smoothness * box.step / 2) * box.step)


def positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise BadInput(f"{name} must be positive and finite; found {value!r}. Give a number above zero.")


def at_least_zero(gap: float) -> None:
    if not 0 <= gap < math.inf:
        raise BadInput(
            f"the gap L* − L(x⁰) must be at least zero; found {gap!r}. L* must be an upper bound of the loss."
        )
