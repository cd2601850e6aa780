"""The closest fooling image of each sample so far: what attacks that minimise the distance keep.

    keep(rows, z, fooled, distance)    keep z where it fools and is closer
    going(rows)                        which samples go on: those that can pay and have no fooling image in the ball
    settled()                          the images to return

Use `Closest` if a step asks about some of the samples only, and `Survivors` if it asks about all. `rows` are places in
the batch, in order, each at most once. Without a radius (ε = ∞) a sample goes on while it can pay.

Cost:       no query.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from antiadv.core.ball import Ball, per_row
from antiadv.core.oracle import Oracle

FORMER, APART = 8, 0.99  # earlier images kept for each sample, and how much closer each is than the one before


class Closest:
    """`z` holds the images to return and `distance` their distances: z = x and ∞ where nothing fooled yet."""

    def __init__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball) -> None:
        self.oracle, self.x, self.y, self.ball = oracle, x, y, ball
        self._enough = enough(ball)
        self.z = x.clone()
        self.distance = x.new_full((len(x),), math.inf, dtype=torch.float64)
        remembers = ball.eps == math.inf and oracle.needs_confirmation
        self._former = x.new_empty(FORMER, *x.shape) if remembers else None
        self._count = torch.zeros(len(x), dtype=torch.int64, device=x.device)  # of former images
        self._last = torch.full_like(self.distance, math.inf)  # the distance of the last of them
        oracle.hold(self)

    def found(self) -> Tensor:
        return self.z

    def going(self, rows: Tensor) -> Tensor:
        return (self.distance[rows] > self._enough) & solvent(self.oracle, rows)

    def standing(self) -> Tensor:
        """The rows that go on."""
        rows = torch.arange(len(self.x), device=self.x.device)
        return rows[self.going(rows)]

    def checked(self, rows: Tensor, z: Tensor, fooled: Tensor, distance: Tensor) -> Tensor:
        """`fooled`, without the images that would end a search and that the judge rejects (`Oracle.confirm`)."""
        if self.ball.eps == math.inf:
            return fooled
        ends = (fooled & (distance <= self._enough)).nonzero().squeeze(1)
        s = self.oracle[rows[ends]].confirm(z[ends])
        return fooled if s is None else fooled.index_copy(0, ends, self.oracle.fooled(s, self.y[rows[ends]]))

    def keep(self, rows: Tensor, z: Tensor, fooled: Tensor, distance: Tensor) -> None:
        before = self.distance[rows]
        closer = fooled & (distance < before)
        if self._former is not None:
            replaced = rows[closer & (before < math.inf) & (before <= APART * self._last[rows])]
            self._former[self._count[replaced] % FORMER, replaced] = self.z[replaced]
            self._last[replaced] = self.distance[replaced]
            self._count[replaced] += 1
        kept = torch.where(per_row(closer, z), z, taken(self.z, rows))
        if len(rows) == len(self.z):
            self.z = kept
        else:
            self.z[rows] = kept
        self.distance[rows] = torch.where(closer, distance, before)

    def settled(self) -> Tensor:
        """The images to return, once no more queries are made.

        Without a radius a search in low precision may end too close to the boundary for the judge. Then go back to
        the latest former image that the judge confirms.
        """
        if self._former is None:
            return self.z
        z, rows = self.z.clone(), (self.distance < math.inf).nonzero().squeeze(1)
        left = self._count.clamp_max(FORMER)
        for back in range(1, FORMER + 1):
            s = self.oracle[rows].confirm(z[rows])
            if s is None:
                break
            rows = rows[~self.oracle.fooled(s, self.y[rows]) & (left[rows] >= back)]
            z[rows] = self._former[(self._count[rows] - back) % FORMER, rows]
        return z


def taken(t: Tensor, rows: Tensor) -> Tensor:
    """These rows of t. If they are all rows, t itself, which copies nothing."""
    return t if len(rows) == len(t) else t[rows]


def enough(ball: Ball) -> float:
    """The distance at which a search may end: the radius, or 0 without one."""
    return 0.0 if ball.eps == math.inf else ball.reach


def solvent(oracle: Oracle, rows: Tensor) -> Tensor:
    """Which of these samples can pay for a query."""
    if oracle.threat.queries is None:
        return torch.ones_like(rows, dtype=torch.bool)
    able = oracle.left() > 0
    if able.all():  # known on the CPU, so the rows need not be copied from the device
        return torch.ones_like(rows, dtype=torch.bool)
    return able[rows.cpu()].to(rows.device)
