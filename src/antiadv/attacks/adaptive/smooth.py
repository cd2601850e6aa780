"""Smooth: gradients through the defence made differentiable (Tramèr et al., NeurIPS 2020, arXiv:2002.08347).

    ask       s(z) from the defence g: whether z fools is tested on what is attacked
    climb     ∇L(g_κ(z), y), g_κ the defence's own stand-in: `Defence.surrogate(κ)`

For the anti-adversary layer g_κ has tanh(κ·∇/mean|∇|) in the place of sign ∇, the mean that of the sample's own pixels,
and is differentiated through all K steps: unlike the gradient of g itself, this one sees that the layer answers to what
the attacker does. It needs second derivatives of the base. A defence without a stand-in is attacked as it is.

Notation:   κ → `kappa`: larger is closer to the defence, and flatter.
Cost:       each request, with gradient or without, is a query of g. Work on g_κ is the attacker's own: metered, not
            charged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from antiadv.attacks.adaptive.bpda import Guided
from antiadv.attacks.adaptive.wrapped import Wrapped
from antiadv.attacks.white_box.pgd import PGD
from antiadv.core.attack import Attack
from antiadv.core.ball import Ball
from antiadv.core.defence import Defence
from antiadv.core.draws import Draws
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access
from antiadv.core.validation import at_least


@dataclass(frozen=True)
class Smooth(Wrapped):
    """`attack` is any attack on gradients; it climbs the stand-in and is tested on the defence."""

    attack: Attack = PGD()
    kappa: float = 3.0

    access: ClassVar[Access] = Access.INTERNALS
    edition: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least(0, kappa=self.kappa)

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        g = oracle.open()
        stand_in = g.surrogate(self.kappa) if isinstance(g, Defence) else g
        asked = oracle if stand_in is g else Guided(oracle, oracle.beside(stand_in))
        return self.attack(asked, x, y, ball, draws)
