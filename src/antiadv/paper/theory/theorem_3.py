"""Theorem 3: the factor by which the layer raises the bound on the steps of gradient ascent.

    the layer makes one gradient step of α_g = (1 − c) α down, c < 1, and the proof adds it to the attacker's own:
    xᵏ⁺¹ = xᵏ + (cα/L) ∇L(xᵏ)                                                                       (1)
    G(c)  = K_g / K_f = (2 − α) / ((2 − cα) c)      for c in (0, 1),   K_g = ∞ for c ≤ 0              (2)
    G'(c) = −(2 − α) (2 − 2cα) / (2c − αc²)²                                                          (3)

(3) is right as printed. It is negative up to c = 1 for α ≤ 1. For α in (1, 2), G < 1 for c between 2/α − 1 and 1. For
c ≤ 0 the proof says that the loss cannot rise. Smoothness gives this only for |c|α ≤ 2; longer steps overshoot.

Notation:   c → `c`, G → `factor`, α → `box.share`.
"""

from __future__ import annotations

import math

from antiadv.core.errors import BadInput
from antiadv.paper.theory.theorem_1 import check, inside
from antiadv.paper.theory.theorem_2 import WhiteBox


def factor(c: float, box: WhiteBox) -> float:
    """G of (2), with G(1) = 1 and, as the paper says, ∞ for c ≤ 0.

    >>> factor(0.5, WhiteBox(smoothness=1.0, target=0.04, share=0.5))
    1.7142857142857142
    """
    check(c)
    if c < lowest_c(box) and not box.beyond:
        raise BadInput(
            f"Theorem 3 holds for c ≥ −2/α = {lowest_c(box):g}; found {c!r}. "
            "Use a larger c, or set beyond=True to get the value that the paper states."
        )
    return (2 - box.share) / ((2 - box.share * c) * c) if c > 0 else math.inf


def derivative(c: float, box: WhiteBox) -> float:
    """G' of (3)."""
    inside(c)
    return -(2 - box.share) * (2 - 2 * box.share * c) / (2 * c - box.share * c**2) ** 2


def below_one(box: WhiteBox) -> tuple[float, float] | None:
    """The interval of c in which G < 1, so that the layer lowers the bound. None within the paper's range."""
    return (2 / box.share - 1, 1.0) if box.share > 1 else None


def lowest_c(box: WhiteBox) -> float:
    """The lowest c that the proof covers. Below it the step downwards is longer than 2/L and may raise the loss."""
    return -2 / box.share
