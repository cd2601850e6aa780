"""RayS: the shortest ray to the boundary along a vector of signs (Chen and Gu, KDD 2020, arXiv:2006.12792).

    minimise   r(s) = inf { r : clip(x + r·s) fools }          over s in {−1, +1}^d, r the Linf distance
    propose    s' = s, with one block of signs flipped: level l = 0, 1, 2, … cuts the d values of the image into 2^l
               blocks, taken one after the other                                                           (1)
    check      if clip(x + r(s)·s') does not fool, s' is no better: one query, and on to the next block    (2)
    accept     else s ← s', and r(s) ← the end of the interval [0, r] halved until it is τ long            (3)

Notation:   τ → `TOLERANCE` / √d: the authors measure along the ray in L2, where theirs is 1e-3.
Cost:       one query for x; one per block, and ⌈log₂(r/τ)⌉ more if it is accepted: on CIFAR 16 the first time, 11 at
            r = 8/255. Ends with the budget, after `steps` blocks, or after a level of single values without a change.
Departures: the first s is all ones or all minus ones, at random per sample; the authors' is all ones, and the other is
            their next proposal. Before anything fools, r = 1, a corner of the box; theirs is infinite. A level of
            single values that changed nothing is not repeated; theirs repeats it until the budget ends. Samples do
            not wait for each other: one may be at (2) while another is at (3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from antiadv.attacks._search.nearest import Nearest
from antiadv.core.ball import Ball, per_row
from antiadv.core.draws import Draws
from antiadv.core.oracle import UNLIMITED, Oracle
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import at_least

TOLERANCE = 1e-3


@dataclass(frozen=True)
class Rays:
    """No hyper-parameters. `steps` ends it if the threat has no budget."""

    steps: int = 10_000

    access: ClassVar[Access] = Access.LABELS
    norms: ClassVar[frozenset[float]] = frozenset({math.inf})
    minimal: ClassVar[bool] = True
    edition: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least(0, steps=self.steps)

    def least_queries(self, threat: Threat) -> int:
        return 2  # the first query is x itself

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        d = math.prod(x.shape[1:])
        narrow = TOLERANCE / math.sqrt(max(1, d))
        table = list(blocks(d, min(self.steps, levels(d))))  # later levels repeat the last of these
        block = torch.tensor(table, device=x.device).view(-1, 2)
        end = min(self.steps, UNLIMITED) + 1 if d else 0
        place = torch.arange(d, device=x.device)
        nearest = Nearest(oracle, x, y, ball)
        rows = torch.arange(len(x), device=x.device)
        nearest.ask(rows, x)
        s = draws.signs(1).to(x).expand(len(x), d).clone()
        low = torch.zeros_like(nearest.distance)  # start of the interval; r is its end
        r = torch.ones_like(low)
        t = torch.zeros_like(rows)  # the current block of each sample
        halving, changed = torch.zeros_like(rows, dtype=torch.bool), torch.ones_like(rows, dtype=torch.bool)
        while True:  # each sample asks about its next point, in (2) or in (3)
            rows = rows[nearest.going(rows) & (t[rows] < end)]
            first, last = block[repeated(t[rows], len(block), d)].unbind(1)
            sweeps = (first == 0) & (last == 1) & ~halving[rows]  # starts a level of single values
            rows, first, last = (v[~sweeps | changed[rows]] for v in (rows, first, last))
            if not len(rows):
                break
            sweeps = (first == 0) & (last == 1) & ~halving[rows]
            changed[rows] &= ~sweeps
            inside, on = halving[rows], (place >= first[:, None]) & (place < last[:, None])
            v = torch.where(on & ~inside[:, None], -s[rows], s[rows])  # (1)
            asked = torch.where(inside, (low[rows] + r[rows]) / 2, r[rows])
            z = (x[rows] + per_row(asked.to(x), x) * v.view(-1, *x.shape[1:])).clamp(0, 1)
            fooled = nearest.ask(rows, z)
            s[rows] = torch.where(fooled[:, None], v, s[rows])  # (2)
            changed[rows] |= fooled
            low[rows] = torch.where(inside & ~fooled, asked, torch.where(inside, low[rows], 0))
            r[rows] = torch.where(fooled, asked, r[rows])
            halving[rows] = (inside | fooled) & (r[rows] - low[rows] > narrow)  # (3)
            t[rows] += (~halving[rows]).long()
        return nearest.settled()


def blocks(d: int, steps: int) -> Iterator[tuple[int, int]]:
    """(1): an empty block, which tests the first s, then `steps` blocks, level by level, as `first, last + 1`."""
    if d == 0:
        return
    yield 0, 0
    level = done = 0
    while True:
        size = -(-d // 2**level)
        for first in range(0, d, size):
            if done == steps:
                return
            yield first, min(first + size, d)
            done += 1
        level += 1


def levels(d: int) -> int:
    """The number of blocks up to the end of the first level of single values.

    >>> levels(5), levels(0)
    (11, 0)
    """
    sizes = [-(-d // 2**level) for level in range(max(0, d - 1).bit_length() + 1)] if d else []
    return sum(-(-d // size) for size in sizes)


def repeated(t: Tensor, blocks: int, d: int) -> Tensor:
    """The place of each block t in the table. After its end the last d blocks, the single values, repeat."""
    return torch.where(t < blocks, t, blocks - d + (t - blocks) % max(1, d))
