"""MM: the margin to a few wrong classes, one after the other (Gao et al., ICML 2022).

    maximise   L(z) = s_t(z) − s_y(z)               over z in the ball around x, by the steps of `apgd`
    targets    t = the wrong classes with the largest scores at x, ranked once, one after the other
               with more than 20 classes, after the first: of the `candidates` best ones those with the smallest  (1)
                   (s_y(x) − s_c(x)) / |∇(s_c − s_y)(x)|_q         1/p + 1/q = 1; the distance of a linear network
    stop       at the first fooling iterate; any wrong label counts
    give up    after a target, if the smallest margin so far is above `give_up` of the margin at x                 (2)

The difference to APGD-T of AutoAttack: the margin is not divided by anything, and few targets get few steps each. On
networks that are robust without hidden gradients this finds what AutoAttack finds. (1) is from MALT (Melamed et al.,
NeurIPS 2024). (2) is ours and off by default: `fast` uses it to spend its steps on samples that are
within reach. Each sample is compared with itself alone.

Cost:       one query to rank, and for each target `steps` queries with gradient and one for the last iterate: 64 for
            three targets of 20 steps. With (1), `candidates` − 1 queries with gradient in addition.
Departures: a sample leaves at the step at which it falls; the authors test it after each target. Each target starts at
            a fresh point on the sphere, as in `apgd`. (1) looks at the 20 best classes; its authors take 100, whose
            gradients would cost more than the attack. Most samples fall to the first target, so (1) comes after
            it. A targeted threat has one target: its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from antiadv.attacks._search.survivors import Survivors
from antiadv.attacks.white_box.apgd import climb, rank, start
from antiadv.core.ball import Ball
from antiadv.core.draws import Draws
from antiadv.core.losses import gap, margin, negated
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import at_least

MANY = 20  # classes, beyond which the largest scores are a poor guide to the nearest class


@dataclass(frozen=True)
class MinimumMargin:
    """The authors' MM3: three targets of 20 steps."""

    targets: int = 3
    steps: int = 20
    candidates: int = 20
    give_up: float = 1.0

    access: ClassVar[Access] = Access.GRADIENTS
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = False
    edition: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least(1, targets=self.targets, steps=self.steps, candidates=self.candidates)
        at_least(0, give_up=self.give_up)

    def least_queries(self, threat: Threat) -> int:
        return 1 if threat.targeted else 2  # one query for x ranks the classes

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        live = Survivors(oracle, x, y, draws)
        if oracle.targeted:
            climb(live, start(live.x, ball, live.draws), ball, negated(margin), steps=self.steps)
            return live.images()
        s = live.oracle.scores(live.x)
        many = s.shape[1] > MANY
        ranked = rank(live, s, max(self.targets, self.candidates) if many else self.targets, len(x))
        live.offer(live.x, s)
        clean = live.m.new_zeros(len(x)).index_copy(0, live.rows.to(y.device), live.m)
        for turn in range(min(self.targets, ranked.shape[1])):
            if turn == 1 and many:
                _sort(ranked, live, ball)
            if not len(live):
                break
            rows = live.rows.to(y.device)
            climb(live, start(live.x, ball, live.draws.fold(turn)), ball, gap, ranked[rows, turn], steps=self.steps)
            if self.give_up < 1:
                live.dismiss((live.m > self.give_up * clean[live.rows.to(y.device)]).tolist())  # (2)
        return live.images()


def _sort(ranked: Tensor, live: Survivors, ball: Ball) -> None:
    """Order the classes of each sample, after the first, by (1). A sample that cannot pay keeps their order."""
    able = (live.oracle.left() >= ranked.shape[1]).nonzero().squeeze(1)
    if len(able):
        here, rows = able.to(ranked.device), live.rows[able].to(ranked.device)
        rest = ranked[rows, 1:]
        far = _distances(live.oracle[able], live.x[here], live.y[here], rest, ball)
        ranked[rows, 1:] = rest.gather(1, far.sort(dim=1, stable=True).indices)


def _distances(oracle: Oracle, x: Tensor, y: Tensor, classes: Tensor, ball: Ball) -> Tensor:
    """(1) for each of these classes, `[N, classes]`. One class after the other, for memory."""
    far = []
    for t in classes.unbind(1):
        s, g = oracle.gradient(x, gap, y, t)
        slope = torch.linalg.vector_norm(g.flatten(1), 1 if ball.p == math.inf else 2, dim=1)
        far.append(-gap(s, y, t) / slope.clamp_min(1e-12))
    return torch.stack(far, 1)
