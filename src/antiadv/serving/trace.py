"""A defended classifier as a plain module that can be traced: no checks, and no branch on the size of a batch.

    traceable(model)    images [N, C, H, W]  →  (scores,) or (scores, base_scores), both [N, K]

The forward pass of a defence looks at sizes, dtypes and devices to give good messages. A tracer would take the size of
the example for the size of every batch. So defences that use gradients, and some that do not, have a second form here,
which computes the same numbers. Any other deterministic defence is traced as it is, around the second form of its base.
Defences may be nested. `base_scores` are given if all defences have a second form: others do not tell them.

Gate:  an exported graph has no branches. All samples take all steps, and `where` picks the answer of the first forward
       for those above the gate. So every sample costs K + 1 forward and K backward passes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.core.defence import Defence, Randomised
from antiadv.core.errors import BadInput
from antiadv.core.losses import signs
from antiadv.core.spec import name_of
from antiadv.core.torch_private import shallow_copy
from antiadv.defences.anti_adversary import AntiAdversary
from antiadv.defences.rounded_scores import RoundedScores

Scores = tuple[Tensor, ...]  # those of the defended network, then those of the bare one if they cost nothing


def traceable(model: nn.Module) -> nn.Module:
    """The plain form of a classifier."""
    for part in model.modules():
        if isinstance(part, Randomised):
            raise BadInput(
                f"{name_of(type(part))} uses new random numbers in every call, and an exported file has none. "
                "Export the bare network, or a defence without random numbers."
            )
    return _form(model).eval()


def _form(model: nn.Module) -> _Form:
    if isinstance(model, AntiAdversary):
        return _Layer(model)
    if isinstance(model, RoundedScores):
        return _Rounded(model)
    return _Bare(model)


class _Form(nn.Module):
    """`tells`: whether it gives the scores of the bare network; a bare network gives them as its own scores."""

    tells: bool

    def _with(self, scores: Tensor, bare: Tensor) -> Scores:
        return (scores, bare) if self.tells else (scores,)


class _Bare(_Form):
    """A classifier without a second form: a bare network, or a defence around the second form of its base."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.tells = not isinstance(net, Defence)
        if isinstance(net, Defence):
            base, net = net.base, shallow_copy(net)
            net.base = _First(_form(base))
        self.net = net

    def forward(self, x: Tensor) -> Scores:
        return (self.net(x.clone()),)  # a network may write into its images


class _First(nn.Module):
    """The scores of a form alone."""

    def __init__(self, form: _Form) -> None:
        super().__init__()
        self.form = form
        self.training = False  # as a defence asks of its base

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.form(x)[0]
        return scores


class _Layer(_Form):
    """The anti-adversary layer. `base_scores` are those of its first forward pass."""

    alpha: Tensor

    def __init__(self, layer: AntiAdversary) -> None:
        super().__init__()
        self.base = _form(layer.base)
        self.tells = self.base.tells
        self.steps, self.clip = layer.steps, layer.clip
        self.gate = float(getattr(layer, "gate", 1.0))
        self.uniform = not isinstance(layer.step_size, tuple)
        sizes = layer.step_size if isinstance(layer.step_size, tuple) else (layer.step_size,)
        # in float64 first, as in the layer
        alpha = torch.tensor(sizes, dtype=torch.float64).float()
        self.register_buffer("alpha", alpha, persistent=False)
        self.step = float(sizes[0])

    def forward(self, x: Tensor) -> Scores:
        if self.steps == 0:
            scores, *inner = self.base(x)
            return self._with(scores, (inner[-1] if inner else scores).clone())
        first: Tensor | None = None  # scores of the base, from the first forward pass
        bare: Tensor | None = None
        gamma: Tensor | None = None
        label: Tensor | None = None  # one-hot, of the first forward pass
        with torch.enable_grad():
            for _ in range(self.steps):
                z = self._moved(x, gamma).detach().requires_grad_()
                s, *inner = self.base(z)
                if first is None or bare is None or label is None:
                    first = s.detach()
                    bare = inner[-1].detach() if inner else first
                    label = F.one_hot(first.argmax(1), first.shape[1]).to(first.dtype)
                # the gradient of the cross-entropy, by hand: autograd takes three times the operators for it
                (g,) = torch.autograd.grad(s, z, s.detach().log_softmax(1).exp() - label)
                gamma = self._less(gamma, signs(g, s))
                gamma = self._moved(x, gamma) - x if self.clip else gamma
        assert gamma is not None
        assert first is not None
        assert bare is not None
        scores = self.base(self._moved(x, gamma.detach()))[0]
        if self.gate < 1:
            scores = torch.where(first.softmax(1).amax(1, keepdim=True) <= self.gate, scores, first)
        return self._with(scores, bare)

    def _less(self, gamma: Tensor | None, sign: Tensor) -> Tensor:
        if self.uniform:
            return sign * -self.step if gamma is None else torch.sub(gamma, sign, alpha=self.step)
        alpha = self.alpha.reshape(1, -1, *[1] * (sign.ndim - 2))
        return sign * -alpha if gamma is None else gamma - alpha * sign

    def _moved(self, x: Tensor, gamma: Tensor | None) -> Tensor:
        z = x.clone() if gamma is None else x + gamma
        return z.clamp(0, 1) if self.clip else z


class _Rounded(_Form):
    """Rounded scores. `base_scores` are those before rounding."""

    def __init__(self, defence: RoundedScores) -> None:
        super().__init__()
        self.base = _form(defence.base)
        self.tells = self.base.tells
        self.digits = defence.digits

    def forward(self, x: Tensor) -> Scores:
        s, *inner = self.base(x)
        scale = 10.0**self.digits
        q = (s.softmax(1) * scale).round() / scale
        q = q.clamp_min(0.5 / scale)
        label = F.one_hot(s.detach().argmax(1), s.shape[1]).to(s.dtype)
        return self._with(q.log() + label * (0.1 / scale), inner[-1] if inner else s)


def is_gated(model: nn.Module) -> bool:
    """Whether a layer of this classifier has a gate, which the exported graph pays for in full."""
    return any(isinstance(m, AntiAdversary) and float(getattr(m, "gate", 1.0)) < 1 for m in model.modules())
