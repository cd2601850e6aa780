"""The precisions a search may compute in. The judge always computes in float32.

    float32   IEEE float32 everywhere
    tf32      float32 in memory, 10-bit mantissas inside convolutions and matrix products (CUDA only)
    half      float16 by autocast, the last layer in float32: the mantissas of tf32 in half the bytes (CUDA only)
    mixed     bfloat16 by autocast, the last layer in float32: coarser, but no number overflows

Scores, losses and gradients are float32 in all of them. A caller may say `auto`, which `evaluation/automatic.py`
replaces by one of these. An engine always has one of these.
"""

from __future__ import annotations

import torch

from antiadv.core.errors import BadSpec

AUTO = "auto"
PRECISIONS = ("float32", "tf32", "half", "mixed")  # the finest first
HALF_DTYPES = {"half": torch.float16, "mixed": torch.bfloat16}  # precisions with 16-bit numbers inside


def check_precision(precision: str) -> None:
    if precision not in PRECISIONS:
        raise BadSpec(f"there is no precision {precision!r}; known are {', '.join(PRECISIONS)}.")
