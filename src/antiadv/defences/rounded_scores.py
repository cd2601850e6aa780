"""Rounded scores: what any engineer tries first. The probabilities are rounded before they leave.

    p = softmax f(x);   q = p to `digits` decimals, at least ½·10^−digits;   s_k = log q_k, and a little more for k = ŷ

What reads 0.00 is known to be below half a last digit: that is its logarithm here, so that scores stay finite. ŷ, the
label of f, gets a tenth of the smallest step between two answers on top, because rounding makes ties: so g has the
labels of f, exactly. The scores are a staircase: gradients are zero, small steps go unseen. Labels tell everything.

Notation:   ŷ → `label`.
Cost:       one forward pass of f. No dice.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from antiadv.core.defence import Defence
from antiadv.core.errors import BadInput
from antiadv.core.validation import check_float, check_shape, check_still

MOST = 5  # digits: float32 logarithms cannot tell finer probabilities and the mark of the label apart


class RoundedScores(Defence):
    """The classifier `base`, its probabilities rounded to `digits` decimals; 0 leaves the label alone.

    >>> import torch
    >>> g = RoundedScores(torch.nn.Linear(4, 3).eval(), digits=1)
    >>> len(g(torch.eye(4)).exp().mul(20).round().unique()) < 12
    True
    """

    def __init__(self, base: nn.Module, digits: int = 2) -> None:
        super().__init__(base)
        if not isinstance(digits, int) or isinstance(digits, bool) or not 0 <= digits <= MOST:
            raise BadInput(f"scores are rounded to 0 … {MOST} digits; found {digits!r}. Use 2.")
        self.digits = digits

    def extra_repr(self) -> str:
        return f"digits={self.digits}"

    def surrogate(self, kappa: float = 3.0) -> nn.Module:
        """The staircase made smooth is f itself, whatever κ."""
        return self.base

    def forward(self, x: Tensor) -> Tensor:
        check_float(x)
        check_still(self.base)
        s: Tensor = self.base(x.clone())  # which may work in place
        check_shape(s, x)
        s = s if s.dtype == torch.float64 else s.float()
        last = 10.0**-self.digits
        q = s.softmax(1).round(decimals=self.digits).clamp_min(last / 2)
        mark = torch.zeros_like(q).scatter(1, s.detach().argmax(1, keepdim=True), last / 10)
        return q.log() + mark
