"""The anti-adversary layer (Alfarra et al., AAAI 2022, Algorithm 1): g(x) = f(x + γ).

    label    ŷ = argmax f(x),  γ⁰ = 0
    step     γᵏ⁺¹ = γᵏ − α · sign ∇_γ CE(f(x + γᵏ), ŷ)        k = 0 … K−1: f grows more confident of its own label
    answer   f(x + γᴷ)
    gate     where max softmax f(x) > τ: no step, and the answer is f(x)

Notation:   f → `base`, K → `steps`, α → `step_size` (pixels of [0, 1]), γ → `gamma`, τ → `gate` (1: the paper's layer).
Cost:       K + 1 forward and K backward passes of f; the label and the first step share a forward pass. With a gate:
            one forward pass for a sample above it. For any other sample one more forward pass, unless all samples of
            the batch take the steps.
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

from antiadv.core import torch_private
from antiadv.core.ball import per_row
from antiadv.core.defence import LARGEST, Defence, Stages
from antiadv.core.errors import BadInput
from antiadv.core.losses import signs, wide
from antiadv.core.validation import (
    check_flag,
    check_float,
    check_slope,
    check_still,
    is_count,
    is_number,
    require_gradient,
)


class AntiAdversary(Defence):
    """The classifier `base` with the anti-adversary layer; again a classifier.

    `step_size` is in pixels of [0, 1], before any normalisation inside the base: one number, or one per channel. The
    authors step in normalised space, so their α is α·std of the channel here: `step_size=tuple(0.15 * s for s in std)`.
    `clip` keeps x + γ in [0, 1]; off by default, as in their code. `steps=0` is the base, bit for bit.

    `gate` is a confidence in (0, 1]. The steps run only for samples whose confidence under f is at most the gate; the
    others are answered with the scores of f. Most clean images then cost one pass: docs/gate.md says which gate to use.
    A gated layer waits for the device once in each call, to learn which samples go on. `gate=1` is the paper's layer.

    Longer steps are not safer. On robust networks K = 1, α = 0.15 and K = 2, α = 0.3 may leave g weaker than f against
    an attacker who knows the layer. A standard network loses clean accuracy with 0.15 and keeps it with 0.01. The
    tables are in docs/reproduction.md (behind the gains) and docs/confidence.md.

    The loss is summed, not averaged over the batch: an average underflows sooner. The gradient of g holds γ constant.
    That is exact, because sign steps are constant almost everywhere, but it does not see the loop. Where
    `clip` holds a pixel of x + γ at 0 or 1, the true gradient of g is 0, and this one is the gradient of f.

    >>> import torch
    >>> g = AntiAdversary(torch.nn.Linear(4, 3).eval(), steps=2, step_size=0.1)
    >>> g(torch.full((5, 4), 0.5)).shape
    torch.Size([5, 3])
    """

    adaptive: ClassVar[tuple[str, ...]] = (*Defence.adaptive, "pseudo_label")
    later: ClassVar[tuple[str, ...]] = ("gate",)

    def __init__(
        self,
        base: nn.Module,
        steps: int = 2,
        step_size: float | tuple[float, ...] = 0.15,
        clip: bool = False,
        gate: float = 1.0,
    ) -> None:
        super().__init__(base)
        if not is_count(steps, 0):
            raise BadInput(f"the layer needs an integer steps ≥ 0; found {steps!r}. Use steps=2 as in the paper.")
        check_flag(clip=clip)
        if not is_number(gate, 1) or gate == 0:
            raise BadInput(
                f"the gate, a confidence, must be a number in (0, 1]; found {gate!r}. Use 0.99, or 1 for none."
            )
        self.steps, self.step_size, self.clip, self.gate = steps, step_size, clip, float(gate)

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

    def forward(self, x: Tensor) -> Tensor:
        check_float(x)
        check_still(self.base)
        if self.steps == 0 or len(x) == 0:
            return self._classify(x.clone())  # a base that writes in place must not change the caller's images
        if self.gate == 1:
            return self._classify(self._moved(x, self.correction(x)))
        return self.branch_free(x)[0] if torch.compiler.is_compiling() else self._gated(x)

    def correction(self, x: Tensor) -> Tensor:
        """γ for each image, whatever the gate, without gradient: K forward and K backward passes."""
        return torch.zeros_like(x) if self.steps == 0 else self._climb(x)[1]

    def unsure(self, s: Tensor) -> Tensor:
        """Which samples take the steps, given the scores of f: those with a confidence of at most the gate."""
        return wide(s.detach()).softmax(1).amax(1) <= self.gate

    def stages(self) -> Stages | None:
        if self.gate == 1 or self.steps == 0:
            return None
        paper = torch_private.shallow_copy(self)
        paper.gate = 1.0
        return Stages(self.base, self.unsure, paper)

    def branch_free(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """g(x) and f(x), for compilers and exporters: no branch depends on the data, so every sample takes the steps.

        f(x) and the first step share a pass, except where the caller wants gradients of f(x).
        """
        if self.steps == 0:
            s = self._classify(x.clone())
            return s, s
        base, gamma = self._climb(x)
        if torch.is_grad_enabled() and x.requires_grad:
            base = self._classify(self._moved(x, None))
        s = self._classify(self._moved(x, gamma))
        return (s if self.gate == 1 else torch.where(self.unsure(base)[:, None], s, base)), base

    def _gated(self, x: Tensor) -> Tensor:
        """One pass for all samples, and the steps for the unsure ones alone."""
        attached = torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in self.parameters()))
        with torch.inference_mode(False), torch.enable_grad():
            z = self._moved(x if attached else x.detach(), None)
            z = z if z.requires_grad else z.requires_grad_()
            s = self._classify(z)
            check_slope(s)
        rows = self.unsure(s).nonzero().flatten()
        if len(rows) == len(x):
            return self._classify(self._moved(x, self._climb(x, (z, s))[1]))
        s = s if attached else s.detach()
        del z  # and with it the graph of the pass, unless the caller wants gradients
        if len(rows) == 0:
            return s
        some = x[rows]
        return s.index_copy(0, rows, self._classify(self._moved(some, self.correction(some))))

    def _climb(self, x: Tensor, first: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """f(x) and γ, without gradient. `first` is the pass of the first step, (z, f(z)), if it was made already."""
        with torch.inference_mode(False), torch.enable_grad():
            x, alpha = x.detach(), self._alpha(x)
            g, y, base = self._ascent(self._moved(x, None), None) if first is None else _slope(*first, None)
            gamma = self._boxed(x, _less(None, alpha, g, base))
            for _ in range(self.steps - 1):
                g, y, s = self._ascent(self._moved(x, gamma), y)
                gamma = self._boxed(x, _less(gamma, alpha, g, s))
        return base.detach(), gamma.detach()

    def surrogate(self, kappa: float = 3.0) -> nn.Module:
        return Smoothed(self, kappa)

    def _ascent(self, z: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """∇CE(f(z), y), y and f(z). If y is None, the label comes from the same forward pass."""
        if torch.compiler.is_compiling():  # the compiler would break the graph at `autograd.grad`

            def loss(z: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
                s = self._classify(z)
                label = s.detach().argmax(1) if y is None else y
                return _loss(s, label), (label, s)

            g, (label, s) = torch.func.grad(loss, has_aux=True)(z)
            return g, label, s
        z = z.requires_grad_()
        s = self._classify(z)
        check_slope(s)
        return _slope(z, s, y)

    def _boxed(self, x: Tensor, gamma: Tensor) -> Tensor:
        return self._moved(x, gamma) - x if self.clip else gamma

    def _moved(self, x: Tensor, gamma: Tensor | None) -> Tensor:
        """x + γ as a new tensor, which the base may write into, and which may require gradients."""
        if gamma is None:
            return x.clamp(0, 1) if self.clip else x.clone()
        return (x + gamma).clamp(0, 1) if self.clip else x + gamma

    def _classify(self, z: Tensor) -> Tensor:
        s = self.explained(z, lambda: self.base(z))
        self.check_answer(s, z)
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
        base, y = None, None  # f(x) and its label
        with torch.enable_grad():
            alpha, gamma = f._alpha(x), torch.zeros_like(x)
            for _ in range(f.steps):
                z = f._moved(x, gamma)
                z = z if wanted else z.detach().requires_grad_()
                s = f._classify(z)
                base = s if base is None else base
                y = s.detach().argmax(1) if y is None else y
                (g,) = torch.autograd.grad(_ce(s, y), z, create_graph=wanted)
                scale = g.detach().flatten(1).abs().mean(1)
                scale = scale.where(scale > 0, torch.ones_like(scale))
                gamma = gamma - alpha * (self.kappa * g / per_row(scale, g)).tanh()
                gamma = f._moved(x, gamma) - x if f.clip else gamma
                gamma = gamma if wanted else gamma.detach()
        s = f._classify(f._moved(x, gamma))
        if base is None or f.gate == 1:
            return s
        return torch.where(f.unsure(base)[:, None], s, base if wanted else base.detach())


def _slope(z: Tensor, s: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """∇CE(s, y), y and s, for s = f(z). If y is None, it is the label of s."""
    y = s.detach().argmax(1) if y is None else y
    (g,) = torch.autograd.grad(_loss(s, y), z, allow_unused=True)
    return require_gradient(g), y, s


def _less(gamma: Tensor | None, alpha: Tensor | float, g: Tensor, s: Tensor) -> Tensor:
    """γ − α·sign ∇, or −α·sign ∇ in the first step, in as few operations as possible: latency of one image counts."""
    sign = signs(g, s)
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
    return F.cross_entropy(wide(s), y, reduction="sum")
