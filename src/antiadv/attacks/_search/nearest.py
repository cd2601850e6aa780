"""The closest fooling image so far, for each sample: what every attack on labels keeps, and how it finds the boundary.

    ask(rows, z)       which of them fool; the closest is kept                                             (1)
    start              x itself, then noise until it fools                                                 (2)
    bisect             z ← the last fooling point on the way from z to x, found by halving an interval     (3)
    the way to x       L2: z_a = x + a(z − x).  Linf: z_a = the nearest point to z with |z_a − x|_∞ ≤ a|z − x|_∞

A sample goes on while it can pay and has no fooling image in the ball; without a radius, while it can pay. What is not
asked does not fool, so an attack may ask for all its samples and needs no budget of its own: it cannot be overrun.

Cost:       `start` one query for x and one a try, `tries` at most. `bisect` ⌈log₂(1/tolerance)⌉, whatever the
            model answers, and never more than 30.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from antiadv.attacks._search.closest import Closest, taken
from antiadv.core.ball import Ball, per_row
from antiadv.core.draws import Draws
from antiadv.core.oracle import Oracle

COARSE = 4  # kinds of noise a start is looked for in: pixels, then blocks of side 2, 4 and 8
HALVINGS = 30  # of an interval at most: beyond that float32 images do not change


class Nearest:
    """`Closest`, and how an attack on labels asks, starts and finds the boundary."""

    def __init__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball) -> None:
        self.oracle, self.x, self.ball = oracle, x, ball
        self._y, self._closest = y, Closest(oracle, x, y, ball)

    @property
    def z(self) -> Tensor:
        """The closest fooling images; x where there is none."""
        return self._closest.z

    @property
    def distance(self) -> Tensor:
        """How far they are; infinite where nothing fooled yet."""
        return self._closest.distance

    def settled(self) -> Tensor:
        """The images to return, once no more are asked."""
        return self._closest.settled()

    def going(self, rows: Tensor) -> Tensor:
        """Which of these rows go on."""
        return self._closest.going(rows)

    def ask(self, rows: Tensor, z: Tensor) -> Tensor:
        """(1): which of z fool, one for each row."""
        fooled = self.going(rows)
        on = fooled.nonzero().squeeze(1)
        if len(on) < len(rows):
            rows, z = rows[on], z[on]
        far = self.ball.distance(taken(self.x, rows), z)
        fools = self._closest.checked(rows, z, self.oracle.fooled(self.oracle[rows].labels(z), self._y[rows]), far)
        self._closest.keep(rows, z, fools, far)
        fooled[on] = fools
        return fooled

    def ask_many(self, rows: Tensor, z: Tensor, asked: Tensor) -> Tensor:
        """(1) for k candidates a row, z `[M·k, …]` row by row, of which those marked in `asked` `[M, k]` are asked."""
        each = rows.repeat_interleave(asked.shape[1])[asked.flatten()]  # as often as the row pays
        s = self.oracle[each].labels(z if len(each) == len(z) else z[asked.flatten()])
        fooled = torch.zeros_like(asked)
        fooled[asked] = self.oracle.fooled(s, self._y[each])
        far = self.ball.distance(self.x[rows].repeat_interleave(asked.shape[1], 0), z).view_as(asked)
        closest, which = far.masked_fill(~fooled, math.inf).min(1)
        z = z.view(*asked.shape, *z.shape[1:])[torch.arange(len(rows), device=rows.device), which]
        self._closest.keep(rows, z, self._closest.checked(rows, z, closest < math.inf, closest), closest)
        return fooled

    def start(self, draws: Draws, tries: int) -> Tensor:
        """(2); → the rows that have a fooling image, in `z`, and go on."""
        every = torch.arange(len(self.x), device=self.x.device)
        self.ask(every, self.x)
        for t in range(tries):
            rows = every[(self.distance == math.inf) & self.going(every)]
            if not len(rows):
                break
            self.ask(rows, _noise(draws[rows].fold(t), self.x, t % COARSE))
        return every[self.distance < math.inf]

    def bisect(self, rows: Tensor, z: Tensor, tolerance: Tensor | float) -> Tensor:
        """(3): z fools; the tolerance is a share of the way from z to x, for each row."""
        x, length = self.x[rows], self.ball.distance(self.x[rows], z)
        low, high = torch.zeros_like(length), torch.ones_like(length)
        narrow = torch.as_tensor(tolerance, dtype=high.dtype, device=high.device).expand_as(high)
        for _ in range(HALVINGS):
            on = ((high - low > narrow) & self.going(rows)).nonzero().squeeze(1)
            if not len(on):
                break
            middle = (low[on] + high[on]) / 2
            fooled = self.ask(rows[on], self._between(x[on], z[on], middle, length[on]))
            high[on] = torch.where(fooled, middle, high[on])
            low[on] = torch.where(fooled, low[on], middle)
        return torch.where(per_row(high == 1, z), z, self._between(x, z, high, length))

    def _between(self, x: Tensor, z: Tensor, a: Tensor, length: Tensor) -> Tensor:
        if self.ball.p == math.inf:
            r = per_row((a * length).to(x), x)
            return torch.minimum(torch.maximum(z, x - r), x + r).clamp(0, 1)
        return (x + per_row(a.to(x), x) * (z - x)).clamp(0, 1)


def _noise(draws: Draws, x: Tensor, halvings: int) -> Tensor:
    """Uniform noise, `[M, …]` like x; for images, at a resolution halved so often and enlarged in blocks."""
    if x.ndim != 4 or halvings == 0:
        return draws.uniform(*x.shape[1:]).to(x)
    side = 2**halvings
    small = draws.uniform(x.shape[1], -(-x.shape[2] // side), -(-x.shape[3] // side)).to(x)
    return F.interpolate(small, scale_factor=side, mode="nearest")[:, :, : x.shape[2], : x.shape[3]]
