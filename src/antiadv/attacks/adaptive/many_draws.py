"""Many draws: a cascade for a randomised defence, which tests every image under many draws.

    stages    in order, each through `eot`, on the samples that stand
    test      after each stage DRAWS = 20 draws of the defence answer its image, if that lies in the ball
    broken    a sample of which at least ¾ of the draws were wrong; the others go on
    image     that with the most wrong draws so far

The judge asks ten times, and the majority counts. An image at the edge of a decision is wrong in half of the draws. A
test of a few draws would often take it for a success, and the judge would then say that the sample stands.

Cost:       that of the stages, and 20 queries per sample and stage.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from antiadv.attacks.adaptive.eot import EOT
from antiadv.attacks.cascade import Cascade
from antiadv.core.ball import Ball, per_row
from antiadv.core.draws import Draws
from antiadv.core.oracle import Oracle

DRAWS, SURE = 20, 15  # of the test, and wrong ones with which a sample is broken


@dataclass(frozen=True)
class ManyDraws(Cascade):
    """`samples` is the number of draws that `eot` averages."""

    samples: int = 20

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        best = _Best(oracle, x, y)
        for k, stage in enumerate(self.stages):
            rows = (best.wrong < SURE).nonzero().squeeze(1)
            if not len(rows):
                break
            z = EOT(stage, self.samples)(oracle[rows], x[rows], y[rows], ball, draws[rows].fold(k)).to(x)
            inside = ball.distance(x[rows], z) <= ball.reach
            best.offer(rows[inside], z[inside])
        return best.z


class _Best:
    """The best image z of each sample, and how many draws were wrong; −1 before a test."""

    def __init__(self, oracle: Oracle, x: Tensor, y: Tensor) -> None:
        self.oracle, self.y, self.z = oracle, y, x.clone()
        self.wrong = torch.full_like(y, -1)
        oracle.hold(self)

    def found(self) -> Tensor:
        return self.z

    def offer(self, rows: Tensor, z: Tensor) -> None:
        """Test these images, and keep the better ones. A sample that cannot pay keeps its first image."""
        wrong = torch.full_like(rows, -1)
        able = (self.oracle[rows].left() >= DRAWS).to(rows.device)
        if able.any():
            asked = self.oracle[rows[able]]
            labels = asked.labels(z[able].repeat_interleave(DRAWS, 0))
            fooled = asked.fooled(labels, self.y[rows[able]].repeat_interleave(DRAWS))
            wrong[able] = fooled.reshape(-1, DRAWS).sum(1)
        better = (wrong > self.wrong[rows]) | (self.wrong[rows] < 0)
        self.z[rows] = torch.where(per_row(better, z), z, self.z[rows])
        self.wrong[rows] = torch.where(better, wrong, self.wrong[rows])
