"""The closest fooling image so far, for each sample: what attacks that minimise the distance keep.

    offer(rows, z, labels)    keep z where it fools and is closer;  → which of the rows go on
    going(rows)               solvent, and with no fooling image in the ball; without a radius, while solvent
    settled()                 the images to return: without a radius, closest of those that fool to the last digit

By rows, in order and each once, for those who ask about some samples now and others then; where all go on together,
`Survivors` do it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from antiadv.core.ball import Ball, per_row
from antiadv.core.oracle import Oracle

FORMER, APART = 8, 0.99  # images kept before the closest, of each sample, and how much closer one is than that before


class Closest:
    """`z` holds the images to return, `distance` how far they are: infinite, and z = x, where nothing fooled yet."""

    def __init__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball) -> None:
        self.oracle, self.x, self.y, self.ball = oracle, x, y, ball
        self._enough = enough(ball)
        self.z = x.clone()
        self.distance = x.new_full((len(x),), math.inf, dtype=torch.float64)
        remembers = ball.eps == math.inf and oracle.needs_confirmation
        self._former = x.new_empty(FORMER, *x.shape) if remembers else None
        self._count = torch.zeros(len(x), dtype=torch.int64, device=x.device)  # of former images
        self._last = torch.full_like(self.distance, math.inf)  # how far the last of them is
        oracle.hold(self)

    def found(self) -> Tensor:
        return self.z

    def going(self, rows: Tensor) -> Tensor:
        return (self.distance[rows] > self._enough) & solvent(self.oracle, rows)

    def standing(self) -> Tensor:
        """The rows that go on."""
        rows = torch.arange(len(self.x), device=self.x.device)
        return rows[self.going(rows)]

    def offer(self, rows: Tensor, z: Tensor, labels: Tensor) -> Tensor:
        """`labels` are those that the oracle gave for z."""
        distance = self.ball.distance(self.x[rows], z)
        self.keep(rows, z, self.checked(rows, z, self.oracle.fooled(labels, self.y[rows]), distance), distance)
        return self.going(rows)

    def checked(self, rows: Tensor, z: Tensor, fooled: Tensor, distance: Tensor) -> Tensor:
        """`fooled`, less those that would end the search and do not fool to the last digit (`Oracle.exactly`)."""
        if self.ball.eps == math.inf:
            return fooled
        ends = (fooled & (distance <= self._enough)).nonzero().squeeze(1)
        s = self.oracle[rows[ends]].confirm(z[ends])
        return fooled if s is None else fooled.index_copy(0, ends, self.oracle.fooled(s, self.y[rows[ends]]))

    def keep(self, rows: Tensor, z: Tensor, fooled: Tensor, distance: Tensor) -> None:
        closer = fooled & (distance < self.distance[rows])
        if self._former is not None:
            replaced = rows[
                closer & (self.distance[rows] < math.inf) & (self.distance[rows] <= APART * self._last[rows])
            ]
            self._former[self._count[replaced] % FORMER, replaced] = self.z[replaced]
            self._last[replaced] = self.distance[replaced]
            self._count[replaced] += 1
        kept = torch.where(per_row(closer, z), z, taken(self.z, rows))
        if len(rows) == len(self.z):
            self.z = kept
        else:
            self.z[rows] = kept
        self.distance[rows] = torch.where(closer, distance, self.distance[rows])

    def settled(self) -> Tensor:
        """Without a radius a search ends as close as its engine can tell, which may be too close for the judge: go back
        over the images kept before, all of which were sent."""
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
    """These rows of t, in order and each once: t itself where that is all of them, which moves no image."""
    return t if len(rows) == len(t) else t[rows]


def enough(ball: Ball) -> float:
    """The distance at which a search may end: the radius, or nothing without one."""
    return 0.0 if ball.eps == math.inf else ball.reach


def solvent(oracle: Oracle, rows: Tensor) -> Tensor:
    """Which of these rows of the oracle can pay for a query."""
    if oracle.threat.queries is None:
        return torch.ones_like(rows, dtype=torch.bool)
    able = oracle.left() > 0
    if able.all():  # the host knows it of all samples, and need not ask the device which are meant
        return torch.ones_like(rows, dtype=torch.bool)
    return able[rows.cpu()].to(rows.device)
