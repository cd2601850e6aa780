"""SimBA: one direction of an orthonormal basis at a time (Guo et al., ICML 2019, arXiv:1905.07121).

    minimise   p_y(z), the probability of y                      over z in the ball around x
    simba      at each direction q, in an order of each sample's own, none twice:
                   z ← Π(z − a·q) if that lowers p_y;  else Π(z + a·q) if that does                       (1)
    stp        at each step a direction q, drawn anew:
                   z ← the best of z, Π(z + a·q), Π(z − a·q)                                              (2)
    basis      pixel: one value of the image.  dct: one 2-D cosine over the whole of a channel            (3)
    stop       when fooled; `simba` also after the last direction

(2) is STP, the stochastic three points method (Bergou et al., arXiv:1902.03591), on p_y; (1) is what was published.

Notation:   a → `step_size`·ε in the norm of the ball, a·|q|_p = `step_size`·ε, as in every attack of ours. The authors'
            steps are 0.2 long in L2 whatever the radius, which is `step_size=0.2/ε`. Left out it is 1/4 (their 0.2 at
            ε = 0.8), and 1 for pixels in Linf, where a direction is taken once and the faces are what is wanted.
            `frequencies` → the authors' `freq_dims`: cosines below it come first, then a band a quarter as wide, and
            so on (their `strided` order; 28 for images 224 wide). `stp` draws from the first block only.
Cost:       one query for x; then for `simba` one a direction where the first sign helps and two where it does not, for
            `stp` always two, so 2B + 1 for B steps. The authors leave out the query for x. Without a budget `stp` makes
            as many steps as there are directions.
Departures: after each step z is put into the ball and the box, the authors' L2 distance just grows and their DCT
            coefficients are not put back; p_y is compared through its logarithm in float64, which does not saturate; a
            fooling image is kept even where p_y rose; every sample has its own order, the authors' batch shares one.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from antiadv.attacks.best import Best
from antiadv.core.ball import Ball, per_row
from antiadv.core.door import at_least
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput, BadSpec
from antiadv.core.losses import ce
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access

KEYS = 1 << 23  # directions sorted at a time, over all samples: a bound on memory, 64 MiB


@dataclass(frozen=True)
class Simba:
    """The published rule on pixels; `step_size` is by norm unless set."""

    basis: Literal["pixel", "dct"] = "pixel"
    rule: Literal["simba", "stp"] = "simba"
    step_size: float | None = None
    frequencies: int | None = None
    steps: int | None = None

    access: ClassVar[Access] = Access.SCORES
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = False
    edition: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least(0, step_size=self.step_size or 0, steps=self.steps or 0)
        at_least(1, frequencies=1 if self.frequencies is None else self.frequencies)
        if self.basis == "pixel" and self.frequencies is not None:
            raise BadSpec(f"frequencies={self.frequencies} needs basis=dct; pixels have none. Leave it out.")

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        if x.ndim != 4:
            raise BadInput(f"simba needs images [N, C, H, W]; found shape {tuple(x.shape)}. Reshape them.")
        length = ball.eps * self.share(ball.p)
        band = bands(x.shape[1:], self.frequencies).to(x.device)
        low = (band == 0).nonzero().squeeze(1)
        most = self._most(oracle, len(band))
        order = shuffled(draws, band, most) if self.rule == "simba" else None
        descent = _Descent(oracle, x, y, ball)
        rows = descent.start()
        for t in range(most):
            if order is not None:
                number = order[rows, t].long()
            else:
                rows = rows[(oracle[rows].left() > 1).to(rows.device)]
                number = low[draws[rows].fold(t).below(len(low), 1).squeeze(1)]
            if not len(rows):
                break
            q = directions(number, self.basis, x)
            d = q * per_row(length / q.flatten(1).norm(p=ball.p, dim=1), q)
            rows = rows[descent.first_of(rows, -d, d) if order is not None else descent.best_of(rows, d, -d)]
        return descent.z

    def share(self, p: float) -> float:
        """The length of a step, as a share of the radius."""
        if self.step_size is not None:
            return self.step_size
        return 1.0 if p == math.inf and self.basis == "pixel" else 0.25

    def _most(self, oracle: Oracle, directions: int) -> int:
        """How many steps to make at most: as told, what any sample can pay, and, for `simba`, one a direction."""
        paid = max(1, int(oracle.left().max())) - 1 if len(oracle) else 0
        if self.rule == "simba":
            return min(directions, paid, directions if self.steps is None else self.steps)
        if self.steps is not None:
            return min(self.steps, paid // 2)
        return directions if oracle.threat.queries is None else paid // 2


class _Descent:
    """`z`, where each sample is, and `f`, the logarithm of p_y there (of 1/p_y for a target): the lower the better."""

    def __init__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball) -> None:
        self._oracle, self._x, self._y, self._ball = oracle, x, y, ball
        self._best = Best(oracle, x, y)
        self.z = x.clone()
        self.f = x.new_full((len(x),), math.inf, dtype=torch.float64)

    def start(self) -> Tensor:
        """Look at x; → the rows that go on."""
        rows = self._best.standing()
        return rows[self._settle(rows, self._x[rows], self._oracle[rows].scores(self._x[rows]))[0]]

    def first_of(self, rows: Tensor, d: Tensor, e: Tensor) -> Tensor:
        """Step by d if that is lower, else by e if that is; → which of the rows go on."""
        w = self._moved(rows, d)
        on, taken = self._settle(rows, w, self._oracle[rows].scores(w))
        again = on & ~taken
        if again.any():
            w = self._moved(rows[again], e[again])
            on[again] = self._settle(rows[again], w, self._oracle[rows[again]].scores(w))[0]
        return on

    def best_of(self, rows: Tensor, d: Tensor, e: Tensor) -> Tensor:
        """Step to the lowest of z, z + d and z + e; → which of the rows go on."""
        pair = torch.stack([self._moved(rows, d), self._moved(rows, e)], 1)
        s = self._oracle[rows].scores(pair.flatten(0, 1))
        y = self._y[rows].repeat_interleave(2)
        f = self._f(s, y).masked_fill(self._oracle.fooled(s, y), -math.inf).view(-1, 2)
        each, lower = torch.arange(len(rows), device=rows.device), (f[:, 1] < f[:, 0]).long()
        return self._settle(rows, pair[each, lower], s.view(len(rows), 2, -1)[each, lower])[0]

    def _moved(self, rows: Tensor, d: Tensor) -> Tensor:
        return self._ball.project(self._x[rows], self.z[rows] + d)

    def _settle(self, rows: Tensor, w: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """Move to w where it is lower or fools; → which rows go on, and which moved."""
        on, f = self._best.offer(rows, w, s), self._f(s, self._y[rows])
        taken = (f < self.f[rows]) | self._best.fooled[rows]
        self.z[rows] = torch.where(per_row(taken, w), w, self.z[rows])
        self.f[rows] = torch.where(taken, f, self.f[rows])
        return on, taken

    def _f(self, s: Tensor, y: Tensor) -> Tensor:
        loss = ce(s.double(), y)
        return loss if self._oracle.targeted else -loss


# ---------------------------------------------------------------- directions, numbered as the values of an image


def directions(number: Tensor, basis: Literal["pixel", "dct"], x: Tensor) -> Tensor:
    """(3): directions of unit length by their numbers, `[M, C, H, W]`."""
    q = x.new_zeros(len(number), *x.shape[1:])
    each = torch.arange(len(number), device=x.device)
    channel, row, column = torch.unravel_index(number, tuple(x.shape[1:]))
    if basis == "pixel":
        q[each, channel, row, column] = 1
    else:
        down, across = (cosines(side, x.dtype, x.device) for side in x.shape[2:])
        q[each, channel] = down[row][:, :, None] * across[column][:, None, :]
    return q


@functools.cache
def cosines(side: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The orthonormal DCT-II: row k is √(2/n)·cos(π(2i + 1)k / 2n), the first one √(1/n)."""
    i = torch.arange(side, dtype=torch.float64)
    rows = math.sqrt(2 / side) * torch.cos(math.pi * (2 * i[None] + 1) * i[:, None] / (2 * side))
    rows[:1] *= math.sqrt(0.5)
    return rows.to(device, dtype)


def bands(shape: torch.Size, frequencies: int | None) -> Tensor:
    """Which directions come first: 0 below `frequencies`, then 1, 2, … for bands a quarter as wide, `[C·H·W]`."""
    channels, height, width = shape
    if frequencies is None:
        return torch.zeros(channels * height * width, dtype=torch.int64)
    highest = torch.maximum(torch.arange(height)[:, None], torch.arange(width)[None, :])
    band = ((highest - frequencies) // max(1, frequencies // 4) + 1).clamp_min(0)
    return band.expand(channels, height, width).flatten()


def shuffled(draws: Draws, band: Tensor, most: int) -> Tensor:
    """The first `most` directions in each sample's own order, band after band: whole numbers `[N, most]`."""
    part = max(1, KEYS // max(1, len(band)))
    order = torch.empty((len(draws), most), dtype=torch.int32, device=band.device)
    for rows in torch.arange(len(draws), device=band.device).split(part):
        key = draws[rows].uniform(len(band)).double() + band
        order[rows] = key.argsort(dim=1, stable=True)[:, :most].int()
    return order
