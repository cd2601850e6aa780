"""The closest fooling image so far, for each sample: what attacks that minimise the distance keep.

    offer(rows, z, s)    keep z where it fools and is closer;  → which of the rows go on
    going(rows)          solvent, and with no fooling image in the ball; without a radius, while solvent

`Best` is its sibling for attacks at a fixed radius.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from antiadv.attacks.best import solvent
from antiadv.core.ball import Ball, per_row
from antiadv.core.oracle import Oracle

TIE = 1e-5  # of the largest score: float32 passes of other batch sizes differ by less


class Closest:
    """`z` holds the images to return, `distance` how far they are: infinite, and z = x, where nothing fooled yet."""

    def __init__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball) -> None:
        self.oracle, self.x, self.y, self.ball = oracle, x, y, ball
        self._enough = 0.0 if ball.eps == math.inf else ball.reach
        self.z = x.clone()
        self.distance = x.new_full((len(x),), math.inf, dtype=torch.float64)

    def going(self, rows: Tensor) -> Tensor:
        return (self.distance[rows] > self._enough) & solvent(self.oracle, rows)

    def standing(self) -> Tensor:
        """The rows that go on."""
        rows = torch.arange(len(self.x), device=self.x.device)
        return rows[self.going(rows)]

    def offer(self, rows: Tensor, z: Tensor, s: Tensor) -> Tensor:
        """`s` are the scores, or labels, that the oracle gave for z."""
        y = self.y[rows]
        fooled = self.oracle.fooled(s, y)
        if s.ndim == 2 and self.ball.eps < math.inf:  # where the first that fools ends it, a tie may be the judge's
            fooled &= self.oracle.margin(s, y).abs() > TIE * s.abs().amax(1)
        self.keep(rows, z, fooled, self.ball.distance(self.x[rows], z))
        return self.going(rows)

    def keep(self, rows: Tensor, z: Tensor, fooled: Tensor, distance: Tensor) -> None:
        closer = fooled & (distance < self.distance[rows])
        self.z[rows] = torch.where(per_row(closer, z), z, self.z[rows])
        self.distance[rows] = torch.where(closer, distance, self.distance[rows])
