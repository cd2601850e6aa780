"""Strided convolutions on tensor cores: the same sums, on pixels that are neighbours in memory.

    1 x 1, stride s           select the pixels first: conv(x, w) = conv₁(x[::s, ::s], w), with stride 1
    k x k, stride 2,          cells of 2 x 2 pixels become one pixel with 4C channels, padded with zeros to 16:
    C ≤ 4 channels            x'[(a, b, c), i, j] = x[c, 2i + a, 2j + b],    2u' + a = u − ⌊k/2⌋
                              conv(x, w) = conv₁(x', w'), w'[(a, b, c), u', v'] = w[c, u, v], with half as many rows

When:   the second kind only where gradients are asked for, on images with even sides.
Gain:   GPU libraries have slow code for the first kind, and for the gradient of the second: that gradient, at the start
        of a network for large images, took half as long as the forward pass of the complete network.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.core import torch_private
from antiadv.engine.rewrites.pair_columns import is_centred, is_usual

CELL_CHANNELS = 16  # channels of x', the unused ones zero


def join_strides(net: nn.Module) -> None:
    """Rewrite the strided convolutions of this copy."""
    for m in net.modules():
        if not isinstance(m, nn.Conv2d) or not is_usual(m):
            continue
        if m.kernel_size == (1, 1) and m.padding == (0, 0) and max(m.stride) > 1:
            torch_private.replace_conv(m, _select_first)
        elif is_stem(m):
            m.register_buffer("cells", cells_of(m.weight.detach()), persistent=False)
            torch_private.replace_conv(m, _in_cells)


def is_stem(m: nn.Conv2d) -> bool:
    """Whether this is a convolution of the second kind."""
    return is_centred(m) and m.stride == (2, 2) and 4 * m.in_channels <= CELL_CHANNELS


def _select_first(self: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if x.ndim != 4:
        return torch_private.plain_conv(self, x, weight, bias)
    return F.conv2d(_Selected.apply(x, *self.stride), weight, bias)  # type: ignore[no-untyped-call]


class _Selected(torch.autograd.Function):
    """Every so many rows and columns, channels last. torch's own gradient of a slice has another layout, and each sum
    of two layouts is slow.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, down: int, across: int) -> Tensor:
        ctx.shape, ctx.strides = x.shape, (down, across)
        return x[..., ::down, ::across].contiguous(memory_format=torch.channels_last)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (down, across), kind = ctx.strides, torch.channels_last
        back = torch.empty(ctx.shape, dtype=g.dtype, device=g.device, memory_format=kind).zero_()
        back[..., ::down, ::across] = g
        return back, None, None


def _in_cells(self: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    even = x.ndim == 4 and x.shape[2] % 2 == 0 and x.shape[3] % 2 == 0
    if not even or not torch.is_grad_enabled() or weight is not self.weight:
        return torch_private.plain_conv(self, x, weight, bias)
    return F.conv2d(gathered(x, *_reach(self.kernel_size[0])), self.get_buffer("cells"), bias)


def _reach(k: int) -> tuple[int, int]:
    """How many cells before and after its own a pixel of the answer depends on."""
    return -(-(k // 2) // 2), (k // 2) // 2


def cells_of(w: Tensor) -> Tensor:
    """w [out, in, k, k] to w' [out, 16, k', k']: see the head of this file.

    >>> cells_of(torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]).view(1, 1, 3, 3))[0, :4]
    tensor([[[0., 0.],
             [0., 5.]],
    <BLANKLINE>
            [[0., 0.],
             [4., 6.]],
    <BLANKLINE>
            [[0., 2.],
             [0., 8.]],
    <BLANKLINE>
            [[1., 3.],
             [7., 9.]]])
    """
    outer, inner, k, _ = w.shape
    before, after = _reach(k)
    out = w.new_zeros(outer, 2, 2, inner, before + 1 + after, before + 1 + after)
    for u in range(k):
        for v in range(k):
            (row, a), (column, b) = divmod(u - k // 2, 2), divmod(v - k // 2, 2)
            out[:, a, b, :, row + before, column + before] = w[:, :, u, v]
    wide = F.pad(out.flatten(1, 3), (0, 0, 0, 0, 0, CELL_CHANNELS - 4 * inner))
    return wide.contiguous(memory_format=torch.channels_last)


def gathered(x: Tensor, before: int, after: int) -> Tensor:
    """x to x', with this many cells of zeros around it."""
    n, c, h, w = x.shape
    cells = x.reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 3, 5, 1, 2, 4).reshape(n, 4 * c, h // 2, w // 2)
    wide = F.pad(cells, (before, after, before, after, 0, CELL_CHANNELS - 4 * c))
    return wide.contiguous(memory_format=torch.channels_last)
