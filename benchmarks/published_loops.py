"""NES and Bandits as published, in plain batched loops. No package has them, so our attacks are compared with these.

    both       maximise ℓ(z) = CE(s(z), y), z within ε of x in Linf and in the box          (Ilyas et al., 2018, 2019)
    nes        G = Σ_{i=1}^{q} [ℓ(z + σuᵢ) − ℓ(z − σuᵢ)] / σ · uᵢ,  uᵢ ~ N(0, I/d);   G = 0 once fooled       (1)
    bandits    e = δ·n,  n ~ N(0, I/dim v);   a± = up(v ± e)
               g = [ℓ(z + σ·a₊/|a₊|) − ℓ(z + σ·a₋/|a₋|)] / (σδ) · e;   v ← tanh(artanh v + h·g)              (2)
    step       z ← Π( z + η·sign G )   or   Π( z + η·sign up(v) )                                            (3)
    count      2q queries an update (q = 1 for bandits), added before it; the loop ends when the sum reaches the
               budget, so 10,000 pay for 99 updates of 50 pairs and for 4,999 of one; checks of z are not counted (4)

Written from the published description, not from the attacks of this project. There is one global generator for the
batch, every image is queried until all are fooled, losses are in float32, and probes are not clipped. The first image
that fools is kept; in bandits a fooled image moves on, as published. (2) is the exponentiated gradient in a form that
does not overflow, which is the only change.

Notation:   σ → `sigma`, q → `pairs`, η → `step`, δ → `exploration`, h → `prior_step`, v → `v`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class FirstSuccess:
    """Keeps the first fooling image of each sample, and the published count at which it came (0: none yet)."""

    def __init__(self, net: nn.Module, x: Tensor, y: Tensor) -> None:
        self._net, self._y = net, y
        self.z, self.fell = x.clone(), torch.zeros_like(y)

    @property
    def done(self) -> Tensor:
        return self.fell > 0

    def check(self, z: Tensor, spent: int) -> None:
        new = (self._net(z).argmax(1) != self._y) & ~self.done
        self.fell[new] = spent
        self.z[~self.done | new] = z[~self.done | new]


@torch.no_grad()
def nes(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: float,
    queries: int = 10_000,
    *,
    pairs: int = 50,
    sigma: float = 0.1,
    step: float = 0.01,
) -> tuple[Tensor, Tensor]:
    """Return the images, and the count at which each sample was fooled (0: it was not)."""
    z, first, spent = x.clone(), FirstSuccess(net, x, y), 2 * pairs
    while spent < queries and not first.done.all():  # (4)
        g = torch.zeros_like(z)
        for _ in range(pairs):
            u = torch.randn_like(z) / math.sqrt(x[0].numel())
            rise = _loss(net, z + sigma * u, y) - _loss(net, z - sigma * u, y)
            g += _wide(rise / sigma) * u  # (1)
        z = _within(x, z + step * g.sign() * _wide(~first.done), eps)
        first.check(z, spent)
        spent += 2 * pairs
    return first.z, first.fell


@torch.no_grad()
def bandits(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: float,
    queries: int = 10_000,
    *,
    tile: int = 16,
    sigma: float = 0.1,
    step: float = 0.01,
    prior_step: float = 100.0,
    exploration: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return the images, and the count at which each sample was fooled (0: it was not)."""
    z, first, spent = x.clone(), FirstSuccess(net, x, y), 2
    v = x.new_zeros(len(x), x.shape[1], tile, tile)

    def up(v: Tensor) -> Tensor:
        return F.interpolate(v, size=x.shape[2:], mode="nearest")

    def probe(v: Tensor) -> Tensor:
        a = up(v)
        return _loss(net, z + sigma * a / _wide(a.flatten(1).norm(dim=1)), y)

    while spent < queries and not first.done.all():  # (4)
        e = exploration * torch.randn_like(v) / math.sqrt(v[0].numel())
        slope = (probe(v + e) - probe(v - e)) / (sigma * exploration)
        v = torch.tanh(torch.atanh(v) + prior_step * _wide(slope) * e)  # (2)
        z = _within(x, z + step * up(v).sign(), eps)  # (3)
        first.check(z, spent)
        spent += 2
    return first.z, first.fell


def _loss(net: nn.Module, z: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(net(z), y, reduction="none")


def _within(x: Tensor, z: Tensor, eps: float) -> Tensor:
    return torch.minimum(torch.maximum(z, x - eps), x + eps).clamp(0, 1)


def _wide(v: Tensor) -> Tensor:
    return v.view(-1, 1, 1, 1)
