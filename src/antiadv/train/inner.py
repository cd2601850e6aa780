"""The inner maximisation of adversarial training: projected sign-gradient ascent on a per-sample loss.

    maximise   ℓ(z)        over ‖z − x‖_∞ ≤ ε, z in [0, 1]
    start      z = Π(x + σ d)  or  z = Π(x + ε u),  u uniform in (−1, 1)
    step       z ← Π(z + α·sign ∇ℓ(z))

Notation:   ε → `eps`, α → `step_size·eps`, d → `batch.d` (standard normal), u = erf(d/√2).
Cost:       `steps` forward and backward passes to the input.
Departures: the network is in eval mode during the attack; some authors attack in training mode. A step size is a share
            of ε, as everywhere in this library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.core.errors import BadSpec

PerSample = Callable[[Tensor], Tensor]  # images to losses [N]


def maximise(loss: PerSample, x: Tensor, z: Tensor, eps: float, steps: int, step_size: float) -> Tensor:
    """Take `steps` of ascent from z, inside the ball around x and [0, 1]."""
    low, high = (x - eps).clamp(min=0), (x + eps).clamp(max=1)
    z = z.detach().clamp(low, high)
    for _ in range(steps):
        z.requires_grad_(True)
        (g,) = torch.autograd.grad(loss(z).sum(), z)
        z = (z.detach() + step_size * eps * g.sign()).clamp(low, high)
    return z.detach()


def uniform(d: Tensor) -> Tensor:
    """Convert standard normal numbers to uniform ones in (−1, 1): 2Φ(d) − 1."""
    return torch.erf(d / math.sqrt(2))


@contextmanager
def attacked(net: nn.Module) -> Iterator[nn.Module]:
    """Set eval mode without parameter gradients, and restore both at the end."""
    training = [m for m in net.modules() if m.training]
    learning = [p for p in net.parameters() if p.requires_grad]
    net.eval()
    for p in learning:
        p.requires_grad_(False)
    try:
        yield net
    finally:
        for p in learning:
            p.requires_grad_(True)
        for m in training:
            m.training = True


def cross_entropy(s: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy [N], always in float32."""
    return F.cross_entropy(s.float(), y, reduction="none")


def divergence(s: Tensor, r: Tensor) -> Tensor:
    """KL(softmax s ‖ softmax r), [N]; 0 for equal scores."""
    log_p, log_q = F.log_softmax(s.float(), 1), F.log_softmax(r.float(), 1)
    return (log_p.exp() * (log_p - log_q)).sum(1)


def require_ball(eps: float, steps: int, step_size: float) -> None:
    """Check the options that all adversarial recipes share."""
    if not (0 <= eps <= 1 and steps >= 0 and step_size > 0):
        raise BadSpec(
            f"an inner maximisation needs 0 <= eps <= 1, steps >= 0 and step_size > 0 (a share of eps); "
            f"found eps {eps}, steps {steps}, step_size {step_size}"
        )
