"""Adversarial training with PGD (Madry et al., ICLR 2018, arXiv:1706.06083).

    minimise   mean CE(f(z), y),   z = argmax CE(f(z), y) over the ball around x
    start      x + ε u, u uniform in (−1, 1)

Notation:   ε → `eps`, α → `step_size·eps` (2/255 by default).
Cost:       `steps` + 1 forward and backward passes per step.
Departures: the network is in eval mode during the attack; the authors attack in training mode.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from antiadv.train.inner import attacked, cross_entropy, maximise, require_ball, uniform
from antiadv.train.recipe import Batch, Loss, Recipe


@dataclass(frozen=True)
class PGD(Recipe):
    eps: float = 8 / 255
    steps: int = 10
    step_size: float = 1 / 4

    def __post_init__(self) -> None:
        require_ball(self.eps, self.steps, self.step_size)

    def perturb(self, net: nn.Module, batch: Batch) -> Tensor:
        start = batch.x + self.eps * uniform(batch.d)
        with attacked(net):
            return maximise(
                lambda z: cross_entropy(net(z), batch.y), batch.x, start, self.eps, self.steps, self.step_size
            )

    def loss(self, net: nn.Module, x: Tensor, z: Tensor, y: Tensor) -> Loss:
        s = net(z)
        return Loss(cross_entropy(s, y), s)
