"""Hedge Defence (Wu et al., 2021, arXiv:2106.04938): g(x) = f(x + δ), where δ attacks all classes at once.

    start    δ⁰ uniform in [−ε, ε]
    step     δᵏ⁺¹ = Π( δᵏ + α · sign ∇_δ Σ_c CE(f(x + δᵏ), c) )     k = 0 … K−1; the sum is over all C classes     (1)
    Π        |δ| ≤ ε, and x + δ in [0, 1]
    answer   f(x + δᴷ)

The loss in (1) is C·logsumexp(s) − Σ s. Its slope in score c is C·p_c − 1: a step raises the scores of classes that are
more probable than 1/C, and lowers the others. So f grows more confident of a class, as with `anti_adversary`; but the
label may change on the way, and the start is random. That is why transfer alone flatters this defence: an image just
beyond the boundary of f may get its old label back. Croce et al. (ICML 2022, arXiv:2202.13711) undo it by APGD through
a shorter defence, with δ held constant in the gradient and averaged over starts. `surrogate` is that shorter defence,
and `adaptive` runs APGD through it.

Notation:   ε → `radius`, α → `step_size` (both in pixels of [0, 1]), K → `steps`, δ → `delta`, Π → `_inside`.
Cost:       K + 1 forward and K backward passes of f.
Departures: none known. The gradient of g holds δ constant (sign steps are constant almost everywhere).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from antiadv.core.defence import FURTHER, TRANSFERS, Randomised
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.core.losses import signs, wide
from antiadv.core.validation import check_shape, check_slope, is_count, is_number, require_gradient

SHORT = 5  # steps of the surrogate; a quarter of the default


class Hedge(Randomised):
    """The classifier `base` on images that were moved against all classes; `steps=0` leaves the random start alone.

    >>> import torch
    >>> g = Hedge(torch.nn.Linear(4, 3).eval(), steps=2)
    >>> g(torch.full((5, 4), 0.5)).shape
    torch.Size([5, 3])
    """

    adaptive: ClassVar[tuple[str, ...]] = (
        *(*TRANSFERS, FURTHER),
        "bpda:attack=go_on",
        "smooth:attack=apgd",
        "smooth:attack=(apgd:loss=dlr)",
        "bpda:attack=apgd",
    )

    def __init__(self, base: nn.Module, steps: int = 20, step_size: float = 4 / 255, radius: float = 8 / 255) -> None:
        super().__init__(base)
        if not is_count(steps, 0):
            raise BadInput(f"hedge needs an integer steps ≥ 0; found {steps!r}. Use steps=20 as in the paper.")
        for name, value, usual in (("step_size", step_size, "4/255"), ("radius", radius, "8/255")):
            if not is_number(value, 1):
                raise BadInput(f"hedge needs a {name} of 0 … 1, in pixels of [0, 1]; found {value!r}. Use {usual}.")
        self.steps, self.step_size, self.radius = steps, float(step_size), float(radius)

    def surrogate(self, kappa: float = 3.0) -> nn.Module:
        """The same defence with at most five steps, for any κ: its gradient is less noisy, and it costs less."""
        if self.steps <= SHORT:
            return self
        return Hedge(self.base, SHORT, self.step_size, self.radius)

    def answer(self, x: Tensor, draws: Draws) -> Tensor:
        moved = self._moved(x, draws)
        s: Tensor = self.base(moved + (x - x.detach()))  # the value of `moved`, the gradient of x
        return s

    def _moved(self, x: Tensor, draws: Draws) -> Tensor:
        """x + δᴷ, without gradient."""
        with torch.inference_mode(False), torch.enable_grad():
            x = x.detach().clone()
            z = self._inside(x, x + self.radius * (2 * draws.uniform(*x.shape[1:]).to(x) - 1))
            for _ in range(self.steps if len(x) else 0):
                z = self._inside(x, z + self.step_size * self._direction(z))
        return z

    def _direction(self, z: Tensor) -> Tensor:
        """sign ∇ of the loss (1) at z."""
        z = z.clone().requires_grad_()  # a copy, because the base may write in place
        s: Tensor = self.base(z * 1)
        check_shape(s, z)
        check_slope(s)
        s = wide(s)
        (g,) = torch.autograd.grad((s.shape[1] * s.logsumexp(1) - s.sum(1)).sum(), z, allow_unused=True)
        return signs(require_gradient(g), s)

    def _inside(self, x: Tensor, z: Tensor) -> Tensor:
        low, high = (x - self.radius).clamp_min(0), (x + self.radius).clamp_max(1)
        return torch.minimum(torch.maximum(z, low), high)
