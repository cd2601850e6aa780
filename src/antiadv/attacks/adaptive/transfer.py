"""Transfer: an attack on the base network f, judged on the defence g (Croce et al., ICML 2022, arXiv:2202.13711).

    z = attack on f alone, at the same radius;  g is given the result

Where f and g predict the same label, an image that fools f fools g. So a defence that hides scores and gradients
without changing predictions gains nothing.

Cost:       no query of g. Work on f is the attacker's own: metered in the receipt, not charged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from antiadv.attacks.adaptive.wrapped import Wrapped
from antiadv.attacks.white_box.pgd import PGD
from antiadv.core.attack import Attack
from antiadv.core.ball import Ball
from antiadv.core.defence import base_of
from antiadv.core.draws import Draws
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat


@dataclass(frozen=True)
class Transfer(Wrapped):
    """`attack` is any attack. It runs on the base network, with full access."""

    attack: Attack = PGD()

    access: ClassVar[Access] = Access.INTERNALS
    edition: ClassVar[int] = 1

    def least_queries(self, threat: Threat) -> int:
        return 0  # it never asks the defence

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        return self.attack(oracle.on_own_model(base_of(oracle.open())), x, y, ball, draws)
