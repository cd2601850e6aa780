"""Batch norms that follow a convolution become part of it: one pass over the activations less for each.

    bn(conv(x)) = a·(w * x + b − μ) + β  =  (a·w) * x + a·(b − μ) + β,     a = γ / √(σ² + ε)

Which norm follows which convolution is seen in one pass, not read off the code: whose output is whose input, and both
asked once. If that output goes elsewhere too, the network with that norm folded answers otherwise; which those are is
found out by halves, and they stay as they were.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from antiadv.engine.precision import switched

Pair = tuple[nn.Conv2d, nn.BatchNorm2d]

CLOSE = 1e-4  # of the largest score: folding moves it by less, in float32, and a wrong one by far more


@torch.no_grad()
def fold_norms(twin: nn.Module, x: Tensor) -> int:
    """Fold what can be folded in this copy, tried on these images; → how many norms."""
    with switched("float32", x.device):
        try:
            want, pairs = _followed(twin, x)
        except Exception:  # it is asked otherwise than alone: behind a defence that gives it something else
            return 0
        return _fold_all(twin, x, want, pairs) if isinstance(want, Tensor) else 0  # or takes more than scores of it


def _fold_all(twin: nn.Module, x: Tensor, want: Tensor, pairs: Sequence[Pair]) -> int:
    """All at once if the answer stays, else each half for itself."""
    before = [(conv.weight, conv.bias, vars(norm).get("forward")) for conv, norm in pairs]
    for conv, norm in pairs:
        _fold(conv, norm)
    if not pairs or same(twin(x), want):
        return len(pairs)
    for (conv, norm), (weight, bias, forward) in zip(pairs, before, strict=True):
        conv.weight, conv.bias = weight, bias
        put_back(norm, forward)
    half = len(pairs) // 2
    return sum(_fold_all(twin, x, want, some) for some in (pairs[:half], pairs[half:])) if half else 0


def _followed(twin: nn.Module, x: Tensor) -> tuple[Tensor, list[Pair]]:
    """The answer, and the convolutions whose output a norm took. No hooks, which are the network's own."""
    outputs, calls = dict[int, tuple[nn.Conv2d, Tensor]](), Counter[nn.Module]()
    pairs = list[Pair]()
    watched = [(m, vars(m).get("forward")) for m in twin.modules() if is_plain(m) or is_fixed(m)]

    def watch(m: nn.Module) -> None:
        forward = m.forward

        def watched_forward(h: Tensor) -> Tensor:
            calls[m] += 1
            if isinstance(m, nn.BatchNorm2d) and id(h) in outputs:
                pairs.append((outputs[id(h)][0], m))
            out: Tensor = forward(h)
            if isinstance(m, nn.Conv2d):
                outputs[id(out)] = m, out  # held, lest another tensor get its number
            return out

        m.forward = watched_forward

    for m, _ in watched:
        watch(m)
    try:
        answer: Tensor = twin(x)
    finally:
        for m, forward in watched:
            put_back(m, forward)
    return answer, [(conv, norm) for conv, norm in pairs if calls[conv] == calls[norm] == 1]


def is_plain(m: nn.Module) -> bool:
    return isinstance(m, nn.Conv2d) and has_own(m)


def has_own(m: nn.Module) -> bool:
    """Whether weight and bias are parameters, and not made anew of others at each call, as of pruned layers."""
    return {"weight", "bias"} <= m._parameters.keys()


def is_fixed(m: nn.Module) -> bool:
    """A norm that takes its mean and variance from training."""
    return isinstance(m, nn.BatchNorm2d) and not m.training and m.running_mean is not None


def _fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
    a, b = line_of(norm)
    w = conv.weight.double() * a.view(-1, 1, 1, 1)
    b = b if conv.bias is None else b + a * conv.bias.double()
    conv.weight = fixed(w.to(conv.weight).contiguous(memory_format=torch.channels_last))
    conv.bias = fixed(b.to(conv.weight))
    norm.forward = types.MethodType(pass_on, norm)  # type: ignore[method-assign]


def line_of(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """a and b of a·x + b, which is what a norm does."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    a = (norm.running_var.double() + norm.eps).rsqrt()
    a = a if norm.weight is None else a * norm.weight.double()
    b = -norm.running_mean.double() * a
    return a, b if norm.bias is None else b + norm.bias.double()


def fixed(t: Tensor) -> nn.Parameter:
    return nn.Parameter(t, requires_grad=False)


def pass_on(self: nn.Module, x: Tensor) -> Tensor:
    return x


def put_back(m: nn.Module, forward: object) -> None:
    del m.forward
    if forward is not None:
        m.forward = forward  # type: ignore[assignment]


def same(found: Tensor, want: Tensor) -> bool:
    return bool((found - want).abs().max() <= CLOSE * want.abs().max())
