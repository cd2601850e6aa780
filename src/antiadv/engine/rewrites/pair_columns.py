"""Narrow convolutions on tensor cores: two neighbouring columns become one column with twice the channels.

    x [N, C, H, W], channels last in memory  =  x' [N, 2C, H, W/2], the same bytes with another shape
    column X of x' holds the columns 2X and 2X + 1 of x

    conv(x, w) = conv(x', w'), where w' is w with zeros between:   w'[j, i, d'] = w[d],   2d' + i = stride·j + d
    stride 1: the answer comes in pairs of columns too (j = 0, 1), and is reshaped back.   stride 2: j = 0 only

When:   at most 16 input and 32 output channels, kernels of width 3, an even number of columns.
Gain:   GPU libraries have fast code for 32 channels and none for 16. The same sums, with zeros in them, on twice the
        channels take far less time in float16 on an H200. In tf32 there is hardly a gain.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.core import torch_private

INPUT_CHANNELS, OUTPUT_CHANNELS = range(8, 17), range(8, 33)  # that gain: fewer stay few, more have fast code


def pair_narrow(net: nn.Module) -> None:
    """Rewrite the narrow convolutions of this copy."""
    for m in net.modules():
        if isinstance(m, nn.Conv2d) and is_narrow(m):
            m.register_buffer("paired", paired(m.weight.detach(), m.stride[1]), persistent=False)
            torch_private.replace_conv(m, _conv_forward)


def is_narrow(m: nn.Conv2d) -> bool:
    """Whether the rewrite applies and gains."""
    height, width = m.kernel_size
    shape = width == 3 and m.padding == (height // 2, 1) and m.stride[1] in (1, 2)
    return is_usual(m) and shape and m.in_channels in INPUT_CHANNELS and m.out_channels in OUTPUT_CHANNELS


def is_usual(m: nn.Conv2d) -> bool:
    """Whether this is a convolution as torch computes it, without groups or dilation, padded with zeros."""
    plain = torch_private.has_plain_conv(m) and "weight" in torch_private.parameter_names(m)
    return plain and m.groups == 1 and m.dilation == (1, 1) and m.padding_mode == "zeros"


def is_centred(m: nn.Conv2d) -> bool:
    """Whether the kernel is an odd square larger than 1, and the padding keeps the size."""
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
    if x.ndim != 4 or x.shape[3] % 2 or weight is not self.weight:  # a subclass may derive a weight at each call
        return torch_private.plain_conv(self, x, weight, bias)
    w, pairs = self.get_buffer("paired"), 2 // self.stride[1]
    wide = F.conv2d(halve(x), w, None if bias is None else bias.repeat(pairs), (self.stride[0], 1), self.padding)
    return wide if pairs == 1 else double(wide)


def halve(x: Tensor) -> Tensor:
    """x to x': half the columns, twice the channels."""
    n, c, h, w = x.shape
    return x.permute(0, 2, 3, 1).reshape(n, h, w // 2, 2 * c).permute(0, 3, 1, 2)


def double(x: Tensor) -> Tensor:
    """x' to x."""
    n, c, h, w = x.shape
    return x.permute(0, 2, 3, 1).reshape(n, h, 2 * w, c // 2).permute(0, 3, 1, 2)
