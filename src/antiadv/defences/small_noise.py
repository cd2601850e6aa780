"""Small input noise (Byun, Go, Kim, arXiv:2101.04829): g(x) = f(x + σ·n), n ~ N(0, I), fresh at every query.

An attack that compares scores compares two draws, and their difference has noise of std √2·σ|∇|. Averaging m gradients
at a point (`eot`) reduces the noise to 1/√m.

Notation:   σ → `std` (pixels of [0, 1], before any normalisation inside the base), n → `draws.normal`.
Cost:       one forward pass of f.
Departures: the paper does not say whether the noisy image is clipped into [0, 1]: `clip`, off by default.
"""

from __future__ import annotations

from torch import Tensor, nn

from antiadv.core.defence import LARGEST, Randomised
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.core.validation import check_flag, is_number


class SmallNoise(Randomised):
    """The classifier `base` with Gaussian noise on its input; `std=0` is the base, bit for bit.

    >>> import torch
    >>> g = SmallNoise(torch.nn.Linear(4, 3).eval(), std=0.1)
    >>> x = torch.full((5, 4), 0.5)
    >>> bool((g(x) == g(x)).any())
    False
    """

    def __init__(self, base: nn.Module, std: float = 0.01, clip: bool = False) -> None:
        super().__init__(base)
        if not is_number(std, LARGEST):
            raise BadInput(f"the noise needs a std of 0 … {LARGEST:.0f}, in pixels of [0, 1]; found {std!r}. Use 0.01.")
        check_flag(clip=clip)
        self.std, self.clip = std, clip

    def extra_repr(self) -> str:
        return f"std={self.std}, clip={self.clip}"

    def answer(self, x: Tensor, draws: Draws) -> Tensor:
        z = x + self.std * draws.normal(*x.shape[1:]).to(x) if self.std else x.clone()
        s: Tensor = self.base(z.clamp(0, 1) if self.clip else z)
        return s
