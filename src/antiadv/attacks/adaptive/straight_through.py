"""Straight-through: BPDA at the image that the network sees (Athalye et al., ICML 2018, arXiv:1802.00420).

    scores    s(z) from the defence g, so success is tested on the model under attack
    gradient  ∇L(f(t(z)), y) from the base network f at t(z), the image that g shows it: `Defence.shown`

It is for defences that change the image by steps without a slope, such as `jpeg`. `bpda` follows f at z itself, so it
does not notice what t removes from z. For a defence that does not name its t both are the same.

Cost:       each request, with gradient or without, is a query of g. Gradients of f are the attacker's own work:
            metered in the receipt, not charged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from antiadv.attacks.adaptive.bpda import Guided
from antiadv.attacks.adaptive.wrapped import Wrapped
from antiadv.attacks.white_box.pgd import PGD
from antiadv.core.attack import Attack
from antiadv.core.ball import Ball
from antiadv.core.defence import Defence, base_of
from antiadv.core.draws import Draws
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access


class Straight(Defence):
    """The network on the images that it sees behind a defence, with the slope of the identity. A tool of the attack."""

    def __init__(self, base: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__(base)
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        return self.ask(x, lambda z: self.change(z.detach()) + (z - z.detach()))


@dataclass(frozen=True)
class StraightThrough(Wrapped):
    """`attack` is any attack that uses gradients. It gets those at the image that the base network sees."""

    attack: Attack = PGD()

    access: ClassVar[Access] = Access.INTERNALS
    edition: ClassVar[int] = 1

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        g = oracle.open()
        model = Straight(base_of(g), g.shown) if isinstance(g, Defence) else g
        return self.attack(Guided(oracle, oracle.on_own_model(model)), x, y, ball, draws)
