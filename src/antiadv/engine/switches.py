"""Settings of torch that hold for the complete process: each is set for a block of code and put back afterwards.

    switched(precision, device)                the precision of every pass in the block
    switched_for_compiled(precision, device)   the same, and what the compiler needs
    algorithms_timed(on)                       cuDNN times its algorithms and takes the fastest

Nothing is set at import. On CUDA only one thread at a time may make passes (`ALONE`). Otherwise a second thread could
change the precision in the middle of a pass, or put an old value back too early.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

from antiadv.core import torch_private
from antiadv.engine.precision import HALF_DTYPES

ALONE = threading.RLock()  # held on CUDA while a thread sets the precision, captures a graph or serves
VARIANTS_COMPILED = 128  # of one function: one per network, with gradients and without, for 1, 2 and 16 images


@contextlib.contextmanager
def switched(precision: str, device: torch.device) -> Iterator[None]:
    """Compute in this precision."""
    dtype = HALF_DTYPES.get(precision)
    if device.type != "cuda":
        with torch.autocast(device.type, dtype or torch.bfloat16, enabled=dtype is not None):
            yield
        return
    # Without a cache: autocast empties it at the end, and a captured graph would go on reading it.
    autocast = torch.autocast("cuda", dtype or torch.bfloat16, enabled=dtype is not None, cache_enabled=False)
    with ALONE, _float32_products("ieee" if precision == "float32" else "tf32"), autocast:
        yield


@contextlib.contextmanager
def _float32_products(mode: str) -> Iterator[None]:
    conv, matmul = torch.backends.cudnn.conv, torch.backends.cuda.matmul  # type: ignore[attr-defined]
    before = conv.fp32_precision, matmul.fp32_precision
    conv.fp32_precision = matmul.fp32_precision = mode
    try:
        yield
    finally:
        conv.fp32_precision, matmul.fp32_precision = before


@contextlib.contextmanager
def algorithms_timed(on: bool) -> Iterator[None]:
    """Let each convolution try all its algorithms before it chooses one."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or on
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@contextlib.contextmanager
def switched_for_compiled(precision: str, device: torch.device) -> Iterator[None]:
    """The same for passes through compiled networks, which include the first one, where torch compiles.

    One function may have many variants, and a Jacobian may go back through one pass several times.
    """
    dynamo, functorch = torch_private.compiler_configs()
    before = dynamo.recompile_limit, functorch.donated_buffer
    dynamo.recompile_limit = max(VARIANTS_COMPILED, dynamo.recompile_limit)  # beyond it nothing is compiled
    functorch.donated_buffer = False
    try:
        with switched(precision, device):
            yield
    finally:
        dynamo.recompile_limit, functorch.donated_buffer = before
