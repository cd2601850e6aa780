"""Square Attack: random search with squares (Andriushchenko et al., ECCV 2020, arXiv:1912.00049).

    minimise   m(z) = s_y(z) − max_{k≠y} s_k(z)     over z in the ball around x
    start      vertical stripes: x ± ε, one sign per channel and column
    propose    z' = z, with a square of side h set to x ± ε, one sign per channel                 (1)
    accept     z' if m(z') < m(z);  stop when fooled
    shrink     h² = p·H·W, p halved after 10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000 proposals  (2)

Notation:   p → `p` (its first value), h → `side`, ε → `ball.eps`.
Cost:       one query for the start and one per proposal; ends with the threat's budget or after `steps` proposals.
Departures: each sample draws its own square, the authors' code one per batch; the last row and column of places,
            which their rounding leaves out, can be drawn; works on non-square images.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from antiadv.attacks.best import Best
from antiadv.core.ball import Ball
from antiadv.core.door import at_least
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput, BadSpec
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access

HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)


@dataclass(frozen=True)
class Square:
    """The authors' setting: p starts at 0.8, and the schedule does not depend on the budget."""

    p: float = 0.8
    steps: int = 5000

    access: ClassVar[Access] = Access.SCORES
    norms: ClassVar[frozenset[float]] = frozenset({math.inf})
    minimal: ClassVar[bool] = False
    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least(0, steps=self.steps)
        if not 0 < self.p <= 1:
            raise BadSpec(f"p is the share of the image a square covers, in (0, 1]; found {self.p!r}. Use 0.8.")

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        if x.ndim != 4:
            raise BadInput(f"square needs images [N, C, H, W]; found shape {tuple(x.shape)}. Reshape them.")
        channels, height, width = x.shape[1:]
        best = Best(oracle, x, y)
        rows = best.standing()
        stripes = draws[rows].signs(channels, 1, width).to(x)
        z = ball.project(x[rows], x[rows] + ball.eps * stripes)
        rows = rows[best.offer(rows, z, oracle[rows].scores(z))]
        for t in range(self.steps):
            if not len(rows):
                break
            dice = draws[rows].fold(t + 1)
            inside = _window(dice.fold(0), self.side(t, height, width), height, width)
            sign = dice.fold(1).signs(channels, 1, 1).to(x)
            z = torch.where(inside, ball.project(x[rows], x[rows] + ball.eps * sign), best.z[rows])  # (1)
            rows = rows[best.offer(rows, z, oracle[rows].scores(z))]
        return best.z

    def side(self, t: int, height: int, width: int) -> int:
        """The side of the square of proposal t."""
        p = self.p / 2 ** bisect.bisect_left(HALVINGS, t)  # (2)
        return min(max(1, round(math.sqrt(p * height * width))), height, width)


def _window(draws: Draws, side: int, height: int, width: int) -> Tensor:
    """`[N, 1, H, W]`, true inside a square of this side at a place of each sample's own."""
    top = draws.fold(0).below(height - side + 1, 1, 1, 1)
    left = draws.fold(1).below(width - side + 1, 1, 1, 1)
    row = torch.arange(height, device=top.device).view(1, 1, -1, 1)
    column = torch.arange(width, device=top.device).view(1, 1, 1, -1)
    return (row >= top) & (row < top + side) & (column >= left) & (column < left + side)
