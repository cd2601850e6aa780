"""Clean accuracy and accuracy under PGD-20, in float32.

    clean      #{ argmax f(x) = y }
    PGD-20     #{ argmax f(z) = y },  z by `attacks.white_box.pgd` with its defaults, Linf 8/255: the same as
               `antiadv evaluate --attack pgd --threat linf:8/255`, with the same random numbers
    interval   Wilson's, 95 %: `core/interval.py`

PGD-20 is the usual number to compare adversarially trained networks. It is an upper bound of the robust accuracy; use
`antiadv evaluate` for stronger attacks.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from antiadv.attacks.white_box.pgd import PGD
from antiadv.core.attack import Attack
from antiadv.core.ball import Linf
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
BATCH = 1000


def interval(found: Accuracy) -> tuple[float, float]:
    """Wilson's interval at 95 %."""
    return wilson(found.hits, found.total)


def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> Accuracy:
    """Count correct predictions on images [N, C, H, W] in [0, 1]."""
    with noisy(noise_layers(net), 0), attacked(net), torch.no_grad(), _float32():
        hits = sum(_hits(net, part, label) for part, label in zip(x.split(BATCH), y.split(BATCH), strict=True))
    return Accuracy(int(hits), len(x))


def pgd_accuracy(
    net: nn.Module, x: Tensor, y: Tensor, *, attack: Attack = PGD(), batch: int = BATCH, seed: int = 0
) -> Accuracy:
    """Count correct predictions under a white-box attack at 8/255, by default PGD-20."""
    threat = Threat(BALL, Access.GRADIENTS)
    hits: Tensor | int = 0
    with noisy(noise_layers(net), seed), attacked(net), _float32():
        for i in range(0, len(x), batch):
            part, label = x[i : i + batch], y[i : i + batch]
            draws = Draws.of(seed, torch.arange(i, i + len(part), device=x.device))
            z = attack(Oracle(net, threat, Ledger(len(part)), Eager(batch)), part, label, BALL, draws)
            with torch.no_grad():
                hits = hits + _hits(net, z, label)
    return Accuracy(int(hits), len(x))


def _hits(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    hits: Tensor = (net(x).argmax(1) == y).sum()
    return hits


def _float32() -> AbstractContextManager[None]:
    """Turn TF32 and cuDNN benchmarking off.

    Published accuracies must hold without TF32. Benchmarking would run for nearly every pass, since batch sizes vary.
    """
    return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=False, allow_tf32=False)
