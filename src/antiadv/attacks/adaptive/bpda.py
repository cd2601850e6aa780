"""BPDA: forward through the defence, backward through something smoother (Athalye et al., ICML 2018, arXiv:1802.00420).

    scores    s(z) from the defence g, so success is tested on the model under attack
    gradient  ∇L(f(z), y) from the base network f at z itself

A layer that moves x a little and keeps its label is close to the identity, t(x) ≈ x, so ∂t/∂x ≈ 1.

Cost:       each request, with gradient or without, is a query of g. Gradients of f are the attacker's own work:
            metered in the receipt, not charged.
Departures: an attack that follows its loss (APGD) sees the loss of g.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor

from antiadv.attacks.adaptive.wrapped import Wrapped
from antiadv.attacks.white_box.pgd import PGD
from antiadv.core.attack import Attack
from antiadv.core.ball import Ball
from antiadv.core.defence import base_of
from antiadv.core.draws import Draws
from antiadv.core.losses import Loss
from antiadv.core.oracle import Oracle
from antiadv.core.oracle_wrapper import OracleWrapper
from antiadv.core.threat import Access


class Guided(OracleWrapper):
    """Scores from the oracle, gradients from a `guide`: an oracle on a model that the attacker owns."""

    def __init__(self, inner: Oracle, guide: Oracle) -> None:
        super().__init__(inner)
        self.guide = guide

    def __getitem__(self, rows: Tensor) -> Self:
        part = super().__getitem__(rows)
        part.guide = self.guide[rows]
        return part

    def zeros(self) -> Tensor:
        return self.guide.zeros()

    def gradient(self, z: Tensor, loss: Loss, *targets: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner.scores(z), self.guide.gradient(z, loss, *targets)[1]

    def jacobian(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner.scores(z), self.guide.jacobian(z)[1]


@dataclass(frozen=True)
class BPDA(Wrapped):
    """`attack` is any attack that uses gradients. It gets those of the base network, and scores of the defence."""

    attack: Attack = PGD()

    access: ClassVar[Access] = Access.INTERNALS
    edition: ClassVar[int] = 1

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        guide = oracle.on_own_model(base_of(oracle.open()))
        return self.attack(Guided(oracle, guide), x, y, ball, draws)
