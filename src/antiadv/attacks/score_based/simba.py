"""SimBA: one direction of an orthonormal basis at a time (Guo et al., ICML 2019, arXiv:1905.07121).

    minimise   p_y(z), the probability of y                      over z in the ball around x
    simba      for each direction q, in a random order per sample, each once:
                   z ← Π(z − a·q) if that lowers p_y;  else Π(z + a·q) if that does                       (1)
    stp        at each step a new random direction q:
                   z ← the best of z, Π(z + a·q), Π(z − a·q)                                              (2)
    basis      pixel: one value of the image.  dct: one 2-D cosine over a channel                         (3)
    stop       when fooled; `simba` also after the last direction

(1) is the published rule. (2) is STP, the stochastic three points method (Bergou et al., arXiv:1902.03591), on p_y.

Notation:   a → `step_size`·ε in the norm of the ball: a·|q|_p = `step_size`·ε, as in our other attacks. The authors'
            steps have an L2 length of 0.2 at any radius: `step_size=0.2/ε`. The default is 1/4 (their 0.2 at
            ε = 0.8), and 1 for pixels in Linf, where each pixel should go straight to the face of the ball.
            `frequencies` → the authors' `freq_dims`: cosines below it come first, then a band a quarter as wide, and
            so on (their `strided` order; 28 for images 224 wide). `stp` draws from the first block only.
Cost:       one query for x. Then `simba` spends one per direction if the first sign helps and two if not, and `stp`
            always two: 2B + 1 for B steps. The authors do not count the query for x. Without a budget `stp` makes
            as many steps as there are directions.
Departures: after each step z is projected into the ball and the box; the authors' L2 distance is not bounded, and
            their DCT coefficients are not projected. p_y is compared by its logarithm in float64, which does not
            saturate. A fooling image is kept even if p_y rose. Every sample has its own order; the authors' batch
            shares one.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from antiadv.attacks._search.survivors import Survivors
from antiadv.core.ball import Ball, per_row
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput, BadSpec
from antiadv.core.losses import ce
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import at_least

KEYS = 1 << 23  # most directions sorted at a time, over all samples: 64 MiB


@dataclass(frozen=True)
class Simba:
    """The published rule on pixels. The default of `step_size` depends on the norm."""

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
            raise BadSpec(f"frequencies={self.frequencies} needs basis=dct; found basis=pixel. Leave it out.")

    def least_queries(self, threat: Threat) -> int:
        return 2 if self.rule == "simba" else 3  # the first query is x itself

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        if x.ndim != 4:
            raise BadInput(f"simba needs images [N, C, H, W]; found shape {tuple(x.shape)}. Reshape them.")
        band = bands(x.shape[1:], self.frequencies).to(x.device)
        most = self._most(oracle, len(band))
        live = Survivors(oracle, x, y, draws)
        s = live.oracle.scores(live.x)
        fooled, _ = move(live, live.x, s, fall(live.oracle, s, live.y))
        live.release(fooled.tolist())
        if self.rule == "simba":
            self._in_order(live, ball, shuffled(draws, band, most))
        else:
            self._at_random(live, ball, (band == 0).nonzero().squeeze(1), most)
        return live.images()

    def _in_order(self, live: Survivors, ball: Ball, order: Tensor) -> None:
        numbers = order
        for t in range(order.shape[1]):
            if not len(live):
                return
            if len(numbers) > len(live):
                numbers = order[live.rows.to(order.device)]
            d = self._step(numbers[:, t].long(), live.x, ball)
            first_of(live, ball, -d, d)

    def _at_random(self, live: Survivors, ball: Ball, low: Tensor, most: int) -> None:
        live.afford(2)
        for t in range(most):
            if not len(live):
                return
            number = low[live.draws.fold(t).below(len(low), 1).squeeze(1)]
            d = self._step(number, live.x, ball)
            best_of(live, ball, d, -d)

    def _step(self, number: Tensor, x: Tensor, ball: Ball) -> Tensor:
        q = directions(number, self.basis, x)
        return q * per_row(ball.eps * self.share(ball.p) / q.flatten(1).norm(p=ball.p, dim=1), q)

    def share(self, p: float) -> float:
        """The length of a step, as a share of the radius."""
        if self.step_size is not None:
            return self.step_size
        return 1.0 if p == math.inf and self.basis == "pixel" else 0.25

    def _most(self, oracle: Oracle, directions: int) -> int:
        """The most steps to make: `steps`, what the richest sample can pay, and for `simba` one per direction."""
        paid = max(1, int(oracle.left().max())) - 1 if len(oracle) else 0
        if self.rule == "simba":
            return min(directions, paid, directions if self.steps is None else self.steps)
        if self.steps is not None:
            return min(self.steps, paid // 2)
        return directions if oracle.threat.queries is None else paid // 2


# ---------------------------------------------------------------- steps


def first_of(live: Survivors, ball: Ball, d: Tensor, e: Tensor) -> None:
    """(1): step by d if that lowers p_y, else by e if that does."""
    z, other = (ball.project(live.x, live.z + way) for way in (d, e))
    s = live.oracle.scores(z)
    fooled, taken = move(live, z, s, fall(live.oracle, s, live.y))
    z = torch.where(per_row(taken, z), z, other)
    done, took = torch.stack([fooled, taken]).tolist()
    on = live.release(done)
    if on is not None:
        z, took = z[on], [took[place] for place in on.tolist()]
    if all(took):
        return
    again = torch.tensor([place for place, moved in enumerate(took) if not moved])
    rows = again.to(z.device)
    s, y = live.oracle[again].scores(z[rows]), live.y[rows]
    f = live.m.index_copy(0, rows, fall(live.oracle, s, y))  # samples that moved stay where they are
    fooled = torch.zeros_like(f, dtype=torch.bool).index_copy(0, rows, live.oracle.fooled(s, y))
    live.keep(z, f, f < live.m)
    live.release(fooled.tolist())


def best_of(live: Survivors, ball: Ball, d: Tensor, e: Tensor) -> None:
    """(2): step to the lowest of z, z + d and z + e."""
    z, other = (ball.project(live.x, live.z + way) for way in (d, e))
    s = live.oracle.scores(torch.stack([z, other], 1).flatten(0, 1))
    y = live.y.repeat_interleave(2)
    f = fall(live.oracle, s, y)
    order = f.masked_fill(live.oracle.fooled(s, y), -math.inf)
    second = order[1::2] < order[::2]
    z, s = torch.where(per_row(second, z), other, z), torch.where(second[:, None], s[1::2], s[::2])
    fooled, _ = move(live, z, s, torch.where(second, f[1::2], f[::2]))
    live.release(fooled.tolist())


def move(live: Survivors, z: Tensor, s: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """Move to z where f is lower than `live.m`. Returns which samples are fooled, and which moved."""
    better = f < live.m
    live.keep(z, f, better)
    return live.oracle.fooled(s, live.y), better


def fall(oracle: Oracle, s: Tensor, y: Tensor) -> Tensor:
    """The logarithm of p_y, or of 1/p_y for a target: lower is better."""
    loss = ce(s.double(), y)
    return loss if oracle.targeted else -loss


# ---------------------------------------------------------------- directions, numbered like the values of an image


def directions(number: Tensor, basis: Literal["pixel", "dct"], x: Tensor) -> Tensor:
    """(3): directions of unit length by their numbers, `[M, C, H, W]`."""
    q = x.new_zeros(len(number), *x.shape[1:])
    if basis == "pixel":
        return q.flatten(1).scatter_(1, number[:, None], 1).view_as(q)
    channel, row, column = torch.unravel_index(number, tuple(x.shape[1:]))
    down, across = (cosines(side, x.dtype, x.device) for side in x.shape[2:])
    q[torch.arange(len(number), device=x.device), channel] = down[row][:, :, None] * across[column][:, None, :]
    return q


@functools.cache
def cosines(side: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The orthonormal DCT-II: row k is √(2/n)·cos(π(2i + 1)k / 2n), the first one √(1/n)."""
    i = torch.arange(side, dtype=torch.float64)
    rows = math.sqrt(2 / side) * torch.cos(math.pi * (2 * i[None] + 1) * i[:, None] / (2 * side))
    rows[:1] *= math.sqrt(0.5)
    return rows.to(device, dtype)


def bands(shape: torch.Size, frequencies: int | None) -> Tensor:
    """The band of each direction: 0 below `frequencies`, then 1, 2, … for bands a quarter as wide, `[C·H·W]`."""
    channels, height, width = shape
    if frequencies is None:
        return torch.zeros(channels * height * width, dtype=torch.int64)
    highest = torch.maximum(torch.arange(height)[:, None], torch.arange(width)[None, :])
    band = ((highest - frequencies) // max(1, frequencies // 4) + 1).clamp_min(0)
    return band.expand(channels, height, width).flatten()


def shuffled(draws: Draws, band: Tensor, most: int) -> Tensor:
    """The first `most` directions in each sample's own order, band after band: integers `[N, most]`."""
    part = max(1, KEYS // max(1, len(band)))
    order = torch.empty((len(draws), most), dtype=torch.int32, device=band.device)
    for rows in torch.arange(len(draws), device=band.device).split(part):
        key = draws[rows].uniform(len(band)).double() + band
        order[rows] = key.argsort(dim=1, stable=True)[:, :most].int()
    return order
