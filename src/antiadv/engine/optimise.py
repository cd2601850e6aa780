"""The network that is asked in place of the bare one: the same function, made ready for a device and a precision.

prepared(f, precision, compiled, works, x)   →  f itself where nothing is to be done
behind(g, f')                                →  the defence g in front of f' instead of its own base

channels last   how tensor cores and CPUs want a convolution's weights: a copy of f, whose later changes are not seen
compiled        on request, for any number of images: half a minute, which pays on long runs
folded          batch norms that follow a convolution, seen on the image x (`folded.py`)
16 bits         on a GPU, for `half` and `mixed`: narrow convolutions of pairs of columns (`paired.py`), strided ones of
                neighbours (`strided.py`), weights that need no rounding at each pass;
                for both of them the end of the network in float32
half            float16 inside, by autocast, with gradients of any size
mixed           bfloat16 inside, by autocast
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from antiadv.core.ball import per_row
from antiadv.core.defence import Defence
from antiadv.engine.precision import HALF_DTYPES
from antiadv.engine.rewrites.fold_norms import fold_norms
from antiadv.engine.rewrites.pair_columns import is_usual, pair_narrow
from antiadv.engine.rewrites.strided import join_strides
from antiadv.models.layers import Conv

PLAIN = (nn.Conv2d.forward, Conv.forward)
KINDS = 128  # of code for one family: each network's own, with gradients and without, for 1, 2 and 16 images


def optimised(
    base: nn.Module, precision: str, compiled: bool, works: Callable[[nn.Module], bool], x: Tensor
) -> nn.Module:
    """`works` tries a copy on the image x, behind whatever it stands: one that it refuses is not used."""
    ready = channels_last(base) if gains(base, precision) else base
    if ready is not base and not works(ready):
        ready = base
    sober = not any(getattr(m, "uncompilable", False) for m in base.modules())  # it rolls no dice
    on_gpu = any(p.is_cuda for p in base.parameters())
    if ready is not base:
        if sober:
            fold_norms(ready, x)
        if precision in HALF_DTYPES and on_gpu:
            short = shortened(ready, HALF_DTYPES[precision])
            ready = short if works(short) else ready
        if precision in HALF_DTYPES:
            refine_head(ready)
    if compiled and sober:
        ready = _Compiled(ready, frozen=not on_gpu, last=ready is not base)
    return Half(ready) if precision == "half" else ready


def gains(base: nn.Module, precision: str) -> bool:
    """Whether channels last are faster: for convolutions on tensor cores, and on a CPU, which has none for float64."""
    kinds = {p.device.type for p in base.parameters() if p.ndim == 4 and p.dtype != torch.float64}
    return "cpu" in kinds or ("cuda" in kinds and precision != "float32")


def shortened(twin: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy whose convolutions suit tensor cores with 16 bits, and whose weights have them."""
    short = channels_last(twin)
    pair_narrow(short)
    join_strides(short)
    for m in short.modules():
        if isinstance(m, nn.Conv2d) and is_usual(m) and type(m).forward in PLAIN:  # nobody makes other weights of these
            m.to(dtype)
    return short


def with_base(model: nn.Module, base: nn.Module) -> nn.Module:
    """The same defence in front of another network; of a bare one nothing is left."""
    if not isinstance(model, Defence):
        return base
    twin = copy.copy(model)
    twin._modules = dict(model._modules)
    twin.base = with_base(model.base, base)
    return twin


