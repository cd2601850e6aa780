"""Rounded scores: the simplest defence. The probabilities are rounded before they are returned.

    p = softmax f(x);   q = p to `digits` decimals, at least ½·10^−digits;   s_k = log q_k, and a little more for k = ŷ

A probability that rounds to 0.00 becomes half of the last digit, so that scores stay finite. Rounding makes ties, so ŷ,
the label of f, gets a tenth of the last digit on top. Thus g has exactly the labels of f. The scores are a staircase:
gradients are zero, and small steps change nothing. Label-based attacks are not affected.

Cost:       one forward pass of f. No random numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from antiadv.core.defence import Defence
from antiadv.core.errors import BadInput
from antiadv.core.losses import wide
from antiadv.core.validation import is_count

MOST = 5  # digits: with more, float32 logarithms do not resolve the mark of the label


class RoundedScores(Defence):
    """The classifier `base` with probabilities rounded to `digits` decimals; with 0 little but the label is left.

    >>> import torch
    >>> g = RoundedScores(torch.nn.Linear(4, 3).eval(), digits=1)
    >>> len(g(torch.eye(4)).exp().mul(20).round().unique()) < 12
    True
    """

    def __init__(self, base: nn.Module, digits: int = 2) -> None:
        super().__init__(base)
        if not is_count(digits, 0, MOST):
            raise BadInput(f"digits must be 0 … {MOST}; found {digits!r}. Use 2.")
        self.digits = digits

    def surrogate(self, kappa: float = 3.0) -> nn.Module:
        """The smooth version is f itself, for any κ."""
        return self.base

    def forward(self, x: Tensor) -> Tensor:
        s = wide(self.ask(x))
        last = 10.0**-self.digits
        q = s.softmax(1).round(decimals=self.digits).clamp_min(last / 2)
        mark = torch.zeros_like(q).scatter(1, s.detach().argmax(1, keepdim=True), last / 10)
        return q.log() + mark
