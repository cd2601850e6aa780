"""Fast minimum norm: the nearest fooling image in one run (FMN: Pintor et al., NeurIPS 2021, arXiv:2102.12827).

    minimise   |z − x|_p                                  over fooling z in the box
    step       z ← project( z + α_t · g / |g|₂ )          onto the ball of radius r around x, then the box     (1)
               g = the gradient of  max_{k≠y} s_k − s_y  at z
    radius     z fools              r ← min( r·(1 − γ_t), the closest distance so far )                        (2)
               z does not, but      r ← r·(1 + γ_t)
               an earlier one did
               none did yet         r ← (1 + γ_t)·( |z − x|_p + |m(z)| / |g|_q )     m = the margin, q dual to p:
                                    a little beyond the boundary, if that were a plane
    schedule   α_t and γ_t fall along half a cosine: α from `step_size` to a hundredth of it, γ from `gamma` to 0.001

Each sample has its own radius, which follows the boundary. With the threat `linf:inf` or `l2:inf` the distance of the
result says for every radius whether the sample stands there: one run gives the whole curve.

Notation:   α → `step_size`, γ → `gamma`, p → `ball.p`, r → `radius`.
Cost:       one query and one gradient per step. The first is x itself.
Departures: the factor 1 + γ where none fooled yet: without it z stops on a plane, where rounding decides. With a finite
            ε a sample stops at its first fooling image in the ball. If g = 0, z moves to a random point, as in `fab`. A
            targeted threat aims at y, with the negated loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from antiadv.attacks._search.closest import enough
from antiadv.attacks._search.survivors import Survivors
from antiadv.attacks.white_box.fab import keep, leave, near
from antiadv.core.ball import Ball, per_row
from antiadv.core.draws import Draws
from antiadv.core.errors import BadSpec
from antiadv.core.losses import margin, negated
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import at_least

LAST_STEP, LAST_GAMMA = 0.01, 0.001  # the ends of the schedules: the first as a share of `step_size`


@dataclass(frozen=True)
class MinimumNorm:
    """The authors' setting: 100 steps, the first of length 1, and radii that change by 5 % at first."""

    steps: int = 100
    step_size: float = 1.0
    gamma: float = 0.05

    access: ClassVar[Access] = Access.GRADIENTS
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = True
    edition: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps)
        at_least(0, step_size=self.step_size)
        if not LAST_GAMMA <= self.gamma < 1:
            raise BadSpec(f"gamma must be in [{LAST_GAMMA}, 1); found {self.gamma!r}. Use 0.05.")

    def least_queries(self, threat: Threat) -> int:
        return 2  # the first query is x itself

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        live = Survivors(oracle, x, y, draws)
        z, radius = live.x, x.new_zeros(len(live), dtype=torch.float64)
        for t in range(self.steps):
            if not len(live):
                break
            s, g = live.oracle.gradient(z, negated(margin), live.y)
            flat, share = (g.flatten(1) == 0).all(1), (1 + math.cos(math.pi * t / self.steps)) / 2
            ahead, radius = self._step(live, z, s, g, radius, ball, share)
            done, z = keep(live, z, s, ball), ahead
            gone, lost = torch.stack([done, flat]).tolist()  # one wait for the device
            on = leave(live, gone, ball)
            if on is not None:
                z, radius, flat = z[on], radius[on], flat[on]
            if True in lost:
                z = torch.where(per_row(flat, z), near(live, ball, live.draws.fold(t)), z)
        return live.images()

    def _step(
        self, live: Survivors, z: Tensor, s: Tensor, g: Tensor, radius: Tensor, ball: Ball, share: float
    ) -> tuple[Tensor, Tensor]:
        """The next images and radii. `share` falls from 1 to 0 along half a cosine."""
        alpha = self.step_size * (LAST_STEP + (1 - LAST_STEP) * share)
        gamma = LAST_GAMMA + (self.gamma - LAST_GAMMA) * share
        best, far = live.m.double(), ball.distance(live.x, z)
        fools = live.oracle.fooled(s, live.y) & (far > enough(ball))  # nearer ones leave, or the judge rejects them
        dual = torch.linalg.vector_norm(g.flatten(1).double(), 1 if ball.p == math.inf else 2, dim=1)
        plane = far + torch.where(dual > 0, live.oracle.margin(s, live.y).double().abs() / dual, math.inf)
        wider = (1 + gamma) * torch.where(best < math.inf, radius, plane)
        radius = torch.where(fools, torch.minimum(radius * (1 - gamma), torch.minimum(best, far)), wider)  # (2)
        n = torch.linalg.vector_norm(g.flatten(1), dim=1)
        ahead = z + alpha * g / per_row(n.masked_fill(n == 0, 1), g)
        return project(live.x, ahead, radius.to(z), ball.p), radius  # (1)


def project(x: Tensor, z: Tensor, radius: Tensor, p: float) -> Tensor:
    """`Ball.project` with a radius for each sample."""
    d, r = z - x, per_row(radius, x)
    if p == math.inf:
        return (x + torch.minimum(torch.maximum(d, -r), r)).clamp(0, 1)
    n = per_row(torch.linalg.vector_norm(d.flatten(1), dim=1).clamp_min(1e-12), x)
    return (x + d * (r / n).clamp_max(1)).clamp(0, 1)
