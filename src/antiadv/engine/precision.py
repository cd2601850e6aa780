"""Precisions: what the passes of a search are computed in. The judge looks in float32, whatever searched.

    float32   as IEEE has it, everywhere
    tf32      float32 storage, tensor cores with 10-bit mantissas inside convolutions and products (CUDA)
    half      float16 inside, by autocast, but for the head: the mantissas of tf32 in half the bytes (CUDA)
    mixed     bfloat16 inside, by autocast, but for the head: coarser, and for any size of number

Scores, losses and gradients are float32 in all of them.

On CUDA torch keeps the precision for the whole process. So one thread at a time passes images there (`ALONE`): another
could switch the precision in the middle of a pass, or put back what held before too early.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

from antiadv.core.errors import BadSpec

PRECISIONS = ("float32", "tf32", "half", "mixed")  # the finest first
ALONE = threading.RLock()  # what one thread may do at a time on CUDA: switch the precision, capture, serve
HALF_DTYPES = {"half": torch.float16, "mixed": torch.bfloat16}  # 16 bits inside


def check_precision(precision: str) -> None:
    if precision not in PRECISIONS:
        raise BadSpec(f"there is no precision {precision!r}; known are {', '.join(PRECISIONS)}.")


@contextlib.contextmanager
def switched(precision: str, device: torch.device) -> Iterator[None]:
    """Inside, this precision holds; afterwards what held before."""
    inside = HALF_DTYPES.get(precision)
    if device.type != "cuda":
        with torch.autocast(device.type, inside or torch.bfloat16, enabled=inside is not None):
            yield
        return
    with ALONE, _switched_cuda(precision, inside):
        yield


@contextlib.contextmanager
def _switched_cuda(precision: str, inside: torch.dtype | None) -> Iterator[None]:
    conv, product = torch.backends.cudnn.conv, torch.backends.cuda.matmul  # type: ignore[attr-defined]
    before = conv.fp32_precision, product.fp32_precision
    conv.fp32_precision = product.fp32_precision = "ieee" if precision == "float32" else "tf32"
    try:
        # no cache: it would be emptied at the end, and a captured graph would go on reading it
        with torch.autocast("cuda", inside or torch.bfloat16, enabled=inside is not None, cache_enabled=False):
            yield
    finally:
        conv.fp32_precision, product.fp32_precision = before