class _Compiled(nn.Module):
    """A network compiled once for any number of images, which calls no hook of the network itself.

    `frozen`: without gradients its weights are folded into the code, and are then those of the first call; on a GPU
    that gains nothing, and every network of one family would be compiled anew. `last`: images are laid channels last,
    lest there be code for each layout. Where there is no compiler on the machine, or the network is beyond it, it runs
    as it stands.
    """

    def __init__(self, net: nn.Module, frozen: bool, last: bool) -> None:
        super().__init__()
        import torch._dynamo.config as dynamo  # here, for it takes as long to load as all of torch
        from torch._dynamo.decorators import maybe_mark_dynamic
        from torch._functorch import config

        config.donated_buffer = False  # for all of the process: a Jacobian goes back through one pass several times
        dynamo.recompile_limit = max(KINDS, dynamo.recompile_limit)  # beyond it nothing is compiled
        self.net, self.training, self._mark, self._last = net, False, maybe_mark_dynamic, last
        self._run: Callable[[Tensor], Tensor] = torch.compile(net.forward)
        self._frozen = torch.compile(net.forward, options={"freezing": True}) if frozen else self._run

    def forward(self, x: Tensor) -> Tensor:
        run = self._run if torch.is_grad_enabled() else self._frozen
        if self._last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        try:
            self._mark(x, 0)  # one piece of code for any number of images
            return run(x)
        except RuntimeError as error:
            from torch._dynamo.exc import TorchDynamoException

            if not isinstance(error, TorchDynamoException):
                raise
            self._run = self._frozen = self.net.forward
            s: Tensor = self.net.forward(x)
            return s


class Half(nn.Module):
    """A network that computes in float16 and answers in the precision of its images, gradients of any size included.

    What comes back for a sample is divided by its largest entry before it enters the network and multiplied by it
    behind: a derivative is linear, so this changes nothing but what float16 would lose of a confident sample's.
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
    """The largest entry of what came back for each sample, of one pass."""

    value: Tensor


class _ShrinkBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, s: Tensor, size: _Size, dtype: torch.dtype) -> Tensor:
        ctx.size, ctx.dtype = size, s.dtype
        return s.to(dtype)

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, None, None]:
        largest = torch.linalg.vector_norm(d, math.inf, dim=1, keepdim=True)
        ctx.size.value = largest.clamp_min(torch.finfo(d.dtype).tiny)  # of no gradient there is none to shrink
        return (d / ctx.size.value).to(ctx.dtype), None, None


class _GrowBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, size: _Size) -> Tensor:
        ctx.size = size
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g * per_row(ctx.size.value.squeeze(1), g), None


def refine_head(twin: nn.Module) -> None:
    """Let the end of this copy compute in float32 under autocast: its last linear layer, and whatever stands between
    that and the last weights before it, such as pooling.

    With 8 bits, or 11, scores lie on steps, and who compares two of them sees no difference where there is one.
    """
    weights = [m for m in twin.modules() if any(True for _ in m.parameters(recurse=False))]
    last = max((i for i, m in enumerate(weights) if isinstance(m, nn.Linear)), default=0)
    if not last or any(p.dtype in HALF_DTYPES.values() for p in weights[last].parameters(recurse=False)):
        return  # weights that have no more bits than that
    before, head = weights[last - 1].forward, weights[last].forward

    def widened(*args: Any, **named: Any) -> Any:
        out = before(*args, **named)
        return out.float() if isinstance(out, Tensor) else out

    def exact(input: Tensor) -> Any:  # called as torch's own is, by name too
        with torch.autocast(input.device.type, enabled=False):
            return head(input.float())

    # no hooks, which are the network's own
    weights[last - 1].forward, weights[last].forward = widened, exact


def channels_last(net: nn.Module) -> nn.Module:
    """A copy whose weights lie as its images will; a network that cannot be copied serves as it stands.

    It calls the hooks of the network itself, those that are registered later too: who counts passes goes on counting.
    """
    hooks = [h for m in net.modules() for name, h in vars(m).items() if "_hooks" in name]
    try:
        twin = copy.deepcopy(net, {id(h): h for h in hooks})
        return twin.to(memory_format=torch.channels_last).requires_grad_(False)  # type: ignore[call-overload, no-any-return]
    except Exception:  # whatever a network of somebody else's holds: a lock, a file, weights for video
        return net
