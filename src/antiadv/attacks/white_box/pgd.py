"""PGD: projected gradient ascent on the cross-entropy (Madry et al., ICLR 2018, arXiv:1706.06083).

    maximise   CE(s(z), y)                          over z in the ball around x
    start      z⁰ uniform in the ball, or x
    step       zᵗ⁺¹ = Π( zᵗ + η·ε · dir ∇CE(s(zᵗ), y) )      dir: sign (Linf), g/|g|₂ (L2)      (1)
    stop       at the first fooling iterate; the last iterate is tested too

Notation:   η → `step_size` (a share of ε), T → `steps`, Π → `ball.project`.
Cost:       per restart, one query with gradient per step and one query for the last iterate.
Departures: each sample stops when it is fooled; later restarts run on the samples that are left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from antiadv.attacks._search.survivors import Survivors
from antiadv.core.ball import Ball
from antiadv.core.draws import Draws
from antiadv.core.losses import ce
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import at_least


@dataclass(frozen=True)
class PGD:
    """By default 20 steps of ε/4 from a random start, which is the common setting."""

    steps: int = 20
    step_size: float = 0.25
    restarts: int = 1
    random_start: bool = True

    access: ClassVar[Access] = Access.GRADIENTS
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = False
    edition: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps, restarts=self.restarts)
        at_least(0, step_size=self.step_size)

    def least_queries(self, threat: Threat) -> int:
        return 1 if self.random_start else 2  # the first query is x itself

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        live = Survivors(oracle, x, y, draws)
        for restart in range(self.restarts):
            if not len(live):
                break
            z = ball.random(live.x, live.draws.fold(restart)) if self.random_start else live.x
            for _ in range(self.steps):
                if not len(live):
                    break
                s, g = live.oracle.gradient(z, ce, live.y)
                ahead = ball.project(live.x, z + self.step_size * ball.eps * ball.steepest(g))  # (1)
                on = live.offer(z, s)
                z = ahead if on is None else ahead[on]
            live.offer(z, live.oracle.scores(z))
        return live.images()
