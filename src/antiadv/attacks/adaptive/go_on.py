"""Go on: an attack that does not stop at its first success (the idea of a margin κ: Carlini and Wagner, S&P 2017).

    success   never: the attack makes all its steps, to all its targets
    image     of all iterates, that with the smallest margin

An attack stops where the classifier errs, at the edge of its decision. Behind a randomised defence such an image is a
coin toss, and a defence that moves images takes others back. An image far beyond the edge is wrong under most draws.
Through `transfer` it goes far beyond the edge of the base network, so that small changes do not bring it back.

Cost:       that of the attack on a sample that it never breaks.
Departures: the authors stop at a margin of −κ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from antiadv.attacks.adaptive.wrapped import Wrapped
from antiadv.attacks.white_box.minimum_margin import MinimumMargin
from antiadv.core.attack import Attack
from antiadv.core.ball import Ball
from antiadv.core.draws import Draws
from antiadv.core.oracle import Oracle
from antiadv.core.oracle_wrapper import OracleWrapper
from antiadv.core.threat import Access


class NeverFooled(OracleWrapper):
    """No answer is a success."""

    def fooled(self, s: Tensor, y: Tensor) -> Tensor:
        return torch.zeros_like(y, dtype=torch.bool)


@dataclass(frozen=True)
class GoOn(Wrapped):
    """`attack` is any attack that keeps the image with the smallest margin, such as APGD."""

    attack: Attack = MinimumMargin()

    edition: ClassVar[int] = 1

    @property
    def access(self) -> Access:
        return self.attack.access

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        return self.attack(NeverFooled(oracle), x, y, ball, draws)
