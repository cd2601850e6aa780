"""Small input noise (Byun, Go, Kim, arXiv:2101.04829): g(x) = f(x + σ·n), n ~ N(0, I), fresh at every query.

An attack that compares scores compares two draws, and their difference has noise of std √2·σ|∇|. Averaging m gradients
at a point (`eot`) reduces the noise to 1/√m.

    gate       noise only where max softmax f(x) ≤ τ; else the answer is f(x)          (Zimmer et al., AAAI 2024)

Attacks on labels work near the boundary, where the confidence is low; most clean images keep their answer.

Notation:   σ → `std` (pixels of [0, 1], before any normalisation inside the base), n → `draws.normal`, τ → `gate` (1:
            always noise).
Cost:       one forward pass of f; two with a gate, for every sample.
Departures: the paper does not say whether the noisy image is clipped into [0, 1]: `clip`, off by default.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from antiadv.core.defence import LARGEST, Randomised
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.core.losses import wide
from antiadv.core.validation import check_flag, check_shape, is_number


class SmallNoise(Randomised):
    """The classifier `base` with Gaussian noise on its input; `std=0` is the base, bit for bit.

    `gate` is a confidence in (0, 1]: a sample on which f is more confident gets the answer of f, without noise.

    >>> import torch
    >>> g = SmallNoise(torch.nn.Linear(4, 3).eval(), std=0.1)
    >>> x = torch.full((5, 4), 0.5)
    >>> bool((g(x) == g(x)).any())
    False
    """

    later: ClassVar[tuple[str, ...]] = ("gate",)

    def __init__(self, base: nn.Module, std: float = 0.01, clip: bool = False, gate: float = 1.0) -> None:
        super().__init__(base)
        if not is_number(std, LARGEST):
            raise BadInput(f"the noise needs a std of 0 … {LARGEST:.0f}, in pixels of [0, 1]; found {std!r}. Use 0.01.")
        check_flag(clip=clip)
        check_gate(gate)
        self.std, self.clip, self.gate = std, clip, float(gate)

    def answer(self, x: Tensor, draws: Draws) -> Tensor:
        z = x + self.std * draws.normal(*x.shape[1:]).to(x) if self.std else x.clone()
        s: Tensor = self.base(z.clamp(0, 1) if self.clip else z)
        if self.gate == 1:
            return s
        plain: Tensor = self.base(x.clone())  # a copy, because the base may write in place
        check_shape(plain, x)
        return torch.where(unsure(plain, self.gate), s, plain)


def check_gate(gate: float) -> None:
    if not is_number(gate, 1) or gate == 0:
        raise BadInput(f"the gate, a confidence, must be a number in (0, 1]; found {gate!r}. Use 0.9, or 1 for none.")


def unsure(s: Tensor, gate: float) -> Tensor:
    """Whether the confidence of these scores is at most the gate, `[N, 1]`."""
    return wide(s.detach()).softmax(1).amax(1, keepdim=True) <= gate
