"""Safe strided 1 x 1 convolutions on a CPU: their weight gradients cannot corrupt memory.

    taken_first()   while it is active, conv2d(x, w, stride=s)  →  conv2d(x[:, :, ::s, ::s], w)

A 1 x 1 convolution with stride s reads only every s-th pixel, so both sides are the same function. The left one has a
bug in its weight gradient: on CPUs with AVX2 but without AVX-512, oneDNN's kernel writes past the end of its workspace
(https://github.com/uxlfoundation/oneDNN/issues/6035; oneDNN 3.12, torch 2.13). The process then crashes, hangs or
continues with wrong numbers. Tried with glibc's heap checks on:

    wrong when all hold      float32; kernel 1 x 1; stride above 1 in either direction, which divides the size; no
                             padding; no groups; 2 to 7 input channels; at least 2 images; images or weights channels
                             last (weights alone are enough, even where the images are contiguous)
    never wrong              contiguous images and weights; stride 1; other kernels; groups; padding; 1 or at least 8
                             input channels; bfloat16, float16, float64; autocast to bfloat16; transposed, 1-D and 3-D
                             convolutions; gradients with respect to the images alone
    AVX, SSE4.1, AVX-512     never wrong

A compiled network computes the gradients of all weights that require one, even if only the gradient of the images is
asked for. So does a network that calls `backward` inside. So both training and the engine need this. TorchScript
modules and calls of `torch.ops.aten` are not covered: a TorchFunctionMode sees only calls from Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

BLOCK_CHANNELS = 8  # input channels that the AVX2 code handles at once; the bug needs fewer


def taken_first(device: torch.device) -> AbstractContextManager[object]:
    """Make convolutions safe on a CPU; do nothing on other devices."""
    return _TakenFirst() if device.type == "cpu" else nullcontext()


def guarded(model: nn.Module, device: torch.device) -> AbstractContextManager[object]:
    """The same for a model that is not trained; does nothing if none of its weights requires a gradient."""
    if device.type != "cpu" or not any(p.requires_grad for p in model.parameters()):
        return nullcontext()
    return _TakenFirst()


class _TakenFirst(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        call = _conv2d if func is torch.conv2d else func
        return call(*args, **(kwargs or {}))


def _conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """`torch.conv2d`, with the same names and order of arguments."""
    strides = (stride, stride) if isinstance(stride, int) else (stride[0], stride[-1])
    unpadded = padding == "valid" or padding in (0, (0,), (0, 0), [0], [0, 0])
    if (
        max(strides) > 1
        and unpadded
        and weight.ndim == 4
        and weight.shape[1] < BLOCK_CHANNELS
        and weight.shape[2:] == (1, 1)
    ):
        input, stride = input[..., :: strides[0], :: strides[1]], 1
    return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
