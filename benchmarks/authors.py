"""The anti-adversary layer as its authors build it, with which ours is compared.

    label    ŷ = argmax f(x)                                          one forward
    step     γ ← γ − α · sign ∇_γ mean CE(f(x + γ), ŷ)                K forwards and K backwards
    answer   f(x + γ)                                                 one forward

K + 2 forwards and K backwards in plain PyTorch, with the loss averaged over the batch. Written from the description of
their structure (docs/design/layer.md), not from their code. α is in pixels of [0, 1], as in our layer, so both are the
same function.

Notation:   f → `base`, K → `steps`, α → `step_size`, γ → `gamma`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Authors(nn.Module):
    """A classifier. The gradient of its output treats γ as a constant."""

    def __init__(self, base: nn.Module, steps: int, step_size: float) -> None:
        super().__init__()
        self.base, self.steps, self.step_size = base, steps, step_size
        self.training = False  # like the base

    def forward(self, x: Tensor) -> Tensor:
        y = self.base(x).argmax(1)
        gamma = torch.zeros_like(x)
        with torch.enable_grad():
            for _ in range(self.steps):
                gamma.requires_grad_()
                loss = F.cross_entropy(self.base(x + gamma), y)
                (g,) = torch.autograd.grad(loss, gamma)
                gamma = (gamma - self.step_size * g.sign()).detach()
        s: Tensor = self.base(x + gamma)
        return s
