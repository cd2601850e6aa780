"""TRADES: cross-entropy on x, and the divergence between x and z (Zhang et al., ICML 2019, arXiv:1901.08573).

    minimise   mean [ CE(f(x), y) + β · KL(p(x) ‖ p(z)) ],   z = argmax KL(p(x) ‖ p(z)) over the ball around x
    start      x + 0.001 d, d standard normal: at x the gradient of the divergence is 0

Notation:   β → `beta`, ε → `eps`, α → `step_size·eps` (2/255 by default), p = softmax f.
Cost:       `steps` + 2 forward and backward passes per step, and one forward pass for p(x) in the attack.
Departures: none. As in the authors' code, neither side of the divergence is detached, x and z are separate passes
            (each updates the batch statistics), and the network is in eval mode during the attack.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from antiadv.core.errors import BadSpec
from antiadv.train.inner import PerSample, attacked, cross_entropy, divergence, maximise, require_ball
from antiadv.train.recipe import Batch, Loss, Recipe

START = 0.001  # standard deviation of the start, in pixels of [0, 1]


@dataclass(frozen=True)
class Regularised(Recipe):
    """A loss with β times a divergence, on images near x that raise `objective`. MART is another one."""

    beta: float = 6.0
    eps: float = 8 / 255
    steps: int = 10
    step_size: float = 1 / 4

    def __post_init__(self) -> None:
        require_ball(self.eps, self.steps, self.step_size)
        if not self.beta >= 0:
            raise BadSpec(f"{type(self).__name__.lower()} needs beta >= 0; found {self.beta}")

    @abstractmethod
    def objective(self, net: nn.Module, batch: Batch) -> PerSample: ...

    def perturb(self, net: nn.Module, batch: Batch) -> Tensor:
        start = batch.x + START * batch.d
        with attacked(net):
            loss = self.objective(net, batch)
            return maximise(loss, batch.x, start, self.eps, self.steps, self.step_size)


@dataclass(frozen=True)
class TRADES(Regularised):
    def objective(self, net: nn.Module, batch: Batch) -> PerSample:
        with torch.no_grad():
            s = net(batch.x)
        return lambda z: divergence(s, net(z))

    def loss(self, net: nn.Module, x: Tensor, z: Tensor, y: Tensor) -> Loss:
        s, r = net(x), net(z)
        return Loss(cross_entropy(s, y) + self.beta * divergence(s, r), r)
