"""Theorem 1: the factor by which the layer raises the bound on SimBA's steps.

    the layer makes one STP step of ε_g = (1 − c) ε down the same direction q, c < 1
    L is locally monotone over e₁ … e_n and β = ρ/(nL):  L(x) ≤ L(x + aq)  ⟺  L(x) ≥ L(x − a'q)  for a, a' < β    (1)
    the proof adds that step to the attacker's own:  xᵏ⁺¹ = xᵏ + (ε − ε_g) q = xᵏ + cε q                          (2)
    G(c)  = K_g / K_f = (ρ/n − Lε/2) / ((ρ/n − cLε/2) c)      for c in (0, 1),   K_g = ∞ for c ≤ 0                (3)
    G'(c) = −(ρ/n − Lε/2) (ρ/n − cLε) / ((ρ/n − cLε/2) c)²                                                        (4)

The paper prints the denominator of (4) as (… εc)². The sign is right, the value is wrong by a factor of 1/ε².
ε < ρ/(nL) is exactly the condition under which (4) is negative up to c = 1. For ε between that and twice that, G < 1
for c between 2ρ/(nLε) − 1 and 1.

Only the appendix states (1). If it must hold at every x, L is monotone along each coordinate. If it must hold only
where the attack passes, it covers steps shorter than β. The proof for c ≤ 0 uses it for ε_g, so it covers only
c > 1 − ρ/(nLε).

Notation:   c → `c`, G → `factor`, β → `box.limit`; the others as in `corollary_1`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from antiadv.core.errors import BadInput
from antiadv.paper.theory.corollary_1 import BlackBox

GRID = 1024  # points at which a landscape is tested for (1)


def factor(c: float, box: BlackBox) -> float:
    """G of (3), with G(1) = 1 and, as the paper says, ∞ for c ≤ 0.

    >>> factor(0.5, BlackBox(dimension=4, smoothness=0.125, target=0.5, step=0.5))
    1.7142857142857142
    """
    check(c)
    if c <= 0 and c <= lowest_c(box) and not box.beyond:
        raise BadInput(
            f"Theorem 1 is proved for c above 1 − ρ/(nLε) = {lowest_c(box):g}; found {c!r}. "
            "Use a larger c, or set beyond=True to get the value that the paper states."
        )
    a, b = _parts(box)
    return (a - b) / ((a - b * c) * c) if c > 0 else math.inf


def derivative(c: float, box: BlackBox) -> float:
    """(4), corrected."""
    inside(c)
    a, b = _parts(box)
    return -(a - b) * (a - 2 * b * c) / ((a - b * c) * c) ** 2


def printed_derivative(c: float, box: BlackBox) -> float:
    """(4), as the paper prints it."""
    inside(c)
    a, b = _parts(box)
    return -(a - b) * (a - 2 * b * c) / ((a - b * c) * box.step * c) ** 2


def below_one(box: BlackBox) -> tuple[float, float] | None:
    """The interval of c in which G < 1, so that the layer lowers the bound. None within the paper's range."""
    a, b = _parts(box)
    return (a / b - 1, 1.0) if a < 2 * b else None


def lowest_c(box: BlackBox) -> float:
    """The c at which the layer's step ε_g = (1 − c) ε is as long as β, so that (1) no longer covers it."""
    return 1 - box.limit / box.step


def locally_monotone(height: Callable[[Tensor], Tensor], t: float, limit: float) -> bool:
    """Whether (1) holds at one value t of one coordinate, for a, a' on a grid. False is certain, True is not."""
    a = limit * torch.arange(1, GRID, dtype=torch.float64) / GRID
    point = torch.tensor(t, dtype=torch.float64)
    up, down = height(point) <= height(point + a), height(point) >= height(point - a)
    return bool(up.all() and down.all()) or not bool(up.any() or down.any())


def check(c: float) -> None:
    if not -math.inf < c <= 1:
        raise BadInput(
            f"the layer's step is (1 − c) times the attacker's, so c must be at most 1; found {c!r}. Use a smaller c."
        )


def inside(c: float) -> None:
    if not 0 < c <= 1:
        raise BadInput(f"G has a derivative for c in (0, 1]; found {c!r}. For c ≤ 0 the paper has no finite G.")


def _parts(box: BlackBox) -> tuple[float, float]:
    """ρ/n and Lε/2."""
    return box.target / box.dimension, box.smoothness * box.step / 2
