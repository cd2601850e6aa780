"""Boundary Attack: a random walk along the boundary (Brendel et al., ICLR 2018, arXiv:1712.04248).

    minimise   r = |z − x|₂                                  over fooling z in the box
    start      noise that fools, then back towards x to the boundary by halving
    around     n = a Gaussian, made orthogonal to z − x and of length σ·r;
               q = clip( x + (z − x + n) / √(1 + σ²) )       stays at the distance r                       (1)
    towards    w = clip( q + max(τ·r + |q − x| − r, 0) · (x − q) / |x − q| )     comes to (1 − τ)·r        (2)
    accept     z ← w if w fools and is closer
    adapt      more than 1/2 of the last 100 tested q fooled: σ and τ grow by a;  fewer than 1/5: both shrink by a
               more than 1/4 of the last 30 w fooled: τ grows by a;  fewer than 1/10: it shrinks by a.
               A count starts again after it changed a step                                                (3)
               τ < σ/1000: w is nearly q, so q does not fool; σ shrinks by a, and τ ← σ                    (4)
    stop       when σ < 1e-7

Notation:   σ → `around`, τ → `towards`, a → `adaptation`; both steps are shares of r.
Cost:       one query for x, 1 … `tries` for the start and 10 to go back, then one a step and one more every tenth step.
Departures: the rules are those of foolbox 3, but each sample has its own n, which foolbox shares in a batch. Every w
            counts for (3); in foolbox every tenth does. A q that fools and is closer, because it was clipped, is kept.
            The first steps are five times foolbox's, because short ones cannot grow within a few hundred queries. (4)
            is ours: without it τ vanishes before a hundred q show that σ is too long, and the walk stops too early.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from antiadv.attacks._search.closest import taken
from antiadv.attacks._search.nearest import Nearest
from antiadv.core.ball import Ball, per_row
from antiadv.core.draws import Draws
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import at_least

START = 2.0**-10  # tolerance of the start, as a share of the way
LOOK = 10  # q is tested every tenth step
CONVERGED = 1e-7
VAIN = 1e-3  # τ/σ below this triggers (4)


@dataclass(frozen=True)
class Boundary:
    """Both steps start at 0.05 and change by a factor of 1.5. Foolbox starts at 0.01."""

    steps: int = 25_000
    around: float = 0.05
    towards: float = 0.05
    adaptation: float = 1.5
    tries: int = 100

    access: ClassVar[Access] = Access.LABELS
    norms: ClassVar[frozenset[float]] = frozenset({2})
    minimal: ClassVar[bool] = True
    edition: ClassVar[int] = 2

    def __post_init__(self) -> None:
        at_least(0, steps=self.steps, tries=self.tries, around=self.around, towards=self.towards)
        at_least(1, adaptation=self.adaptation)

    def least_queries(self, threat: Threat) -> int:
        return 2  # the first query is x itself

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        nearest = Nearest(oracle, x, y, ball)
        rows = nearest.start(draws.fold(0), self.tries)
        nearest.bisect(rows, nearest.z[rows], START)
        around = torch.full_like(nearest.distance, self.around)
        towards = torch.full_like(nearest.distance, self.towards)
        q_counts, w_counts = _Window(len(x), 100, x.device), _Window(len(x), 30, x.device)
        for t in range(1, self.steps + 1):
            rows = rows[nearest.going(rows) & (around[rows] >= CONVERGED)]
            if not len(rows):
                break
            q, w = propose(taken(x, rows), taken(nearest.z, rows), draws[rows].fold(t), around[rows], towards[rows])
            if t % LOOK == 0:
                q_counts.add(rows, nearest.ask(rows, q))
            w_counts.add(rows, nearest.ask(rows, w))
            both = self.adaptation ** q_counts.verdict(rows, 0.2, 0.5)  # (3)
            around[rows] *= both
            towards[rows] *= both * self.adaptation ** w_counts.verdict(rows, 0.1, 0.25)
            vain = towards[rows] < VAIN * around[rows]  # (4)
            around[rows] = torch.where(vain, around[rows] / self.adaptation, around[rows])
            towards[rows] = torch.where(vain, around[rows], towards[rows])
        return nearest.settled()


def propose(x: Tensor, z: Tensor, draws: Draws, around: Tensor, towards: Tensor) -> tuple[Tensor, Tensor]:
    """q of (1) and w of (2). Computed in place where possible, because memory is the cost on a CPU."""
    d = z - x
    r = per_row(_norm(d), d)
    n = draws.normal(*x.shape[1:]).to(x)
    n = n.sub_(per_row((n * d).flatten(1).sum(1), d) / r**2 * d)
    n = n.mul_(per_row(around.to(x), x) * r / per_row(_norm(n), n))
    q = n.add_(d).div_(per_row((1 + around**2).sqrt().to(x), x)).add_(x).clamp_(0, 1)
    back = x - q
    left = per_row(_norm(back), x)
    w = back.mul_((per_row(towards.to(x), x) * r + left - r).clamp_min_(0) / left).add_(q)
    return q, w.clamp_(0, 1)


def _norm(d: Tensor) -> Tensor:
    n: Tensor = d.flatten(1).norm(dim=1)
    return n.clamp_min(1e-12)


class _Window:
    """The outcomes of each sample's last `size` trials."""

    def __init__(self, samples: int, size: int, device: torch.device) -> None:
        self._size = size
        self._true = torch.zeros((samples, size), dtype=torch.bool, device=device)
        self._seen = torch.zeros(samples, dtype=torch.int64, device=device)

    def add(self, rows: Tensor, true: Tensor) -> None:
        self._true[rows, self._seen[rows] % self._size] = true
        self._seen[rows] += 1

    def verdict(self, rows: Tensor, few: float, many: float) -> Tensor:
        """+1 where the share of successes is above `many`, −1 where below `few`, else 0. ±1 restarts the count."""
        share = self._true[rows].double().mean(1)
        acts = ((share > many).double() - (share < few).double()) * (self._seen[rows] >= self._size)
        self._seen[rows] = torch.where(acts == 0, self._seen[rows], 0)
        return acts
