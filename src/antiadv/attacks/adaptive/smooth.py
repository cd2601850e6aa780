"""Smooth: gradients through a differentiable version of the defence (Tramèr et al., NeurIPS 2020, arXiv:2002.08347).

    scores    s(z) from the defence g, so success is tested on the model under attack
    gradient  ∇L(g_κ(z), y), with g_κ the defence's own surrogate: `Defence.surrogate(κ)`

For the anti-adversary layer g_κ has tanh(κ·∇/mean|∇|) in place of sign ∇, with the mean over the sample's own pixels.
It is differentiated through all K steps. Unlike the gradient of g, this one sees how the layer reacts to the attacker.
It needs second derivatives of the base network. A defence without a surrogate is attacked as it is.

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
    """`attack` is any attack that uses gradients. It gets those of the surrogate, and scores of the defence."""

    attack: Attack = PGD()
    kappa: float = 3.0

    access: ClassVar[Access] = Access.INTERNALS
    edition: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least(0, kappa=self.kappa)

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        g = oracle.open()
        surrogate = g.surrogate(self.kappa) if isinstance(g, Defence) else g
        guided = oracle if surrogate is g else Guided(oracle, oracle.on_own_model(surrogate))
        return self.attack(guided, x, y, ball, draws)
