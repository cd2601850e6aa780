"""A network's first convolution, for tensor cores: images of 4 channels; back, a matrix product and sums of windows.

    d'[i, j, (u, v, c)] = Σ_o d[o, i, j] · w[o, c, u, v]              for each pixel, what it says of its window
    ∂L/∂x[c, i, j]      = Σ_uv d'[i − u + ⌊k/2⌋, j − v + ⌊k/2⌋, (u, v, c)]

The GPU's libraries have faster code for four channels, of which one is zero, than for three, and code for the gradient
that takes far longer than to read d. Worth it where a compiler makes one kernel of the sums, and writes the zeros with
the images.
"""

from __future__ import annotations

import math
import types
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.evaluate.paired import is_centred, is_usual

ROOM = 32  # numbers a pixel says of its window: beyond that it says much, and the sums take longer
WIDE = 4  # channels of an image; of 8 it takes as long as of 3


def gather_first(twin: nn.Module) -> None:
    """Let such convolutions of this copy, whose weights stay as they are, have their gradients so."""
    for m in twin.modules():
        if isinstance(m, nn.Conv2d) and is_usual(m) and is_first(m):
            m.register_buffer("windows", windows_of(m.weight.detach()), persistent=False)
            m.register_buffer("wide", widened(m.weight.detach(), WIDE), persistent=False)
            m._conv_forward = types.MethodType(_conv_forward, m)  # type: ignore[method-assign]


def is_first(m: nn.Conv2d) -> bool:
    """Whether a convolution is of the kind that gains: of few channels, and leaving as many pixels as there were."""
    return (
        is_centred(m)
        and m.stride == (1, 1)
        and m.in_channels <= WIDE
        and math.prod(m.kernel_size) * m.in_channels <= ROOM
    )


def _conv_forward(self: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # who makes another of it at each call means that; and images of other channels are refused, not widened
    if x.ndim != 4 or x.shape[1] != self.in_channels or weight is not self.weight:
        y: Tensor = nn.Conv2d._conv_forward(self, x, weight, bias)
        return y
    windows, wide = self.get_buffer("windows"), self.get_buffer("wide")
    y = _First.apply(x.to(wide.dtype), wide, bias, windows)  # type: ignore[no-untyped-call]
    return y  # noqa: RET504 - named for its type


def widened(t: Tensor, channels: int) -> Tensor:
    """Images, or weights, with channels of zeros."""
    return F.pad(t, (0, 0, 0, 0, 0, channels - t.shape[1])).contiguous(memory_format=torch.channels_last)


class _First(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, wide: Tensor, bias: Tensor | None, windows: Tensor) -> Tensor:
        ctx.save_for_backward(windows)
        ctx.kernel, ctx.channels = wide.shape[2], x.shape[1]
        return F.conv2d(widened(x, wide.shape[1]), wide, bias, padding=wide.shape[2] // 2)

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, None, None, None]:
        (windows,) = ctx.saved_tensors  # autocast may have made y, and so d, of another type than they are
        return gathered(d.to(windows.dtype), windows, ctx.kernel, ctx.channels), None, None, None


def windows_of(w: Tensor) -> Tensor:
    """`[out, 32]` of w `[out, in, k, k]`, in the order (u, v, c), and zeros: products like even numbers.

    >>> windows_of(torch.arange(18.0).view(1, 2, 3, 3))[0, :4]
    tensor([ 0.,  9.,  1., 10.])
    """
    flat = w.permute(0, 2, 3, 1).flatten(1)
    return F.pad(flat, (0, ROOM - flat.shape[1])).contiguous()


def gathered(d: Tensor, windows: Tensor, k: int, c: int) -> Tensor:
    """∂L/∂x of d = ∂L/∂y: see the head of this file."""
    height, width = d.shape[2:]
    said = d.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1) @ windows
    said = said[..., : k * k * c].unflatten(3, (k, k, c))
    places = [(u, v) for u in range(k) for v in range(k)]
    whole = sum((F.pad(said[:, :, :, u, v], (0, 0, v, k - 1 - v, u, k - 1 - u)) for u, v in places), d.new_zeros(()))
    reach = k // 2
    return whole[:, reach : reach + height, reach : reach + width].permute(0, 3, 1, 2)
