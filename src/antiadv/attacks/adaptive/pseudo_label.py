"""Pseudo-label: move x until the base network changes its label, and stop there.

    maximise   max_{j≠y} f_j(z) − f_y(z)        over z in the ball around x, by APGD
    stop       at the first z that the base network f gets wrong

A layer that makes f more confident of its own label ŷ (`anti_adversary`) takes ŷ from f. Once ŷ is wrong the layer
helps the attacker: it pushes the image further into the wrong class. So the attack needs f alone.

Cost:       no query of the defence. Work on f is the attacker's own: metered in the receipt, not charged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from antiadv.attacks._search.survivors import Survivors
from antiadv.attacks.white_box.apgd import climb, start
from antiadv.core.ball import Ball
from antiadv.core.defence import base_of
from antiadv.core.draws import Draws
from antiadv.core.losses import margin, negated
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import at_least


@dataclass(frozen=True)
class PseudoLabel:
    """By default 100 steps from one start."""

    steps: int = 100
    restarts: int = 1

    access: ClassVar[Access] = Access.INTERNALS
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = False
    edition: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps, restarts=self.restarts)

    def least_queries(self, threat: Threat) -> int:
        return 0  # it never asks the defence

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        live = Survivors(oracle.on_own_model(base_of(oracle.open())), x, y, draws)
        for restart in range(self.restarts):
            if not len(live):
                break
            z = start(live.x, ball, live.draws.fold(restart))
            climb(live, z, ball, negated(margin), steps=self.steps)
        return live.images()
