"""Narrow convolutions for tensor cores: two neighbouring columns of an image go as one column of twice the channels.

    x [N, C, H, W], channels last in memory  =  x' [N, 2C, H, W/2], the same bytes read otherwise
    x' of column X holds the columns 2X and 2X + 1 of x, one after the other

    conv(x, w) = conv(x', w'), where w' is w with zeros between:   w'[j, i, d'] = w[d],   2d' + i = stride·j + d
    at stride 1 the answer comes in pairs too (j = 0, 1) and is read back; at stride 2 it comes as it is (j = 0)

The GPU's libraries have good code for 32 channels and for 16 none: the same sums, with zeros in them, on twice the
channels take far less time. (In float16 on an H200; in tf32, where the bytes count twice, hardly.)
"""

from __future__ import annotations

import types

import torch
from torch import Tensor, nn
from torch.nn import functional as F

INNER, OUTER = range(8, 17), range(8, 33)  # channels: fewer are few when doubled too, more have good code already


def pair_narrow(twin: nn.Module) -> None:
    """Let the narrow convolutions of this copy work on pairs of columns, wherever there is an even number of them."""
    for m in twin.modules():
        if isinstance(m, nn.Conv2d) and is_narrow(m):
            m.register_buffer("paired", paired(m.weight.detach(), m.stride[1]), persistent=False)
            m._conv_forward = types.MethodType(_conv_forward, m)  # type: ignore[method-assign]


def is_narrow(m: nn.Conv2d) -> bool:
    """Whether a convolution is of the kind that gains."""
    height, width = m.kernel_size
    shape = width == 3 and m.padding == (height // 2, 1) and m.stride[1] in (1, 2)
    return is_usual(m) and shape and m.in_channels in INNER and m.out_channels in OUTER


def is_usual(m: nn.Conv2d) -> bool:
    """Whether a convolution is no more than one: nobody else's idea of it."""
    plain = type(m)._conv_forward is nn.Conv2d._conv_forward and "weight" in m._parameters
    return plain and m.groups == 1 and m.dilation == (1, 1) and m.padding_mode == "zeros"


def is_centred(m: nn.Conv2d) -> bool:
    """Whether its windows are squares, wider than a pixel, with one in their middle."""
    k = m.kernel_size[0]
    return k > 1 and k % 2 == 1 and m.kernel_size == (k, k) and m.padding == (k // 2, k // 2)


def paired(w: Tensor, stride: int) -> Tensor:
    """w' [out·(2/stride), 2·in, h, 3] of w [out, in, h, 3]: see the head of this file.

    >>> paired(torch.tensor([1.0, 2.0, 3.0]).view(1, 1, 1, 3), stride=1)[:, :, 0]
    tensor([[[0., 2., 0.],
             [1., 3., 0.]],
    <BLANKLINE>
            [[0., 1., 3.],
             [0., 2., 0.]]])
    """
    outer, inner, height, _ = w.shape
    out = w.new_zeros(2 // stride, outer, 2, inner, height, 3)
    for j in range(2 // stride):
        for d in (-1, 0, 1):
            column, i = divmod(stride * j + d, 2)
            out[j, :, i, :, :, column + 1] = w[..., d + 1]
    return out.reshape(-1, 2 * inner, height, 3).contiguous(memory_format=torch.channels_last)


def _conv_forward(self: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if x.ndim != 4 or x.shape[3] % 2 or weight is not self.weight:  # who makes another of it at each call means that
        y: Tensor = nn.Conv2d._conv_forward(self, x, weight, bias)
        return y
    w, pairs = self.get_buffer("paired"), 2 // self.stride[1]
    wide = F.conv2d(halve(x), w, None if bias is None else bias.repeat(pairs), (self.stride[0], 1), self.padding)
    return wide if pairs == 1 else double(wide)


def halve(x: Tensor) -> Tensor:
    """x' of x: half the columns, twice the channels."""
    n, c, h, w = x.shape
    return x.permute(0, 2, 3, 1).reshape(n, h, w // 2, 2 * c).permute(0, 3, 1, 2)


def double(x: Tensor) -> Tensor:
    """x of x'."""
    n, c, h, w = x.shape
    return x.permute(0, 2, 3, 1).reshape(n, h, 2 * w, c // 2).permute(0, 3, 1, 2)
