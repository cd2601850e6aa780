"""How many test images a network gets right, as they are and under PGD-20, in plain float32.

    clean      #{ argmax f(x) = y }
    PGD-20     #{ argmax f(z) = y },  z by `attacks.white_box.pgd` with its defaults, Linf 8/255: what
               `antiadv evaluate --attack pgd --threat linf:8/255` runs, sample by sample with the same dice
    interval   Wilson's, 95 %: `core/interval.py`

PGD-20 is the number by which adversarially trained networks are usually compared, an upper bound of the robust
accuracy. A stronger verdict is the business of `antiadv evaluate`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from antiadv.attacks.white_box.pgd import PGD
from antiadv.core.attack import Attack
from antiadv.core.ball import Ball, Linf
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager
from antiadv.core.interval import wilson
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.models.card import Accuracy
from antiadv.models.noise import noise_layers, noisy
from antiadv.train.inner import attacked

BALL = Linf(8 / 255)


def interval(found: Accuracy) -> tuple[float, float]:
    """Wilson's interval at 95 %."""
    return wilson(found.hits, found.total)


def accuracy(net: nn.Module, x: Tensor, y: Tensor, *, batch: int = 1000, seed: int = 0) -> Accuracy:
    """Of images [N, C, H, W] in [0, 1]; the network is left as it was."""
    with noisy(noise_layers(net), seed), attacked(net), torch.no_grad(), _float32():
        hits = sum(_hits(net, x[i : i + batch], y[i : i + batch]) for i in range(0, len(x), batch))
    return Accuracy(int(hits), len(x))


def pgd_accuracy(
    net: nn.Module, x: Tensor, y: Tensor, *, attack: Attack = PGD(), ball: Ball = BALL, batch: int = 1000, seed: int = 0
) -> Accuracy:
    """The same under an attack with gradients, by default PGD-20 at 8/255."""
    threat = Threat(ball, Access.GRADIENTS)
    hits: Tensor | int = 0
    with noisy(noise_layers(net), seed), attacked(net), _float32():
        for i in range(0, len(x), batch):
            part, label = x[i : i + batch], y[i : i + batch]
            draws = Draws.of(seed, torch.arange(i, i + len(part), device=x.device))
            z = attack(Oracle(net, threat, Ledger(len(part)), Eager(batch)), part, label, ball, draws)
            with torch.no_grad():
                hits = hits + _hits(net, z, label)
    return Accuracy(int(hits), len(x))


def _hits(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    hits: Tensor = (net(x).argmax(1) == y).sum()
    return hits


def _float32() -> AbstractContextManager[None]:
    """No TF32 in convolutions: what is published must hold on a machine that has none.

    Nor do they try their algorithms first: as samples fall nearly every pass has another size, and each would be tried.
    """
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=False, allow_tf32=False)
