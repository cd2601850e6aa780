"""The gradient of a convolution by its images, for tensor cores: a convolution again, with its weights turned round.

    y = w * x at stride 1    →    ∂L/∂x = w° * ∂L/∂y,    w°[i, o, u, v] = w[o, i, k−1−u, k−1−v]

The GPU's libraries have code for either, and of narrow layers that for a convolution is faster. w° is laid down once.
The product is an operation of its own that is given x too, though it has no use for it: who plans
what to keep for the way back then keeps x, as for torch's own, and needs no mask beside it.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.evaluate.fused import LAID
from antiadv.evaluate.paired import is_centred, is_usual

CHANNELS = range(64, 65)  # as many in as out: of 128 and more it takes as long, and of 48 far longer


def turn_back(twin: nn.Module) -> None:
    """Let such convolutions of this copy, whose weights stay as they are, have their gradients so."""
    for m in twin.modules():
        if isinstance(m, nn.Conv2d) and is_usual(m) and is_level(m):
            m.register_buffer("turned", turned(m.weight.detach()), persistent=False)
            m._conv_forward = types.MethodType(_conv_forward, m)  # type: ignore[method-assign]


def is_level(m: nn.Conv2d) -> bool:
    """Whether a convolution is of the kind that gains: it leaves as many pixels and channels as there were."""
    return is_centred(m) and m.stride == (1, 1) and m.in_channels == m.out_channels and m.in_channels in CHANNELS


def turned(w: Tensor) -> Tensor:
    """w° of w, and w of w°.

    >>> turned(torch.arange(9.0).view(1, 1, 3, 3))[0, 0, 0]
    tensor([8., 7., 6.])
    """
    return w.flip(2, 3).transpose(0, 1).contiguous(memory_format=torch.channels_last)


def _conv_forward(self: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if x.ndim != 4 or weight is not self.weight or not x.requires_grad:  # another one at each call has its own gradient
        y: Tensor = nn.Conv2d._conv_forward(self, x, weight, bias)
        return y
    y = _Turned.apply(x.to(weight.dtype), weight, bias, self.get_buffer("turned"))  # type: ignore[no-untyped-call]
    return y  # noqa: RET504 - named for its type


class _Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, turned: Tensor) -> Tensor:
        ctx.save_for_backward(x, turned)
        return F.conv2d(x, w, bias, padding=w.shape[2] // 2)

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, None, None, None]:
        x, turned = ctx.saved_tensors  # autocast may have made y, and so d, of another type than they are
        return torch.ops.antiadv.conv_back(d.to(x.dtype), x, turned), None, None, None


def _conv_back(d: Tensor, x: Tensor, turned: Tensor) -> Tensor:
    return F.conv2d(d, turned, padding=turned.shape[2] // 2).contiguous(memory_format=torch.channels_last)


def _remember(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[2])


def _again(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
    """By d, of which this is a convolution too."""
    (w,) = ctx.saved_tensors
    return F.conv2d(g, turned(w), padding=w.shape[2] // 2), None, None


conv_back = torch.library.custom_op(
    "antiadv::conv_back",
    _conv_back,
    mutates_args=(),
    schema="(Tensor d, Tensor x, Tensor turned) -> Tensor",
    tags=LAID,
)
conv_back.register_fake(lambda d, x, turned: torch.empty_like(x, memory_format=torch.channels_last))
conv_back.register_autograd(_again, setup_context=_remember)
