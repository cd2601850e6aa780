"""Strided 1 x 1 convolutions on a CPU, computed so that no weight gradient of theirs can corrupt memory.

    taken_first()   while it is active, conv2d(x, w, stride=s)  →  conv2d(x[:, :, ::s, ::s], w)

A 1 x 1 convolution with stride s reads only every s-th pixel, so both sides are the same function. The left one must
not be differentiated with respect to its weights: on CPUs with AVX2 and without AVX-512 oneDNN's kernel for that writes
past the end of its workspace (https://github.com/uxlfoundation/oneDNN/issues/6035; oneDNN 3.12, torch 2.13). The
process crashes, hangs or goes on with wrong numbers. What was tried, with glibc's heap checks on:

    wrong when all hold      float32; kernel 1 x 1; stride above 1 in either direction, which divides the size; no
                             padding; no groups; 2 to 7 input channels; at least 2 images; images or weights channels
                             last (weights alone are enough, even where the images are contiguous)
    never wrong              contiguous images and weights; stride 1; other kernels; groups; padding; 1 or at least 8
                             input channels; bfloat16, float16, float64; autocast to bfloat16; transposed, 1-D and 3-D
                             convolutions; gradients with respect to the images alone
    AVX, SSE4.1, AVX-512     never wrong

A network that was compiled computes the gradients of all weights that require one, also where only the gradient of the
images is asked for. So does a network that calls `backward` inside. Hence the engine needs this as well as training.
Modules in TorchScript and calls of `torch.ops.aten` are not seen: a TorchFunctionMode sees what Python calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

BLOCK = 8  # input channels that AVX2 code handles at once; with fewer it writes what it has no room for


def taken_first(device: torch.device) -> AbstractContextManager[object]:
    """Safe convolutions on a CPU; elsewhere nothing."""
    return _TakenFirst() if device.type == "cpu" else nullcontext()


def guarded(model: nn.Module, device: torch.device) -> AbstractContextManager[object]:
    """The same for a model that is asked and not trained: nothing where none of its weights requires a gradient."""
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
    """`torch.conv2d`, named and ordered as torch names its arguments."""
    steps = (stride, stride) if isinstance(stride, int) else (stride[0], stride[-1])
    bare = padding == "valid" or padding in (0, (0,), (0, 0), [0], [0, 0])
    if max(steps) > 1 and bare and weight.ndim == 4 and weight.shape[1] < BLOCK and weight.shape[2:] == (1, 1):
        input, stride = input[..., :: steps[0], :: steps[1]], 1
    return F.conv2d(input, weight, bias, stride, padding, dilation, groups)
