"""a·x + b per channel on CUDA, channels last in memory: see `lines.py`. Importing this file needs Triton.

Each thread reads and writes eight neighbouring values, so it needs a multiple of eight channels. Other numbers of
channels take the plain operations.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, NEIGHBOURS = 1024, 8
KINDS = (torch.float16, torch.bfloat16, torch.float32)


@triton.jit  # type: ignore[untyped-decorator]
def _on_line(x_at, a_at, b_at, y_at, size, channels, block: tl.constexpr, together: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    channel = tl.max_contiguous(tl.multiple_of((at % channels).to(tl.int32), together), together)
    there = at < size
    y = tl.load(x_at + at, there, 0.0).to(tl.float32)
    if a_at is not None:
        y *= tl.load(a_at + channel).to(tl.float32)
    if b_at is not None:
        y += tl.load(b_at + channel).to(tl.float32)
    tl.store(y_at + at, y.to(y_at.dtype.element_ty), there)


def on_line(x: Tensor, a: Tensor | None, b: Tensor | None) -> Tensor:
    if x.ndim != 4 or x.dtype not in KINDS or x.shape[1] % NEIGHBOURS or x.numel() == 0:
        from antiadv.engine.rewrites.lines import plain  # here, because it imports this file

        return plain(x, a, b)
    x = x.contiguous(memory_format=torch.channels_last)
    y = torch.empty_like(x)
    with torch.cuda.device(x.device):  # Triton launches on the current device
        _on_line[(triton.cdiv(x.numel(), BLOCK),)](x, a, b, y, x.numel(), x.shape[1], BLOCK, NEIGHBOURS)
    return y
