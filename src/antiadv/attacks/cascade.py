"""Cascade: several attacks in order, each on the samples that earlier ones did not break.

    z = stage 1 on all samples;   stage k + 1 on those whose z does not fool, or lies outside the ball

Without a radius (minimal-norm stages, ε = ∞) every stage runs on every sample, and the closest fooling image is
returned. This file is in no folder of an access level, because a cascade needs the access of its stages.

Cost:       that of the stages, and one query per sample after each stage, which tests its image. None after the last
            stage, since the judge tests that one (with ε = ∞ there is one). All stages share the budget: a sample
            that has spent it enters no further stage.

For a randomised defence the test is a single draw. It may drop an image that fools most draws, or stop at one that
fools few. Run the cascade through `eot` in that case: then the majority decides. `adaptive` tests more draws.
In low precision the judge's answer decides (`Oracle.confirm`), because rounding can hide a success as well as invent
one.
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

IDLE = 3  # most queries spent on a stage that cannot pay for an image of its own


@dataclass(frozen=True)
class Cascade:
    """`cascade:stages=(apgd:loss=dlr,targets=9)+square`. `Autoattack` is one."""

    stages: tuple[Attack, ...] = (APGD(), Square())

    edition: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not self.stages:
            raise BadSpec("a cascade needs at least one stage; found none. Write cascade:stages=apgd+square.")
        if not self.norms:
            raise BadSpec(f"the stages of {text(self)} share no norm. Choose stages that do.")

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
        """That of the cheapest stage, plus what earlier stages that cannot begin spend: at most `IDLE` each."""
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
                rows = closest.standing()  # only samples that can pay for the test
                closest.keep(rows, z[rows], _fooled(oracle[rows], z[rows], y[rows]), ball.distance(x[rows], z[rows]))
        done = closest.distance <= ball.reach if ball.eps < math.inf else closest.distance < math.inf
        return torch.where(per_row(done, z), closest.z, z)


def _fooled(oracle: Oracle, z: Tensor, y: Tensor) -> Tensor:
    """One query for each sample, answered by the judge where it may differ."""
    labels, confirmed = oracle.labels(z), oracle.confirm(z)
    return oracle.fooled(labels if confirmed is None else confirmed, y)
