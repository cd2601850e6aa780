"""Backward operators in terms of forward ones, for ONNX, which has no backward operators.

    onnx_table()    {operator: function}, the `decomposition_table` of a trace

Only the gradient with respect to the images is ever needed. It is linear in what comes from above:

    convolution     a convolution with turned weights if the stride is 1, a transposed convolution otherwise
    average pool    a transposed convolution with a kernel of ones
    adaptive pool   A·x·Bᵀ with constant matrices A and B, so its gradient is Aᵀ·g·B
    batch norm      g·γ/√(σ² + ε)
    ReLU            g·[x > 0]

Some of them are forms that ONNX Runtime runs faster on a CPU: a convolution with turned weights in place of a
transposed one, unless it has a stride or gives less than a block of channels, and factors of channels as 1x1
convolutions. ONNX Runtime keeps activations in blocks of channels, but only convolutions, and sums and products of
equal shapes, work on blocks. Any other operator costs a pass over the memory before it and one after it. So [x > 0] is
a convolution by a huge factor, cut to [0, 1]. The file is for float32, whose smallest normal number becomes 1.
`benchmarks/export_latency.py` measures the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from antiadv.core.errors import BadInput
from antiadv.core.torch_private import decompositions

aten = torch.ops.aten
Table = dict[Any, Callable[..., Any]]

BLOCK = 16  # channels; ONNX Runtime has blocks of 8 or 16
HUGE = 2.0**126  # times the smallest normal number of float32 it is 1

# forward operators that the trace leaves in a form which ONNX lacks
FORWARD = ("nll_loss_forward", "_native_batch_norm_legit_no_training")


def onnx_table() -> Table:
    known: Table = decompositions()
    table = {op: how for op, how in known.items() if "backward" in str(op) or _name(op) in FORWARD}
    return table | {
        aten.convolution_backward.default: _convolution,
        aten.native_batch_norm_backward.default: _norm,
        aten.threshold_backward.default: _threshold,
        aten.expand.default: _expand,
        aten.avg_pool2d_backward.default: _avg_pool,
        aten._adaptive_avg_pool2d.default: _adaptive_pool,
        aten._adaptive_avg_pool2d_backward.default: _adaptive_pool_backward,
    }


def _name(op: Any) -> str:
    return str(op).partition(".")[2].partition(".")[0]


def _threshold(grad: Tensor, x: Tensor, threshold: float) -> Tensor:
    if threshold == 0 and _blocked(x):
        return grad * _times(x, torch.full((int(x.shape[1]),), HUGE)).clamp(0, 1)
    return grad * (x > threshold).to(grad.dtype)


def _expand(x: Tensor, size: Sequence[int], *, implicit: bool = False) -> Tensor:
    """The gradient of a mean over pixels; without the size of the batch, which the file would have to look up."""
    fits = x.is_floating_point() and len(size) == x.ndim == 4 and size[0] in (-1, x.shape[0])
    return x * torch.ones(list(size[1:])) if fits else NotImplemented


def _norm(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    batch_mean: Tensor | None,
    batch_scale: Tensor | None,
    training: bool,
    eps: float,
    mask: Sequence[bool],
) -> tuple[Tensor, None, None]:
    """∂/∂x of a batch norm in evaluation mode."""
    if training or any(mask[1:]):
        raise BadInput(
            "a norm of an exported network must use stored statistics; found one that computes them from its images, "
            "such as InstanceNorm2d, or a batch norm in training mode. Use GroupNorm, or call eval()."
        )
    factor = (variance + eps).rsqrt()
    return _times(grad, factor if weight is None else weight * factor), None, None


def _blocked(x: Tensor) -> bool:
    return x.ndim == 4 and int(x.shape[1]) % BLOCK == 0


def _times(x: Tensor, factor: Tensor) -> Tensor:
    """Each channel times its factor."""
    if not _blocked(x):
        return x * factor.reshape(-1, *[1] * (x.ndim - 2))
    each = factor.reshape(-1, 1, 1, 1)
    found: Tensor = aten.convolution(x, each, None, [1, 1], [0, 0], [1, 1], False, [0, 0], len(factor))
    return found


# ---------------------------------------------------------------- convolution


def _convolution(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: object,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> tuple[Tensor, None, None]:
    """∂/∂x of a convolution. With stride 1 it is a convolution: weights turned by 180°, in and out exchanged."""
    n = x.ndim - 2
    stride, padding, dilation = _each(stride, n), _each(padding, n), _each(dilation, n)
    if any(mask[1:]):
        raise BadInput("the weights of a network to export need no gradients; found some that do. Freeze them.")
    if transposed:  # the gradient of a transposed convolution is a convolution
        return aten.convolution(grad, weight, None, stride, padding, dilation, False, [0] * n, groups), None, None
    reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    wide = int(x.shape[1]) >= BLOCK  # it computes whole blocks, so for the three channels of an image most is wasted
    if wide and set(stride) == {1} and all(p <= r for p, r in zip(padding, reach, strict=True)):
        turned, around = _turned(weight, groups), [r - p for r, p in zip(reach, padding, strict=True)]
        return aten.convolution(grad, turned, None, stride, around, dilation, False, [0] * n, groups), None, None
    rest = [
        x.shape[2 + i] - ((grad.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + reach[i] + 1) for i in range(n)
    ]  # pixels at the end that no window covers
    return aten.convolution(grad, weight, None, stride, padding, dilation, True, rest, groups), None, None


def _turned(weight: Tensor, groups: int) -> Tensor:
    outer, inner, *kernel = weight.shape
    split = weight.reshape(groups, outer // groups, inner, *kernel).transpose(1, 2)
    return split.reshape(groups * inner, outer // groups, *kernel).flip(*range(2, weight.ndim))


def _each(values: Sequence[int], n: int) -> list[int]:
    return list(values) if len(values) == n else list(values) * n


# ---------------------------------------------------------------- pooling


def _avg_pool(
    grad: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Tensor:
    """Every pixel of a window gets the same share of its gradient; windows may overlap and reach outside."""
    kernel, padding = _each(kernel, 2), _each(padding, 2)
    stride = _each(stride, 2) if len(stride) else kernel
    high, wide = (
        _counts(int(x.shape[-2 + i]), int(grad.shape[-2 + i]), kernel[i], stride[i], padding[i], count_include_pad)
        for i in (0, 1)
    )
    share = torch.tensor(1 / divisor) if divisor else 1 / (high[:, None] * wide[None, :])
    channels = int(x.shape[1])
    ones = torch.ones(channels, 1, *kernel)
    sizes = [int(n) for n in x.shape[2:]]
    # pixels at the end that no window covers, or less than none where the last window reaches beyond (ceil_mode)
    rest = [sizes[i] - ((int(grad.shape[2 + i]) - 1) * stride[i] - 2 * padding[i] + kernel[i]) for i in (0, 1)]
    after = [max(r, 0) for r in rest]
    full: Tensor = aten.convolution(grad * share, ones, None, stride, padding, [1, 1], True, after, channels)
    return full if min(rest) >= 0 else full[:, :, : sizes[0], : sizes[1]]


def _counts(size: int, windows: int, kernel: int, stride: int, padding: int, include: bool) -> Tensor:
    """The number of pixels by which torch divides in each window of one axis."""
    found = []
    for start in range(-padding, -padding + windows * stride, stride):
        end = min(start + kernel, size + padding)
        found.append(end - start if include else min(end, size) - max(start, 0))
    return torch.tensor(found, dtype=torch.float32)


def _adaptive_pool(x: Tensor, size: Sequence[int]) -> Tensor:
    high, wide = (_windows(int(x.shape[-2 + i]), size[i]) for i in (0, 1))
    return high @ x @ wide.T


def _adaptive_pool_backward(grad: Tensor, x: Tensor) -> Tensor:
    high, wide = (_windows(int(x.shape[-2 + i]), int(grad.shape[-2 + i])) for i in (0, 1))
    return high.T @ grad @ wide


def _windows(size: int, windows: int) -> Tensor:
    """[windows, size]: each row averages the pixels from ⌊k·size/windows⌋ up to ⌈(k+1)·size/windows⌉."""
    rows = []
    for k in range(windows):
        start, end = k * size // windows, -(-(k + 1) * size // windows)
        rows.append([1 / (end - start) if start <= i < end else 0.0 for i in range(size)])
    return torch.tensor(rows)
