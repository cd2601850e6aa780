"""MART: misclassified samples get more weight (Wang et al., ICLR 2020).

    minimise   mean [ BCE(z) + β · w · KL(p(x) ‖ p(z)) ],   z = argmax CE(f(z), y) over the ball around x
    BCE(z)     CE(f(z), y) − log(1 − max_{k≠y} p_k(z))
    w          1 − p_y(x), in (0, 1]: near 0 for a sample that is predicted correctly with confidence
    start      x + 0.001 d, d standard normal

Notation:   β → `beta`, ε → `eps`, α → `step_size·eps` (2/255 by default), p = softmax f.
Cost:       `steps` + 2 forward and backward passes per step.
Departures: the authors keep logarithms finite with constants (1.0001 − p, p + 1e-12, 1.0000001 − p_y). We use the
            first, compute the divergence from log-softmax, and keep w above 1e-7.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from antiadv.train.inner import PerSample, cross_entropy, divergence
from antiadv.train.recipe import Batch, Loss
from antiadv.train.trades import Regularised


@dataclass(frozen=True)
class MART(Regularised):
    beta: float = 5.0

    def objective(self, net: nn.Module, batch: Batch) -> PerSample:
        return lambda z: cross_entropy(net(z), batch.y)

    def loss(self, net: nn.Module, x: Tensor, z: Tensor, y: Tensor) -> Loss:
        s, r = net(x), net(z)
        return Loss(boosted_cross_entropy(r, y) + self.beta * weight(s, y) * divergence(s, r), r)


def boosted_cross_entropy(s: Tensor, y: Tensor) -> Tensor:
    """CE(s, y) − log(1.0001 − the largest probability of a wrong class), [N]."""
    p = s.float().softmax(1)
    wrong = p.scatter(1, y[:, None], 0.0).amax(1)
    return cross_entropy(s, y) - (1.0001 - wrong).log()


def weight(s: Tensor, y: Tensor) -> Tensor:
    """1 − p_y, [N], in (0, 1]."""
    p = s.float().softmax(1).gather(1, y[:, None]).squeeze(1)
    return (1 - p).clamp(min=1e-7)
