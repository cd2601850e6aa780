"""Batch norms and biases in 16 bits: one kernel forward and one backward.

    norm    y = a·x + b    ∂x = a·∂y       a and b per channel (`fold_norms.line_of`)
    bias    y = x + b      ∂x = ∂y

When:   norms in evaluation mode; on a GPU with Triton also the biases of convolutions. Channels last in memory.
Gain:   torch reads one value at a time in the gradient of a norm, and on a GPU where it adds a bias. On an H200 a
        gradient of wrn16-4:trades for 224 images takes 1.71 ms with the kernel of `lines_cuda.py`, and 2.53 without.
        On a CPU the gradient of a norm is computed by a norm, whose forward pass is fast.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.core import torch_private
from antiadv.engine.rewrites.fold_norms import has_own, is_fixed, line_of
from antiadv.engine.rewrites.pair_columns import is_usual

Line = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]  # (x, a, b) → a·x + b


def draw_lines(net: nn.Module, biases: bool) -> None:
    """Rewrite the norms of this copy, and the biases if asked to, after all other rewrites."""
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d) and is_plain_norm(m):
            a, b = line_of(m)
            m.register_buffer("slope", a.float(), persistent=False)
            m.register_buffer("offset", b.float(), persistent=False)
            m.forward = types.MethodType(_norm, m)  # type: ignore[method-assign]
        elif biases and isinstance(m, nn.Conv2d) and is_usual(m) and m.bias is not None:
            torch_private.replace_conv(m, functools.partial(_conv, torch_private.conv_forward(m)))


def is_plain_norm(m: nn.BatchNorm2d) -> bool:
    """Whether torch computes this norm from fixed numbers, and nothing replaced it."""
    return is_fixed(m) and has_own(m) and type(m).forward is nn.BatchNorm2d.forward and "forward" not in vars(m)


def _norm(self: nn.BatchNorm2d, x: Tensor) -> Tensor:
    return on_line(x, self.get_buffer("slope"), self.get_buffer("offset"))


def _conv(before: Callable[..., Tensor], m: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None or x.ndim != 4:
        return before(x, weight, bias)
    return on_line(before(x, weight, None), None, bias)


def on_line(x: Tensor, a: Tensor | None, b: Tensor | None) -> Tensor:
    """a·x + b per channel for x [N, C, H, W], in the type of x. Without a it is 1, without b it is 0."""
    y: Tensor = _OnLine.apply(x, a, b)  # type: ignore[no-untyped-call]
    return y


class _OnLine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor | None, b: Tensor | None) -> Tensor:
        ctx.save_for_backward(a)
        kernel = _kernel() if x.is_cuda else None
        return (plain if kernel is None else kernel)(x, a, b)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (a,) = ctx.saved_tensors
        return g if a is None else on_line(g, a, None), None, None  # may itself be differentiated


def plain(x: Tensor, a: Tensor | None, b: Tensor | None) -> Tensor:
    """The same with torch's own norm, whose forward pass is fast everywhere."""
    kind = torch.promote_types(x.dtype, torch.float32)
    zero, one = x.new_zeros(x.shape[1], dtype=kind), x.new_ones(x.shape[1], dtype=kind)
    a, b = (None if t is None else t.to(kind) for t in (a, b))
    return F.batch_norm(x, zero, one, a, b, training=False, eps=0.0)


@functools.cache
def _kernel() -> Line | None:
    """The CUDA kernel, or None if this machine cannot compile it."""
    try:
        from antiadv.engine.rewrites import lines_cuda  # here, because PyTorch for CPUs has no Triton

        x = torch.ones(1, 8, 1, 1, device="cuda")
        lines_cuda.on_line(x, x[0, :, 0, 0], None)
    except Exception:  # a compiler may raise anything; the code above needs none
        return None
    return lines_cuda.on_line


def has_kernel() -> bool:
    return _kernel() is not None
