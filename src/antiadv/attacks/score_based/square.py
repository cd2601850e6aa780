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

Against defences that change scores:

    loss       dlr: m / (s_(1) − s_(3)) in place of m, which no scaling of the scores changes
    accept     both (bi-Square, of the authors of `mirrored_scores`): once a proposal raised m by more than 3, accept z'
               if m rises, or falls by more than 3
               pendulum: after ten rejected proposals, change between lower m and higher m
    avoid      against a memory of queries (OARS: Feng et al., CCS 2023): whether a query was refused
               as a repetition tells how coarse a proposal must be. A proposal sets several squares. A refused one
               doubles their number, up to 64, and is drawn anew

Notation:   p → `p` (its first value), h → `side`, ε → `ball.eps`, dir and ^ → `_unit`.
Cost:       one query for the start and one per proposal. Ends with the budget or after `steps` proposals. The authors'
            `n_queries` does not count the start: their n is `queries=n + 1` here.
Departures: each sample draws its own squares; the authors' code draws one place per batch. The last row and column of
            places can be drawn; their rounding leaves them out. On images that are not square a window's side is at
            most the shorter side, and the L2 start lays as many tiles as fit. `rescale` uses the budget of each
            sample. In an η of odd side the two mounds differ in norm; the authors make them equal. η turns by at most
            2.2° (side 5). `avoid` doubles where the authors halve an interval before the search, and leaves the side
            to the schedule.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from antiadv.attacks._search.survivors import Survivors
from antiadv.core.ball import Ball, per_row
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput, BadSpec
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access
from antiadv.core.validation import at_least

HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
HORIZON = 10_000  # the number of proposals the halvings were chosen for
JUMP, PATIENCE = 3.0, 10  # of `accept`: in logits, and in proposals
AHEAD = 64  # proposals planned at once; one by one, planning is more than half of a step's operations
SQUARES, AGAIN = 64, 0x0A25  # of `avoid`: the most in a proposal, and a fold of the random numbers
LINES = 1 << 21  # most rows and columns in them, unless one proposal has more: 16 MiB for each of ten tensors

Plan = tuple[Tensor, ...]  # what a proposal needs besides x and z, one row per sample
Planner = Callable[[Draws, Tensor, Ball, Tensor], Plan]
Proposer = Callable[[Tensor, Tensor, Ball, Plan], Tensor]


