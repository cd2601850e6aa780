"""Square Attack: random search with squares (Andriushchenko et al., ECCV 2020, arXiv:1912.00049).

    minimise   m(z) = s_y(z) − max_{k≠y} s_k(z)     over z in the ball around x
    accept     z' if m(z') < m(z);  stop when fooled
    shrink     h² = p·H·W, p halved after 10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000 proposals  (1)

    Linf  start      vertical stripes: x ± ε, one sign per channel and column
          propose    z' = z, with a square of side h set to x ± ε, one sign per channel             (2)

    L2    start      tiles ±η of a fifth of the shorter side, together of norm ε
          propose    take a window W₁ to add to and a window W₂ to take from, both of side h (odd, ≥ 3);
                     with δ = z − x, û = u / |u|₂ and everything per channel c,                     (3)
                     δ'_W₁ = dir(±η̂ + δ̂_W₁) · √( (ε² − |δ|²) / C + |δ_W₁∪W₂|² ),  δ'_W₂∖W₁ = 0
          η          two mounds side by side, one up, one down, the pair lying or standing:
                     on ring r around its middle a mound is Σ_{j=r}^{⌊h/2⌋} 1/(j+1)² high           (4)

Notation:   p → `p` (its first value), h → `side`, ε → `ball.eps`, dir and ^ → `_unit`.
Cost:       one query for the start and one per proposal; ends with the threat's budget or after `steps` proposals.
            The authors' `n_queries` leaves out the start: their n is `queries=n + 1` here.
Departures: each sample draws its own squares, the authors' code one place per batch; the last row and column of
            places, which their rounding leaves out, can be drawn; on non-square images a window's side is at most the
            shorter side, and the L2 start lays as many tiles as fit. `rescale` reads the budget of each sample.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from antiadv.attacks.best import Best
from antiadv.core.ball import Ball, per_row
from antiadv.core.door import at_least
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput, BadSpec
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access

HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
HORIZON = 10_000  # the number of proposals the halvings were chosen for
AHEAD = 64  # proposals whose dice are rolled at once

Dice = tuple[Tensor, ...]  # the numbers of one proposal, a row for each sample


@dataclass(frozen=True)
class Square:
    """The authors' setting: p starts at 0.8, and the schedule does not depend on the budget unless `rescale` is set."""

    p: float = 0.8
    steps: int = 5000
    rescale: bool = False

    access: ClassVar[Access] = Access.SCORES
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = False
    edition: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least(0, steps=self.steps)
        if not 0 < self.p <= 1:
            raise BadSpec(f"p is the share of the image a square covers, in (0, 1]; found {self.p!r}. Use 0.8.")

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        if x.ndim != 4:
            raise BadInput(f"square needs images [N, C, H, W]; found shape {tuple(x.shape)}. Reshape them.")
        start, roll, propose = (_stripes, _roll, _repaint) if ball.p == math.inf else (_tiles, _roll_twice, _exchange)
        ahead = (oracle.left() - 1).clamp(1, max(1, self.steps))  # proposals each sample can pay for, on the host
        best = Best(oracle, x, y)
        rows = best.standing()
        z = start(x[rows], ball, draws[rows])
        rows = rows[best.offer(rows, z, oracle[rows].scores(z))]
        for t in range(self.steps):
            if not len(rows):
                break
            if t % AHEAD == 0:
                dice = _rolled(roll, draws, range(t + 1, t + 1 + AHEAD), x.shape[1])
            side = self._sides(t, ahead[rows.cpu()] if self.rescale else None, x, odd=ball.p == 2)
            z = propose(x[rows], best.z[rows], ball, tuple(d[rows, t % AHEAD] for d in dice), side)
            rows = rows[best.offer(rows, z, oracle[rows].scores(z))]
        return best.z

    def side(self, t: int, height: int, width: int, *, odd: bool = False) -> int:
        """The side of the square of proposal t; L2 wants it odd and no less than 3."""
        p = self.p / 2 ** bisect.bisect_left(HALVINGS, t)  # (1)
        side = max(1, round(math.sqrt(p * height * width)))
        side = max(3, side + 1 - side % 2) if odd else side
        return min(side, height, width)

    def _sides(self, t: int, ahead: Tensor | None, x: Tensor, *, odd: bool) -> Tensor:
        """`[N, 1, 1, 1]`: the side for each sample, the schedule stretched over what it can pay; or one for all."""
        if ahead is None:
            return torch.full((1, 1, 1, 1), self.side(t, *x.shape[2:], odd=odd), device=x.device)
        known = {n: self.side(t * HORIZON // n, *x.shape[2:], odd=odd) for n in set(ahead.tolist())}
        return torch.tensor([known[n] for n in ahead.tolist()], device=x.device).view(-1, 1, 1, 1)


# ---------------------------------------------------------------- Linf


def _stripes(x: Tensor, ball: Ball, draws: Draws) -> Tensor:
    return ball.project(x, x + ball.eps * draws.signs(x.shape[1], 1, x.shape[3]).to(x))


def _roll(draws: Draws, channels: int) -> Dice:
    return *_roll_place(draws.fold(0)), draws.fold(1).signs(channels, 1, 1)


def _repaint(x: Tensor, z: Tensor, ball: Ball, dice: Dice, side: Tensor) -> Tensor:
    down, across, sign = dice
    inside, _, _ = _window(down, across, side, *x.shape[2:])
    sign = sign.to(x)
    return torch.where(inside, ball.project(x, x + ball.eps * sign), z)  # (2)


# ---------------------------------------------------------------- L2


def _tiles(x: Tensor, ball: Ball, draws: Draws) -> Tensor:
    channels, height, width = x.shape[1:]
    side = max(1, min(height, width) // 5)
    down, across = height // side, width // side
    place = torch.arange(side, device=x.device)
    lying = _mounds(place[:, None], place[None, :], torch.full((1, 1), side, device=x.device), x)
    stands = draws.fold(0).signs(1, down, 1, across, 1).to(x) > 0
    sign = draws.fold(1).signs(channels, down, 1, across, 1).to(x)
    tile = torch.where(stands, lying.T.reshape(side, 1, side), lying.reshape(side, 1, side))
    d = (sign * tile).reshape(len(x), channels, down * side, across * side)
    above, left = (height - down * side) // 2, (width - across * side) // 2
    d = F.pad(d, (left, width - across * side - left, above, height - down * side - above))
    return ball.project(x, x + ball.eps * ball.steepest(d))


def _roll_twice(draws: Draws, channels: int) -> Dice:
    places = *_roll_place(draws.fold(0)), *_roll_place(draws.fold(1))
    return *places, draws.fold(2).signs(1, 1, 1) > 0, draws.fold(3).signs(channels, 1, 1)


def _exchange(x: Tensor, z: Tensor, ball: Ball, dice: Dice, side: Tensor) -> Tensor:
    channels, height, width = x.shape[1:]
    to_down, to_across, out_down, out_across, stands, sign = dice
    to, row, column = _window(to_down, to_across, side, height, width)
    out, _, _ = _window(out_down, out_across, side, height, width)
    sign = sign.to(x)
    eta = to * _mounds(torch.where(stands, column, row), torch.where(stands, row, column), side, x)
    d = z - x
    unused = (ball.eps**2 - d.flatten(1).square().sum(1)).clamp_min(0) / channels
    room = per_row(unused, x) + (d * (to | out)).square().sum((2, 3), keepdim=True)
    fresh = _unit(sign * _unit(eta) + _unit(d * to)) * room.sqrt()
    return ball.project(x, x + torch.where(to, fresh, d * ~out))  # (3)


def _mounds(row: Tensor, column: Tensor, side: Tensor, like: Tensor) -> Tensor:
    """η at these places of a window of this side, up to its norm; whatever lies outside is to be masked."""
    half = side // 2
    falls = column >= half
    middle = torch.where(falls, half + (side - half) // 2, half // 2)
    ring = torch.minimum(torch.maximum((row - half).abs(), (column - middle).abs()), half + 1)
    sums = _sums(max(like.shape[2:]) // 2 + 1, like.dtype, like.device)
    rise = sums[half + 1] - sums[ring]  # (4)
    return torch.where(falls, -rise, rise)


@functools.cache
def _sums(last: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Σ_{j=1}^{k} 1/j² for k = 0 … last."""
    squares = torch.arange(1, last + 1, dtype=torch.float64).square()
    return F.pad(squares.reciprocal().cumsum(0), (1, 0)).to(device, dtype)


def _unit(d: Tensor) -> Tensor:
    """Each channel of each sample divided by its norm; zero stays zero."""
    n = d.square().sum((2, 3), keepdim=True).sqrt()
    return d / n.where(n > 0, torch.ones_like(n))


# ---------------------------------------------------------------- places


def _rolled(roll: Callable[[Draws, int], Dice], draws: Draws, steps: range, channels: int) -> Dice:
    """The dice of these steps for all samples, `[N, steps, …]` each: rolled at once, for alone they were more than half
    of the operations of a step."""
    t = torch.arange(steps.start, steps.stop, device=draws.keys.device).repeat(len(draws))
    dice = roll(Draws(draws.keys.repeat_interleave(len(steps))).fold(t), channels)
    return tuple(d.view(len(draws), len(steps), *d.shape[1:]) for d in dice)


def _roll_place(draws: Draws) -> tuple[Tensor, Tensor]:
    return draws.fold(0).uniform(1, 1, 1), draws.fold(1).uniform(1, 1, 1)


def _window(down: Tensor, across: Tensor, side: Tensor, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """A square at a place of each sample's own: `[N, 1, H, W]`, true inside, and each pixel's row and column in it."""
    row = torch.arange(height, device=side.device).view(1, 1, -1, 1) - _place(down, height - side + 1)
    column = torch.arange(width, device=side.device).view(1, 1, 1, -1) - _place(across, width - side + 1)
    return (row >= 0) & (row < side) & (column >= 0) & (column < side), row, column


def _place(u: Tensor, bound: Tensor) -> Tensor:
    """`Draws.below`, with a bound for each sample."""
    return torch.minimum((u * bound).long(), bound - 1)
