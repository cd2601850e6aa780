"""Networks in 16 bits: gradients that do not underflow, and a last layer in float32.

Half(net)          a network in float16 that returns gradients of any size
refine_head(net)   the end of a network computes in float32 under autocast
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from antiadv.core.ball import per_row
from antiadv.engine.precision import HALF_DTYPES


class Half(nn.Module):
    """A network that computes in float16 and answers in the precision of its images.

    The gradient that enters the network is divided by its largest entry, per sample, and multiplied by it at the end.
    A derivative is linear, so nothing changes, except that the small gradients of confident samples do not underflow.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.training = net, False

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            s: Tensor = self.net(x).to(x.dtype)
            return s
        size = _Size()
        inside = self.net(_GrowBack.apply(x, size))  # type: ignore[no-untyped-call]
        s = _ShrinkBack.apply(inside, size, x.dtype)  # type: ignore[no-untyped-call]
        return s  # noqa: RET504 - named for its type


class _Size:
    """The largest entry of each sample's gradient at the scores, in one pass."""

    value: Tensor


class _ShrinkBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, s: Tensor, size: _Size, dtype: torch.dtype) -> Tensor:
        ctx.size, ctx.dtype = size, s.dtype
        return s.to(dtype)

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, None, None]:
        largest = torch.linalg.vector_norm(d, math.inf, dim=1, keepdim=True)
        ctx.size.value = largest.clamp_min(torch.finfo(d.dtype).tiny)  # a zero gradient stays zero
        return (d / ctx.size.value).to(ctx.dtype), None, None


class _GrowBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, size: _Size) -> Tensor:
        ctx.size = size
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g * per_row(ctx.size.value.squeeze(1), g), None


def refine_head(net: nn.Module) -> None:
    """Let the last linear layer of this copy, and what precedes it after the previous weights, compute in float32.

    With mantissas of 8 or 11 bits scores lie on coarse steps, and an attack that compares two scores sees no
    difference.
    """
    weighted = [m for m in net.modules() if any(True for _ in m.parameters(recurse=False))]
    last = max((i for i, m in enumerate(weighted) if isinstance(m, nn.Linear)), default=0)
    if not last or any(p.dtype in HALF_DTYPES.values() for p in weighted[last].parameters(recurse=False)):
        return  # no such layer, or weights of 16 bits
    before, head = weighted[last - 1].forward, weighted[last].forward

    def widened(*args: Any, **named: Any) -> Any:
        out = before(*args, **named)
        return out.float() if isinstance(out, Tensor) else out

    def exact(input: Tensor) -> Any:  # the argument has torch's name, because callers may use it
        with torch.autocast(input.device.type, enabled=False):
            return head(input.float())

    # methods are replaced, since hooks belong to the network
    weighted[last - 1].forward, weighted[last].forward = widened, exact
