"""EOT: expectation over transformation (Athalye et al., ICML 2018, arXiv:1707.07397): average over random numbers.

    scores      1/m · Σ_i s_i(z)             over m fresh draws of the defence at the same point
    gradient    1/m · Σ_i ∇L(s_i(z), y)      the gradient of E L, with 1/√m of the noise
    label       the most frequent of m

Notation:   m → `samples`.
Cost:       m queries for each query of the attack. A sample that cannot pay for m stops.
Departures: in a tie between labels the smallest class wins. A deterministic classifier is asked m times as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from antiadv.attacks.adaptive.wrapped import Wrapped
from antiadv.attacks.white_box.pgd import PGD
from antiadv.core.attack import Attack, least_queries
from antiadv.core.ball import Ball
from antiadv.core.draws import Draws
from antiadv.core.losses import Loss
from antiadv.core.oracle import Oracle
from antiadv.core.oracle_wrapper import OracleWrapper
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import at_least


class Averaged(OracleWrapper):
    """Every answer averages `samples` answers. They are sent together, and all are charged."""

    def __init__(self, inner: Oracle, samples: int) -> None:
        super().__init__(inner)
        self.samples = samples

    def left(self) -> Tensor:
        return self.inner.left() // self.samples

    def repeated(self, z: Tensor) -> Tensor:
        refused: Tensor = self._by_sample(self.inner.repeated(self._repeat(z))).any(1)
        return refused

    @property
    def randomised(self) -> bool:
        return False  # the attack takes the means for the answers of a deterministic classifier

    def labels(self, z: Tensor) -> Tensor:
        labels: Tensor = self._by_sample(self.inner.labels(self._repeat(z))).mode(1).values
        return labels

    def scores(self, z: Tensor) -> Tensor:
        return self._by_sample(self.inner.scores(self._repeat(z))).mean(1)

    def gradient(self, z: Tensor, loss: Loss, *targets: Tensor) -> tuple[Tensor, Tensor]:
        s, g = self.inner.gradient(self._repeat(z), loss, *map(self._repeat, targets))
        return self._by_sample(s).mean(1), self._by_sample(g).mean(1)

    def jacobian(self, z: Tensor) -> tuple[Tensor, Tensor]:
        s, j = self.inner.jacobian(self._repeat(z))
        return self._by_sample(s).mean(1), self._by_sample(j).mean(1)

    def on_own_model(self, model: nn.Module) -> Oracle:
        """Answers of a randomised model are averaged as well, such as a shorter version of the defence."""
        own = self.inner.on_own_model(model)
        return Averaged(own, self.samples) if own.randomised else own

    def _repeat(self, v: Tensor) -> Tensor:
        return v.repeat_interleave(self.samples, 0)

    def _by_sample(self, v: Tensor) -> Tensor:
        return v.reshape(len(v) // self.samples, self.samples, *v.shape[1:])


@dataclass(frozen=True)
class EOT(Wrapped):
    """`attack` is any attack. It gets means over `samples` draws."""

    attack: Attack = PGD()
    samples: int = 20

    edition: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least(1, samples=self.samples)

    @property
    def access(self) -> Access:
        return self.attack.access

    def least_queries(self, threat: Threat) -> int:
        return self.samples * least_queries(self.attack, threat)

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        return self.attack(Averaged(oracle, self.samples), x, y, ball, draws)
