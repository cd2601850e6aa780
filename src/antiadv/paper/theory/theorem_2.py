"""Theorem 2: how many steps of gradient ascent are enough to reach a small gradient.

    L is L-smooth and bounded by L*;  xᵏ⁺¹ = xᵏ + (α/L) ∇L(xᵏ),  α in (0, 1]
    B > K = 2L (L* − L(x⁰)) / ((2 − α) α ρ)     ⟹     min_{k=1…B} |∇L(xᵏ)|₂² < ρ                    (1)

Why: L(xᵏ⁺¹) ≥ L(xᵏ) + α(2 − α)/(2L) |∇L(xᵏ)|². The proof needs only α < 2, which `beyond=True` allows.

Notation:   L → `smoothness`, ρ → `target`, here of the squared 2-norm, α → `share` (of 1/L).
"""

from __future__ import annotations

from dataclasses import dataclass

from antiadv.core.errors import BadInput
from antiadv.paper.theory.corollary_1 import at_least_zero, positive


@dataclass(frozen=True)
class WhiteBox:
    """An attack that sees gradients. `beyond=True` allows steps beyond the assumptions of the paper."""

    smoothness: float
    target: float
    share: float
    beyond: bool = False

    def __post_init__(self) -> None:
        positive(smoothness=self.smoothness, target=self.target)
        if not (0 < self.share <= 1 or (self.beyond and 0 < self.share < 2)):
            raise BadInput(
                f"beyond the paper's range the bound needs α in (0, 2); found {self.share!r}. Use a shorter step."
                if self.beyond
                else f"Theorem 2 assumes α in (0, 1]; found {self.share!r}. "
                "Use a shorter step, or set beyond=True for up to 2."
            )


def enough(gap: float, box: WhiteBox) -> float:
    """K of (1), for a loss that can rise by `gap` = L* − L(x⁰).

    >>> enough(0.5, WhiteBox(smoothness=1.0, target=0.04, share=0.5))
    33.333333333333336
    """
    at_least_zero(gap)
    return 2 * box.smoothness * gap / ((2 - box.share) * box.share * box.target)