@dataclass(frozen=True)
class Square:
    """The authors' setting: p starts at 0.8. The schedule depends on the budget only with `rescale`."""

    p: float = 0.8
    steps: int = 5000
    rescale: bool = False
    loss: Literal["margin", "dlr"] = "margin"
    accept: Literal["lower", "both", "pendulum"] = "lower"
    avoid: bool = False

    access: ClassVar[Access] = Access.SCORES
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = False
    edition: ClassVar[int] = 1
    later: ClassVar[tuple[str, ...]] = ("loss", "accept", "avoid")

    def __post_init__(self) -> None:
        at_least(0, steps=self.steps)
        if not 0 < self.p <= 1:
            raise BadSpec(
                f"p, the share of the image that a square covers, must be in (0, 1]; found {self.p!r}. Use 0.8."
            )

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        if x.ndim != 4:
            raise BadInput(f"square needs images [N, C, H, W]; found shape {tuple(x.shape)}. Reshape them.")
        linf = ball.p == math.inf
        start, plan, propose = (_stripes, _squares, _repaint) if linf else (_tiles, _windows, _exchange)
        paid = (oracle.left() - 1).clamp(1, max(1, self.steps))  # proposals that each sample can pay for, on the CPU
        live = Survivors(oracle, x, y, draws)
        rule = _Rule(self.loss, self.accept, live)
        z, plans, last = start(live.x, ball, live.draws), Plan(), 0
        if self.avoid:
            return self._avoiding(live, rule, z, ball, plan, propose)
        for t in range(self.steps + 1):
            if not len(live):
                break
            fooled = rule.take(live, z, live.oracle.scores(z))
            if t == last < self.steps:
                last = min(self.steps, t + max(1, min(AHEAD, LINES // (len(live) * sum(x.shape[2:])))))
                sides = self._sides(range(t, last), paid[live.rows] if self.rescale else None, x, odd=not linf)
                plans = plan(live.draws.repeat(last - t, t + 1), live.x, ball, sides)
            if t < last:  # before the wait for the device, which still runs a pass
                z = propose(
                    live.x, live.z, ball, tuple(p[:, t - last] for p in plans)
                )  # a negative index, from the end
            on = live.release(fooled.tolist())
            if on is not None:
                z, plans = z[on], tuple(p[on] for p in plans)
                rule.select(on)
        return live.images()

    def _avoiding(
        self, live: Survivors, rule: _Rule, z: Tensor, ball: Ball, plan: Planner, propose: Proposer
    ) -> Tensor:
        """The search that looks at which queries are refused. `squares` is the number in the next proposal."""
        squares = torch.ones(len(live), dtype=torch.int64, device=z.device)
        for t in range(self.steps + 1):
            if not len(live):
                break
            s = live.oracle.scores(z)
            refused = live.oracle.repeated(z).to(z.device)
            fooled = rule.take(live, z, s) & ~refused
            squares = torch.where(refused, (2 * squares).clamp(max=SQUARES), squares)
            on = live.release(fooled.tolist())
            squares = squares if on is None else squares[on]
            if on is not None:
                rule.select(on)
            if len(live) and t < self.steps:
                z = self._several(live, squares, t, ball, plan, propose)
        return live.images()

    def _several(
        self, live: Survivors, squares: Tensor, t: int, ball: Ball, plan: Planner, propose: Proposer
    ) -> Tensor:
        """A proposal of so many squares for each sample."""
        x, z, most = live.x, live.z, int(squares.max())
        side = self.side(t, *x.shape[2:], odd=ball.p != math.inf)
        sides = torch.full((len(x), most, 1, 1, 1), side, device=x.device)
        plans = plan(live.draws.fold(AGAIN).fold(t).repeat(most), x, ball, sides)
        for k in range(most):
            z = torch.where(per_row(k < squares, z), propose(x, z, ball, tuple(p[:, k] for p in plans)), z)
        return z

    def side(self, t: int, height: int, width: int, *, odd: bool = False) -> int:
        """The side of the square of proposal t; for L2 it is odd and at least 3."""
        p = self.p / 2 ** bisect.bisect_left(HALVINGS, t)  # (1)
        side = max(1, round(math.sqrt(p * height * width)))
        side = max(3, side + 1 - side % 2) if odd else side
        return min(side, height, width)

    def _sides(self, steps: range, paid: Tensor | None, x: Tensor, *, odd: bool) -> Tensor:
        """`[N, steps, 1, 1, 1]`: the schedule stretched over what each sample can pay; without `paid`, one for all."""
        lengths = [HORIZON] if paid is None else paid.tolist()
        known = {n: [self.side(t * HORIZON // n, *x.shape[2:], odd=odd) for t in steps] for n in set(lengths)}
        return torch.tensor([known[n] for n in lengths], device=x.device).view(len(lengths), len(steps), 1, 1, 1)


class _Rule:
    """Which proposals are accepted. One row per remaining sample, like `Survivors`."""

    def __init__(self, loss: str, accept: str, live: Survivors) -> None:
        self.loss, self.accept = loss, accept
        self.down = torch.ones_like(live.m, dtype=torch.bool)  # whether a lower m is looked for
        self.rejected = torch.zeros_like(live.m)  # proposals in a row, for the pendulum

    def take(self, live: Survivors, z: Tensor, s: Tensor) -> Tensor:
        """`Survivors.take` with this rule."""
        if (self.loss, self.accept) == ("margin", "lower"):
            return live.take(z, s)
        m = live.oracle.margin(s, live.y).to(live.m)
        if self.loss == "dlr" and s.shape[1] > 2:
            top = s.topk(3, dim=1).values
            m = m / (top[:, 0] - top[:, 2] + 1e-12).to(m)
        live.keep(z, m, (m < live.m) if self.accept == "lower" else self._better(m, live.m))
        return live.oracle.fooled(s, live.y)

    def _better(self, m: Tensor, best: Tensor) -> Tensor:
        if self.accept == "both":
            self.down &= ~(m > best + JUMP)
            return torch.where(self.down, m < best, (m > best) | (m < best - JUMP))
        better = torch.where(self.down, m < best, m > best) | (best == math.inf)
        self.rejected = torch.where(better, 0, self.rejected + 1)
        turn = self.rejected >= PATIENCE
        self.down, self.rejected = self.down ^ turn, self.rejected.masked_fill(turn, 0)
        return better

    def select(self, on: Tensor) -> None:
        self.down, self.rejected = self.down[on], self.rejected[on]


# ---------------------------------------------------------------- Linf


def _stripes(x: Tensor, ball: Ball, draws: Draws) -> Tensor:
    return ball.project(x, x + ball.eps * draws.signs(x.shape[1], 1, x.shape[3]).to(x))


def _squares(draws: Draws, x: Tensor, ball: Ball, side: Tensor) -> Plan:
    """Which rows and columns the square covers, and ±ε for each channel."""
    down, across = _lines(draws.fold(0), x, side)
    shift = ball.eps * draws.fold(1).signs(x.shape[1], 1, 1).to(x)
    return _inside(down, side), _inside(across, side), shift.unflatten(0, (len(x), -1))


def _repaint(x: Tensor, z: Tensor, ball: Ball, plan: Plan) -> Tensor:
    down, across, shift = plan
    return torch.where(down & across, (x + shift).clamp(0, 1), z)  # (2); x ± ε is in the ball


# ---------------------------------------------------------------- L2


def _tiles(x: Tensor, ball: Ball, draws: Draws) -> Tensor:
    channels, height, width = x.shape[1:]
    side = max(1, min(height, width) // 5)
    down, across = height // side, width // side
    lying = _mounds(side, x)
    stands = draws.fold(0).signs(1, down, 1, across, 1).to(x) > 0
    sign = draws.fold(1).signs(channels, down, 1, across, 1).to(x)
    tile = torch.where(stands, lying.T.reshape(side, 1, side), lying.reshape(side, 1, side))
    d = (sign * tile).reshape(len(x), channels, down * side, across * side)
    above, left = (height - down * side) // 2, (width - across * side) // 2
    d = F.pad(d, (left, width - across * side - left, above, height - down * side - above))
    return ball.project(x, x + ball.eps * ball.steepest(d))


def _windows(draws: Draws, x: Tensor, ball: Ball, side: Tensor) -> Plan:
    """Which rows and columns W₁ and W₂ cover, and η of W₁, up to its norm, by rows and by columns."""
    row, column = _lines(draws.fold(0), x, side)
    out_row, out_column = _lines(draws.fold(1), x, side)
    stands = draws.fold(2).signs(1, 1, 1).unflatten(0, (len(x), -1)) > 0
    sign = draws.fold(3).signs(x.shape[1], 1, 1).to(x).unflatten(0, (len(x), -1))
    tall, turn_down = _profile(row, side, stands, x)
    wide, turn_across = _profile(column, side, ~stands, x)
    inside = [_inside(line, side) for line in (row, column, out_row, out_column)]
    return *inside, tall, wide, sign * turn_down, turn_across


def _exchange(x: Tensor, z: Tensor, ball: Ball, plan: Plan) -> Tensor:
    to_down, to_across, out_down, out_across, tall, wide, turn_down, turn_across = plan
    to, out = to_down & to_across, out_down & out_across
    eta = turn_down * (turn_across * _unit(torch.minimum(tall, wide)))
    d = z - x
    unused = (ball.eps**2 - d.flatten(1).square().sum(1)).clamp_min(0) / x.shape[1]
    room = per_row(unused, x) + (d * (to | out)).square().sum((2, 3), keepdim=True)
    fresh = _unit(eta + _unit(d * to)) * room.sqrt()
    return ball.project(x, x + torch.where(to, fresh, d.masked_fill(out, 0)))  # (3)


def _mounds(side: int, like: Tensor) -> Tensor:
    """η of a window of this side, up to its norm, with the mounds side by side: `[side, side]`."""
    line, size = torch.arange(side, device=like.device), torch.tensor(side, device=like.device)
    tall, _ = _profile(line[:, None], size, torch.zeros_like(size, dtype=torch.bool), like)
    wide, turn = _profile(line, size, torch.ones_like(size, dtype=torch.bool), like)
    return turn * torch.minimum(tall, wide)


def _profile(line: Tensor, side: Tensor, two: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """The height of η along one axis of its window (0 outside) and its sign. `two`: both mounds lie on this axis.

    A ring is a square and a mound falls outwards, so a mound is the lower of two such profiles.
    """
    half = side // 2
    falls = two & (line >= half)
    middle = torch.where(two, torch.where(falls, half + (side - half) // 2, half // 2), half)
    ring = torch.minimum((line - middle).abs(), half + 1)
    sums = _sums(max(like.shape[2:]) // 2 + 1, like.dtype, like.device)
    rise = sums[half + 1] - sums[ring]  # (4)
    return rise * _inside(line, side), 1 - 2 * falls.to(like)


@functools.cache
def _sums(last: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Σ_{j=1}^{k} 1/j² for k = 0 … last."""
    squares = torch.arange(1, last + 1, dtype=torch.float64).square()
    return F.pad(squares.reciprocal().cumsum(0), (1, 0)).to(device, dtype)


def _unit(d: Tensor) -> Tensor:
    """Each channel of each sample divided by its norm; zero stays zero."""
    n = d.square().sum((2, 3), keepdim=True).sqrt()
    return d / n.masked_fill(n == 0, 1)


# ---------------------------------------------------------------- places


def _lines(draws: Draws, x: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
    """A random square for each sample and step. Returns the image's rows, `[N, steps, 1, H, 1]`, and columns,
    `[N, steps, 1, 1, W]`, counted from the first row and column of the square."""
    height, width = x.shape[2:]
    down, across = (draws.fold(k).uniform(1, 1, 1).unflatten(0, (len(x), -1)) for k in (0, 1))
    row = torch.arange(height, device=x.device)[:, None] - _place(down, height - side + 1)
    return row, torch.arange(width, device=x.device) - _place(across, width - side + 1)


def _place(u: Tensor, bound: Tensor) -> Tensor:
    """`Draws.below`, with a bound for each sample."""
    return torch.minimum((u * bound).long(), bound - 1)


def _inside(line: Tensor, side: Tensor) -> Tensor:
    return (line >= 0) & (line < side)
