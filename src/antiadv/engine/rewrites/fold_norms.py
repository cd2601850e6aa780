"""Batch norms that follow a convolution become part of it: one pass over the activations less for each.

    bn(conv(x)) = a·(w * x + b − μ) + β  =  (a·w) * x + a·(b − μ) + β,     a = γ / √(σ² + ε)

When:   a norm in evaluation mode takes the output of a convolution, and both run once per pass. That is observed in one
        pass on an example, not read from the code. If the output of the convolution is also used elsewhere, the scores
        change; such norms are found by bisection and stay as they are.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from antiadv.core import torch_private
from antiadv.engine.switches import switched

Pair = tuple[nn.Conv2d, nn.BatchNorm2d]

LARGEST_CHANGE = 1e-4  # of the largest score: rounding changes scores by less, a wrong fold by far more


@torch.no_grad()
def fold_norms(net: nn.Module, x: Tensor) -> int:
    """Fold the norms of this copy that can be folded, tried on the images x. Returns how many."""
    with switched("float32", x.device):
        try:
            want, pairs = _followed(net, x)
        except Exception:  # a defence may call it with other arguments
            return 0
        return _fold_all(net, x, want, pairs) if isinstance(want, Tensor) else 0  # it may return more than scores


def _fold_all(net: nn.Module, x: Tensor, want: Tensor, pairs: Sequence[Pair]) -> int:
    """Fold all pairs if the scores stay the same; otherwise try each half by itself."""
    before = [(conv.weight, conv.bias, vars(norm).get("forward")) for conv, norm in pairs]
    for conv, norm in pairs:
        _fold(conv, norm)
    if not pairs or same(net(x), want):
        return len(pairs)
    for (conv, norm), (weight, bias, forward) in zip(pairs, before, strict=True):
        conv.weight, conv.bias = weight, bias
        put_back(norm, forward)
    half = len(pairs) // 2
    return sum(_fold_all(net, x, want, some) for some in (pairs[:half], pairs[half:])) if half else 0


def _followed(net: nn.Module, x: Tensor) -> tuple[Tensor, list[Pair]]:
    """The scores, and each convolution with the norm that takes its output. Hooks belong to the network: none here."""
    outputs, calls = dict[int, tuple[nn.Conv2d, Tensor]](), Counter[nn.Module]()
    pairs = list[Pair]()
    watched = [(m, vars(m).get("forward")) for m in net.modules() if is_plain(m) or is_fixed(m)]

    def watch(m: nn.Module) -> None:
        forward = m.forward

        def watched_forward(h: Tensor) -> Tensor:
            calls[m] += 1
            if isinstance(m, nn.BatchNorm2d) and id(h) in outputs:
                pairs.append((outputs[id(h)][0], m))
            out: Tensor = forward(h)
            if isinstance(m, nn.Conv2d):
                outputs[id(out)] = m, out  # kept alive, so that no other tensor gets the same id
            return out

        m.forward = watched_forward

    for m, _ in watched:
        watch(m)
    try:
        answer: Tensor = net(x)
    finally:
        for m, forward in watched:
            put_back(m, forward)
    return answer, [(conv, norm) for conv, norm in pairs if calls[conv] == calls[norm] == 1]


def is_plain(m: nn.Module) -> bool:
    return isinstance(m, nn.Conv2d) and has_own(m)


def has_own(m: nn.Module) -> bool:
    """Whether weight and bias are parameters. Pruned layers, for example, compute them at each call."""
    return {"weight", "bias"} <= torch_private.parameter_names(m)


def is_fixed(m: nn.Module) -> bool:
    """Whether this is a norm with mean and variance from training."""
    return isinstance(m, nn.BatchNorm2d) and not m.training and m.running_mean is not None


def _fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
    a, b = line_of(norm)
    w = conv.weight.double() * a.view(-1, 1, 1, 1)
    b = b if conv.bias is None else b + a * conv.bias.double()
    conv.weight = fixed(w.to(conv.weight).contiguous(memory_format=torch.channels_last))
    conv.bias = fixed(b.to(conv.weight))
    norm.forward = types.MethodType(pass_on, norm)  # type: ignore[method-assign]


def line_of(norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """a and b of the norm, written as a·x + b."""
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
    return bool((found - want).abs().max() <= LARGEST_CHANGE * want.abs().max())
