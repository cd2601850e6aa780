"""NES: ascent on a gradient estimated from antithetic pairs (Ilyas et al., ICML 2018, arXiv:1804.08598).

    maximise   ℓ(z) = CE(s(z), y)                                over z in the ball around x
    estimate   G = Σ_{i=1}^{q} [ℓ(z + σuᵢ) − ℓ(z − σuᵢ)] / σ · uᵢ,     uᵢ ~ N(0, I/d)                  (1)
    step       z ← Π( z + η·ε · dir G )                          dir: sign (Linf), G/|G|₂ (L2)         (2)
    stop       at the first fooling iterate

On a linear loss <a, z>, E G = 2q/d · a and E cos(G, a) ≈ √(q / (q + d + 1)).

Notation:   q → `probes`, σ → `sigma` (the length of a probe, in the image's own units), η → `step_size` (a share of
            ε), Π → `ball.project`. The authors' setting is Linf, ε = 0.05, step 0.01: η = 0.2. For L2 they use q = 5
            and 0.3 at ε = 5: `nes:probes=5,step_size=0.06`.
Cost:       2q queries for an estimate and one for the new iterate; nothing before the first. A budget B pays
            ⌊B / (2q + 1)⌋ updates. Without a budget there are `published_updates(10_000, probes)`: 99 for q = 50.
            Published counts leave out the last query of each step, and stop one update early. `published_updates`
            gives the updates of a published budget.
Departures: ℓ is in float64, so that a confident sample does not round to zero, and is descended for a target. Probes
            are clipped to [0, 1]. A sample stops at its first fooling iterate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from antiadv.attacks._search.survivors import Survivors
from antiadv.core.ball import Ball
from antiadv.core.draws import Draws
from antiadv.core.errors import BadSpec
from antiadv.core.losses import ce
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import at_least

PUBLISHED_BUDGET = 10_000
PIXELS = 1 << 25  # most values of probes in memory at a time: 128 MiB in float32

Values = Callable[[Tensor], Tensor]  # k candidates per sample, sample by sample `[kN, …]` → their losses `[kN]`


@dataclass(frozen=True)
class NES:
    """The authors' Linf setting: 50 pairs a step, probes of length 0.1, steps of a fifth of the radius."""

    probes: int = 50
    sigma: float = 0.1
    step_size: float = 0.2
    steps: int | None = None

    access: ClassVar[Access] = Access.SCORES
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = False
    edition: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least(1, probes=self.probes)
        at_least(0, step_size=self.step_size, steps=0 if self.steps is None else self.steps)
        if not self.sigma > 0:
            raise BadSpec(f"sigma, the length of a probe, must be more than 0; found {self.sigma!r}. Use 0.1.")

    def least_queries(self, threat: Threat) -> int:
        return 2 * self.probes + 1

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        steps = steps_for(oracle, self.steps, self.probes)
        live = Survivors(oracle, x, y, draws, need=2 * self.probes + 1)
        z = live.x
        part = max(1, PIXELS // max(1, 2 * x[:1].numel()))
        for t in range(steps):
            if not len(live):
                break
            g = torch.empty_like(z)
            for first in range(0, len(live), part):
                some = slice(first, first + part)
                oracle = live.oracle if part >= len(live) else live.oracle[torch.arange(len(live))[some]]
                ask = values(oracle, live.y[some])
                g[some] = estimate(ask, z[some], live.draws[some].fold(t), self.probes, self.sigma)
            z = ball.project(live.x, z + self.step_size * ball.eps * ball.steepest(g))  # (2)
            on = live.offer(z, live.oracle.scores(z))
            z = z if on is None else z[on]
        return live.images()


def estimate(values: Values, z: Tensor, draws: Draws, probes: int, sigma: float) -> Tensor:
    """(1). The sum runs pair by pair, so that it does not depend on how many pairs are sent at a time."""
    g = torch.zeros_like(z)
    most = max(1, PIXELS // max(1, 2 * z.numel()))
    for first in range(0, probes, most):
        u = _directions(draws, z, range(first, min(first + most, probes)))  # [N, k, …]
        step = torch.stack([u, -u], 2) * sigma
        rise = values((z[:, None, None] + step).flatten(0, 2)).view(*u.shape[:2], 2)
        slope = ((rise[..., 0] - rise[..., 1]) / sigma).to(z)
        for term in u.mul_(slope.view(*slope.shape, *[1] * (z.ndim - 1))).unbind(1):
            g += term
    return g


def _directions(draws: Draws, z: Tensor, pairs: range) -> Tensor:
    """uᵢ ~ N(0, I/d) for these pairs of each sample, from `draws.fold(i)`: `[N, k, …]`."""
    shape = z.shape[1:]
    u = draws.repeat(len(pairs), pairs.start).normal(*shape).to(z)
    return (u / math.sqrt(max(1, math.prod(shape)))).view(len(z), len(pairs), *shape)


def values(oracle: Oracle, y: Tensor) -> Values:
    """The loss to raise, at candidates clipped into the box: cross-entropy, or its negative for a target.

    y holds the label of each sample, or of each candidate.
    """

    def ask(z: Tensor) -> Tensor:
        s = oracle.scores(z.clamp(0, 1)).double()
        loss = ce(s, y if len(y) == len(s) else y.repeat_interleave(len(s) // max(1, len(y))))
        return -loss if oracle.targeted else loss

    return ask


# ---------------------------------------------------------------- counting


def steps_for(oracle: Oracle, steps: int | None, probes: int) -> int:
    """The most steps to make: `steps`, or what the budget pays, or those of the published budget."""
    if steps is not None:
        return steps
    if oracle.threat.queries is None:
        return published_updates(PUBLISHED_BUDGET, probes)
    return int(oracle.left().max()) // (2 * probes + 1) if len(oracle) else 0


def published_updates(queries: int, probes: int) -> int:
    """Updates within a published budget, which counts 2q per update and stops before it is reached.

    >>> published_updates(10_000, 50), published_updates(10_000, 1)
    (99, 4999)
    """
    return max(0, math.ceil(queries / (2 * probes)) - 1)
