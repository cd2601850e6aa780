"""Adaptive: the attacks that undo this defence, one after another: the worst case for each sample.

    open        the defence says which attacks those are: `Defence.adaptive`; a bare classifier is its own base, and
                only the transfer attacks make sense on it
    end         square, and in Linf rays: on the defence itself, with the answers that anybody gets
    dice        a randomised defence is asked through `eot` by all of them, and so is whether a sample has fallen

A `Cascade`: each attack sees the samples that those before could not break.

Cost:       what the parts cost, and one query per sample and part, which tells whether its image fools; times
            `samples` for a randomised defence. Surrogate work is metered, not charged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from antiadv.attacks.adaptive.eot import EOT
from antiadv.attacks.cascade import Cascade
from antiadv.core.attack import Attack
from antiadv.core.ball import Ball
from antiadv.core.defence import TRANSFERS, Defence
from antiadv.core.draws import Draws
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import at_least


@dataclass(frozen=True)
class Adaptive:
    """`steps` are those of square and rays at the end; `samples` the draws over which `eot` averages."""

    steps: int = 1000
    samples: int = 20

    access: ClassVar[Access] = Access.INTERNALS
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = False
    edition: ClassVar[int] = 1  # also raised when an attack that a defence names changes; a defence raises its own

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps, samples=self.samples)

    def least_queries(self, threat: Threat) -> int:
        return 0  # it begins with attacks on the base

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        return self.against(oracle.open(), ball)(oracle, x, y, ball, draws)

    def against(self, model: nn.Module, ball: Ball) -> Attack:
        """What is run on this classifier."""
        from antiadv import attacks  # here, since the table of contents lists this attack too

        texts: tuple[str, ...] = TRANSFERS
        if isinstance(model, Defence):
            texts = (*model.adaptive, f"square:steps={self.steps}", f"rays:steps={self.steps}")
        parts = tuple(part for part in map(attacks.parse, texts) if ball.p in part.norms)
        randomised = isinstance(model, Defence) and model.randomised
        return EOT(Cascade(parts), self.samples) if randomised else Cascade(parts)
