"""Cascade: one attack after another, each on the samples that those before could not break.

    z = stage 1 on all samples;   stage k + 1 on those whose z does not fool, or lies outside the ball

With no radius (minimal-norm stages, ε = ∞) every stage sees every sample, and the closest fooling image is returned.

Cost:       what the stages cost, and one query per sample and stage, which tells whether its image fools; none after
            the last stage, which the judge looks at (with ε = ∞, after the last too). All from one budget: a sample
            that has spent it enters no further stage.

Of a defence that rolls dice that query is one draw: an image that fools most draws may be given up for a later stage's,
and one that fools few ends the cascade. Run it through `eot` there, as `adaptive` does: then the majority says.

Whether an image fools is the judge's answer where an engine has fewer digits (`Oracle.exactly`): a stage ends with the
best it found, and rounding hides success as well as it invents it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from antiadv.attacks._search.closest import Closest
from antiadv.attacks.score_based.square import Square
from antiadv.attacks.white_box.apgd import APGD
from antiadv.core.attack import Attack, least_queries
from antiadv.core.ball import Ball, per_row
from antiadv.core.draws import Draws
from antiadv.core.errors import BadSpec
from antiadv.core.oracle import Oracle
from antiadv.core.spec import text
from antiadv.core.threat import Access, Threat

IDLE = 3  # queries at most of a stage that cannot pay for an image of its own


@dataclass(frozen=True)
class Cascade:
    """`cascade:stages=(apgd:loss=dlr,targets=9)+square`. `Autoattack` is one."""

    stages: tuple[Attack, ...] = (APGD(), Square())

    edition: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not self.stages:
            raise BadSpec("a cascade needs at least one stage; found none. Write cascade:stages=apgd+square.")
        if not self.norms:
            raise BadSpec(f"the stages of {text(self)} have no norm in common. Choose stages that work in one.")

    @property
    def access(self) -> Access:
        return max(stage.access for stage in self.stages)

    @property
    def norms(self) -> frozenset[float]:
        return frozenset.intersection(*(stage.norms for stage in self.stages))

    @property
    def minimal(self) -> bool:
        return all(stage.minimal for stage in self.stages)

    def least_queries(self, threat: Threat) -> int:
        """Of the first stage that can begin; one that cannot asks about x at most twice, and then what it made is
        asked about."""
        each = [least_queries(stage, threat) for stage in self.stages]
        return min(least + sum(min(before, IDLE) for before in each[:k]) for k, least in enumerate(each))

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        closest, z = Closest(oracle, x, y, ball), x.clone()
        for k, stage in enumerate(self.stages):
            rows = closest.standing()
            if not len(rows):
                break
            z[rows] = stage(oracle[rows], x[rows], y[rows], ball, draws[rows].fold(k)).to(z)
            if k + 1 < len(self.stages) or ball.eps == math.inf:
                rows = closest.standing()  # those who can pay for the question
                closest.keep(rows, z[rows], _fooled(oracle[rows], z[rows], y[rows]), ball.distance(x[rows], z[rows]))
        done = closest.distance <= ball.reach if ball.eps < math.inf else closest.distance < math.inf
        return torch.where(per_row(done, z), closest.z, z)


def _fooled(oracle: Oracle, z: Tensor, y: Tensor) -> Tensor:
    """One query for each sample, answered to the last digit."""
    said, exact = oracle.labels(z), oracle.confirm(z)
    return oracle.fooled(said if exact is None else exact, y)
