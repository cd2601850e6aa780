"""Adaptive: the attacks that undo this defence, in order, so that the worst case for each sample counts.

    first       the transfer of `fast` from the base network: it suffices if the defence keeps the labels of its base.
                On a bare classifier it is all that runs
    second      the other attacks that the defence names in `Defence.adaptive`
    then        square, and in Linf rays, on the defence itself
    randomised  for a randomised defence all of them run through `eot`, and 20 draws test each image (`ManyDraws`)

It is a `Cascade`: each attack runs on the samples that earlier ones did not break.

Cost:       that of the parts, times `samples` for a randomised defence, and one query per sample and part, which tests
            its image, or 20. Work on surrogates is metered, not charged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from antiadv.attacks.adaptive.many_draws import ManyDraws
from antiadv.attacks.cascade import Cascade
from antiadv.core.ball import Ball
from antiadv.core.defence import TRANSFERS, Defence
from antiadv.core.draws import Draws
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import at_least


@dataclass(frozen=True)
class Adaptive:
    """`steps` is the number of steps of square and rays; `samples` the number of draws that `eot` averages."""

    steps: int = 1000
    samples: int = 20

    access: ClassVar[Access] = Access.INTERNALS
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = False
    edition: ClassVar[int] = 3  # raise it too when an attack that a defence names changes
    # 1 began with two transfers of APGD in place of `fast`; 2 had no losses of margins behind a defence
    still_shown: ClassVar[frozenset[int]] = frozenset({1, 2})

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps, samples=self.samples)

    def least_queries(self, threat: Threat) -> int:
        return 0  # it begins with attacks on the base network

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        return self.against(oracle.open(), ball)(oracle, x, y, ball, draws)

    def against(self, model: nn.Module, ball: Ball) -> Cascade:
        """The attack that runs on this classifier."""
        from antiadv import attacks  # here, because ATTACKS lists this attack too

        texts: tuple[str, ...] = TRANSFERS
        if isinstance(model, Defence):
            texts = (*model.adaptive, f"square:steps={self.steps}", f"rays:steps={self.steps}")
        parts = tuple(part for part in map(attacks.parse, texts) if ball.p in part.norms)
        randomised = isinstance(model, Defence) and model.randomised
        return ManyDraws(parts, self.samples) if randomised else Cascade(parts)
