"""Scaled scores (random logit scaling): g(x) = c·f(x), c ~ U(low, high), fresh at every query.

Two queries can no longer be compared by their margins: the larger one may only have the larger c. No label changes. The
ratio of two differences of scores does not depend on c. So an attack with a scale-free loss (`square:loss=dlr`) sees f
itself.

Notation:   c → `draws.uniform`; U(0.5, 10) by default.
Cost:       one forward pass of f.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from antiadv.core.defence import TRANSFERS, Randomised
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.core.validation import is_number

MOST = 1000.0  # scale: larger ones leave the range of float16


class ScaledScores(Randomised):
    """The classifier `base` with scores times a random number from `low` to `high`.

    >>> import torch
    >>> f = torch.nn.Linear(4, 3).eval()
    >>> x = torch.eye(4)
    >>> g = ScaledScores(f)
    >>> bool((g(x) == g(x)).any()), bool((g(x).argmax(1) == f(x).argmax(1)).all())
    (False, True)
    """

    adaptive: ClassVar[tuple[str, ...]] = (*TRANSFERS, "apgd:loss=dlr", "square:loss=dlr,steps=1000")

    def __init__(self, base: nn.Module, low: float = 0.5, high: float = 10.0) -> None:
        super().__init__(base)
        if not is_number(low, MOST) or not is_number(high, MOST) or not 0 < low <= high:
            raise BadInput(
                f"scales must be 0 < low ≤ high ≤ {MOST:.0f}; found low={low!r}, high={high!r}. Use 0.5 and 10."
            )
        self.low, self.high = float(low), float(high)

    def answer(self, x: Tensor, draws: Draws) -> Tensor:
        s: Tensor = self.base(x.clone())  # a copy, because the base may write in place
        return s * (self.low + (self.high - self.low) * draws.uniform(1)).to(s)
