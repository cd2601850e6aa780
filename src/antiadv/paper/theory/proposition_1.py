"""Proposition 1: SimBA is STP (arXiv:1902.03591), if it draws directions with replacement and tries both signs.

    SimBA   p = L(x);  at each q:  the better of L(x + εq), L(x − εq) is taken if it beats p          (1)
    STP     x ← argmin {F(x), F(x + εq), F(x − εq)},  F = −L                                         (2)

Both stay at x in a tie, and prefer + to −. (1) sends two queries in each step and one for the first p: 2B + 1 queries
for B steps. The paper counts 2B. The published attack draws without replacement, stops at the first sign that helps,
and ends after n directions; the proposition does not cover it. `simba:rule=stp` is the attack that it covers.

Notation:   ε → `step`, q → a row of `directions`, L → `loss`: `[…, n]` to `[…]`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Loss = Callable[[Tensor], Tensor]  # points [..., n] → [...]


def simba(loss: Loss, x: Tensor, directions: Tensor, step: float) -> tuple[Tensor, int]:
    """(1): all iterates, beginning with x, `[B + 1, n]`, and the number of queries."""
    p, queries, path = float(loss(x)), 1, [x]
    for q in directions:
        plus, minus = x + step * q, x - step * q
        p_plus, p_minus = float(loss(plus)), float(loss(minus))
        queries += 2
        tried, p_tried = (minus, p_minus) if p_minus > p_plus else (plus, p_plus)
        if p_tried > p:
            x, p = tried, p_tried
        path.append(x)
    return torch.stack(path), queries


def stp(loss: Loss, x: Tensor, directions: Tensor, step: float) -> Tensor:
    """(2): all iterates, beginning with x, `[B + 1, n]`."""
    path = [x]
    for q in directions:
        path.append(lowest(lambda z: -loss(z), path[-1], step * q))
    return torch.stack(path)


def lowest(objective: Loss, x: Tensor, d: Tensor) -> Tensor:
    """Whichever of x, x + d and x − d has the lowest objective; in a tie the first. x may be many points, `[…, n]`."""
    three = torch.stack([x, x + d, x - d])
    best = objective(three).argmin(0)
    return three.take_along_dim(best[None, ..., None], 0)[0]
