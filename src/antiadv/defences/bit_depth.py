"""Fewer bits per pixel (Xu et al., NDSS 2018, arXiv:1704.01155; Guo et al., ICLR 2018, arXiv:1711.00117).

    g(x) = f( round(x·L) / L ),   L = 2ᵇ − 1

A pixel keeps one of 2ᵇ values. Rounding has no slope, so the gradient of g is zero, and changes below half a level are
removed. It is undone by BPDA: rounding is close to the identity, so the gradient of f takes the place of that of g.

Notation:   b → `bits`.
Cost:       one forward pass of f. No random numbers.
Departures: some code rounds down, to multiples of 2⁻ᵇ. That darkens the image and has no value for white.
"""

from __future__ import annotations

from torch import Tensor, nn

from antiadv.core.defence import Defence
from antiadv.core.errors import BadInput
from antiadv.core.losses import wide
from antiadv.core.validation import is_count


class BitDepth(Defence):
    """The classifier `base` on images with `bits` bits for each pixel and channel.

    >>> import torch
    >>> BitDepth(torch.nn.Flatten().eval(), bits=1)(torch.tensor([[0.1, 0.4, 0.6, 0.9]]))
    tensor([[0., 0., 1., 1.]])
    """

    def __init__(self, base: nn.Module, bits: int = 4) -> None:
        super().__init__(base)
        if not is_count(bits, 1, 8):
            raise BadInput(f"bits must be 1 … 8; found {bits!r}. Use 4.")
        self.bits = bits

    def surrogate(self, kappa: float = 3.0) -> nn.Module:
        """The smooth version is f itself, for any κ."""
        return self.base

    def forward(self, x: Tensor) -> Tensor:
        return self.ask(x, self.rounded)

    def shown(self, x: Tensor) -> Tensor:
        return self.rounded(x)

    def rounded(self, x: Tensor) -> Tensor:
        """The images as the base sees them."""
        levels = 2**self.bits - 1
        coarse: Tensor = (wide(x) * levels).round() / levels
        return coarse.to(x.dtype)
