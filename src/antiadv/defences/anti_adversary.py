"""The anti-adversary layer (Alfarra et al., AAAI 2022, Algorithm 1): g(x) = f(x + γ).

    label    ŷ = argmax f(x),  γ⁰ = 0
    step     γᵏ⁺¹ = γᵏ − α · sign ∇_γ CE(f(x + γᵏ), ŷ)        k = 0 … K−1: f grows more confident of its own label
    answer   f(x + γᴷ)

Notation:   f → `base`, K → `steps`, α → `step_size` (pixels of [0, 1]), γ → `gamma`.
Cost:       K + 1 forward and K backward passes of f; the label and the first step share a forward pass.
Departures: the authors' code needs K + 2 forward passes, averages CE over the batch, and steps in normalised space.

Where f and g predict the same label, the same images fool both. The layer hides scores and gradients and does not
change predictions. Attacks that compare scores need many more queries; an attack computed on f and sent to g undoes
the layer. If a step is too long, x + γ leaves the class that f gives x. Then g is wrong where f is right, and the
layer makes f weaker.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.core.ball import per_row
from antiadv.core.defence import LARGEST, Defence
from antiadv.core.errors import BadInput
from antiadv.core.validation import (
    check_flag,
    check_float,
    check_shape,
    check_slope,
    check_still,
    fitting,
    is_number,
    require_gradient,
)


class AntiAdversary(Defence):
    """The classifier `base` with the anti-adversary layer; again a classifier.

    `step_size` is in pixels of [0, 1], before any normalisation inside the base: one number, or one per channel. The
    authors step in normalised space, so their α is α·std of the channel here: `step_size=tuple(0.15 * s for s in std)`.
    `clip` keeps x + γ in [0, 1]; off by default, as in their code. `steps=0` is the base, bit for bit.

    Longer steps are not safer. On robust networks K = 1, α = 0.15 and K = 2, α = 0.3 may leave g weaker than f against
    an attacker who knows the layer. A standard network loses clean accuracy with 0.15 and keeps it with 0.01. The
    tables are in docs/reproduction.md (behind the gains) and docs/confidence.md.

    The loss is summed, not averaged over the batch: an average underflows sooner. The gradient of g holds γ constant.
    That is exact, because sign steps are constant almost everywhere, but it does not see the loop. With `clip`, at
    pixels held at 0 or 1, it is the gradient of f there, where that of g is 0.

    >>> import torch
    >>> g = AntiAdversary(torch.nn.Linear(4, 3).eval(), steps=2, step_size=0.1)
    >>> g(torch.full((5, 4), 0.5)).shape
    torch.Size([5, 3])
    """

    adaptive: ClassVar[tuple[str, ...]] = (*Defence.adaptive, "pseudo_label")

    def __init__(
        self, base: nn.Module, steps: int = 2, step_size: float | tuple[float, ...] = 0.15, clip: bool = False
    ) -> None:
        super().__init__(base)
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
            raise BadInput(f"the layer needs an integer steps ≥ 0; found {steps!r}. Use steps=2 as in the paper.")
        check_flag(clip=clip)
        self.steps, self.step_size, self.clip = steps, step_size, clip

    @property
    def step_size(self) -> float | tuple[float, ...]:
        return self._step_size

    @step_size.setter
    def step_size(self, value: float | tuple[float, ...]) -> None:
        sizes = value if isinstance(value, tuple) else (value,)
        if not sizes or not all(is_number(a, LARGEST) for a in sizes):
            raise BadInput(
                f"the layer needs a step size of 0 … {LARGEST:.0f}, in pixels of [0, 1]; found {value!r}. Use 0.15."
            )
        self._step_size = value
        # a buffer, so that it follows the module to its device; not persistent, because it is an option and no weight
        per_channel = torch.tensor(sizes, dtype=torch.float64) if isinstance(value, tuple) else None
        self.register_buffer("_per_channel", per_channel, persistent=False)

    def extra_repr(self) -> str:
        return f"steps={self.steps}, step_size={self.step_size}, clip={self.clip}"

    def forward(self, x: Tensor) -> Tensor:
        check_float(x)
        check_still(self.base)
        if self.steps == 0 or len(x) == 0:
            return self._classify(x.clone())  # a base that writes in place must not change the caller's images
        return self._classify(self._moved(x, self.correction(x)))

    def correction(self, x: Tensor) -> Tensor:
        """γ for each image, without gradient: K forward and K backward passes."""
        with torch.inference_mode(False), torch.enable_grad():
            x, alpha = x.detach(), self._alpha(x)
            gamma, y = None, None
            for _ in range(self.steps):
                g, y = self._ascent(self._moved(x, gamma), y)
                gamma = _less(gamma, alpha, g.sign())
                gamma = self._moved(x, gamma) - x if self.clip else gamma
        return torch.zeros_like(x) if gamma is None else gamma.detach()

    def surrogate(self, kappa: float = 3.0) -> nn.Module:
        return Smoothed(self, kappa)

    def _ascent(self, z: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        """∇CE(f(z), y) and y. If y is None, the label comes from the same forward pass."""
        if torch.compiler.is_compiling():  # the compiler would break the graph at `autograd.grad`

            def loss(z: Tensor) -> tuple[Tensor, Tensor]:
                s = self._classify(z)
                label = s.detach().argmax(1) if y is None else y
                return _loss(s, label), label

            traced: tuple[Tensor, Tensor] = torch.func.grad(loss, has_aux=True)(z)
            return traced
        z = z.requires_grad_()
        s = self._classify(z)
        check_slope(s)
        y = s.detach().argmax(1) if y is None else y
        (g,) = torch.autograd.grad(_loss(s, y), z, allow_unused=True)
        return require_gradient(g), y

    def _moved(self, x: Tensor, gamma: Tensor | None) -> Tensor:
        """x + γ as a new tensor, which the base may write into, and which may require gradients."""
        if gamma is None:
            return x.clamp(0, 1) if self.clip else x.clone()
        return (x + gamma).clamp(0, 1) if self.clip else x + gamma

    def _classify(self, z: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            s: Tensor = self.base(z)
        else:
            with fitting(self.base, z):
                s = self.base(z)
        check_shape(s, z)
        return s

    def _alpha(self, x: Tensor) -> Tensor | float:
        if self._per_channel is None:
            assert isinstance(self._step_size, (int, float))
            return float(self._step_size)
        alpha: Tensor = self._per_channel
        if x.ndim < 2 or x.shape[1] != len(alpha):
            channels = x.shape[1] if x.ndim > 1 else 0
            raise BadInput(f"step_size has {len(alpha)} numbers; the images have {channels} channels. Give one each.")
        return alpha.to(x.dtype).reshape(1, -1, *[1] * (x.ndim - 2))

    _per_channel: Tensor | None


class Smoothed(nn.Module):
    """The layer with tanh(κ·∇/mean|∇|) in place of the sign, differentiable through all K steps.

    The mean is over the sample's own pixels and held constant, so that κ means the same for a confident network, whose
    gradients are tiny. κ → ∞ is the layer.
    """

    uncompilable = True  # it takes gradients of gradients, which compilers do not support

    def __init__(self, layer: AntiAdversary, kappa: float) -> None:
        super().__init__()
        self.layer, self.kappa = layer, kappa
        self.training = False

    def forward(self, x: Tensor) -> Tensor:
        f, wanted = self.layer, torch.is_grad_enabled() and x.requires_grad
        with torch.enable_grad():
            alpha, gamma, y = f._alpha(x), torch.zeros_like(x), None
            for _ in range(f.steps):
                z = f._moved(x, gamma)
                z = z if wanted else z.detach().requires_grad_()
                s = f._classify(z)
                y = s.detach().argmax(1) if y is None else y
                (g,) = torch.autograd.grad(_ce(s, y), z, create_graph=wanted)
                scale = g.detach().flatten(1).abs().mean(1)
                scale = scale.where(scale > 0, torch.ones_like(scale))
                gamma = gamma - alpha * (self.kappa * g / per_row(scale, g)).tanh()
                gamma = f._moved(x, gamma) - x if f.clip else gamma
                gamma = gamma if wanted else gamma.detach()
        return f._classify(f._moved(x, gamma))


def _less(gamma: Tensor | None, alpha: Tensor | float, sign: Tensor) -> Tensor:
    """γ − α·sign, or −α·sign in the first step, in as few operations as possible: latency of one image counts."""
    if gamma is None:
        return sign * -alpha
    return gamma - alpha * sign if isinstance(alpha, Tensor) else torch.sub(gamma, sign, alpha=alpha)


def _loss(s: Tensor, y: Tensor) -> Tensor:
    """Σ CE. For float16, in which the gradient of a confident sample vanishes, a loss with the same direction.

    ∂CE/∂s is 1 − p_y times its gradient: −1 for the label, and softmax over the other classes.
    """
    if s.dtype != torch.float16:
        return _ce(s, y)
    label = F.one_hot(y, s.shape[1]).bool()
    rest = s.detach().float().masked_fill(label, -math.inf).softmax(1)
    return (s * rest.masked_fill(label, -1.0)).sum()


def _ce(s: Tensor, y: Tensor) -> Tensor:
    """Σ CE over the batch, in float32 at least."""
    return F.cross_entropy(s if s.dtype == torch.float64 else s.float(), y, reduction="sum")
