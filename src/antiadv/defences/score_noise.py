"""Score noise (oRND): g(x) = f(x) + σ·n, n ~ N(0, I), fresh at every query.

    gate       noise only where max softmax f(x) ≤ θ: near the boundary. This is the boundary defence
               (Aithal and Li, arXiv:2201.13444), with θ = 0.3 and σ = 0.1 on ImageNet.

The label may change by chance where the margin is small against σ. The mean of m answers (`eot`) has noise of σ/√m, and
gradients have none.

Notation:   σ → `std` (in logits: 1 for standard networks, 0.3 for robust ones), θ → `gate` (1: always noise).
Cost:       one forward pass of f.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from antiadv.core.defence import LARGEST, Randomised
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.core.validation import is_number
from antiadv.defences.small_noise import check_gate, unsure


class ScoreNoise(Randomised):
    """The classifier `base` with Gaussian noise on its scores, where its confidence is at most `gate`.

    >>> import torch
    >>> g = ScoreNoise(torch.nn.Linear(4, 3).eval())
    >>> bool((g(torch.eye(4)) == g(torch.eye(4))).any())
    False
    """

    def __init__(self, base: nn.Module, std: float = 1.0, gate: float = 1.0) -> None:
        super().__init__(base)
        if not is_number(std, LARGEST):
            raise BadInput(f"the noise needs a std of 0 … {LARGEST:.0f}, in logits; found {std!r}. Use 1.")
        check_gate(gate)
        self.std, self.gate = std, float(gate)

    def answer(self, x: Tensor, draws: Draws) -> Tensor:
        s: Tensor = self.base(x.clone())  # a copy, because the base may write in place
        noisy = s + self.std * draws.normal(*s.shape[1:]).to(s)
        return noisy if self.gate == 1 else torch.where(unsure(s, self.gate), noisy, s)
