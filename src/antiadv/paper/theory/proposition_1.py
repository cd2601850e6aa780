"""Proposition 1: SimBA that draws directions with replacement and tries both signs is STP (arXiv:1902.03591).

    SimBA   p = L(x);  at each q:  the better of L(x + εq), L(x − εq) is taken if it beats p          (1)
    STP     x ← argmin {F(x), F(x + εq), F(x − εq)},  F = −L                                         (2)

Both stay at x in a tie, and prefer + to −. (1) asks twice a step, and once more for the first p: 2B + 1 queries for B
steps, where the paper counts 2B. The attack as published draws without replacement and stops at the first sign that
helps; of that the proposition says nothing: it ends after n directions. `simba:rule=stp` is the attack this is about.

Notation:   ε → `step`, q → a row of `directions`, L → `loss`: `[…, n]` to `[…]`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Loss = Callable[[Tensor], Tensor]  # points [..., n] → [...]


def simba(loss: Loss, x: Tensor, directions: Tensor, step: float) -> tuple[Tensor, int]:
    """(1): every iterate from x on, `[B + 1, n]`, and how many queries they took."""
    p, queries, path = float(loss(x)), 1, [x]
    for q in directions:
        plus, minus = x + step * q, x - step * q
        p_plus, p_minus = float(loss(plus)), float(loss(minus))
        queries += 2
        tried, found = (minus, p_minus) if p_minus > p_plus else (plus, p_plus)
        if found > p:
            x, p = tried, found
        path.append(x)
    return torch.stack(path), queries


def stp(loss: Loss, x: Tensor, directions: Tensor, step: float) -> Tensor:
    """(2): every iterate from x on, `[B + 1, n]`."""
    path = [x]
    for q in directions:
        path.append(lowest(lambda z: -loss(z), path[-1], step * q))
    return torch.stack(path)


def lowest(objective: Loss, x: Tensor, d: Tensor) -> Tensor:
    """The best of x, x + d and x − d for whoever goes down; the first of equals. x may be many points, `[…, n]`."""
    three = torch.stack([x, x + d, x - d])
    best = objective(three).argmin(0)
    return three.take_along_dim(best[None, ..., None], 0)[0]
