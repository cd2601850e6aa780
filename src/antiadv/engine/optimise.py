"""A copy of a network that runs faster on its device: the same function in another form.

    optimised(f, precision, compiled, works, x)   →  the copy, or f itself where nothing is gained
    with_base(g, f')                              →  the defence g on f' instead of its own base
    Copies                                        the copies of one engine

    channels last   the layout in which tensor cores and CPUs want weights
    folded          batch norms that follow a convolution (`rewrites/fold_norms.py`)
    16 bits         for `half` and `mixed`: norms as lines; on a GPU two more rewrites, and weights stored in 16 bits
    head            for `half` and `mixed`: the end of the network in float32 (`half.py`)
    compiled        on request, for any number of images: takes half a minute, which pays on long runs

A copy keeps the weights of the first request: it does not see later changes.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor, nn

from antiadv.core import torch_private
from antiadv.core.defence import Defence, base_of
from antiadv.engine.cuda_graphs import MODELS_KEPT
from antiadv.engine.half import Half, refine_head
from antiadv.engine.meter import aside
from antiadv.engine.precision import HALF_DTYPES
from antiadv.engine.rewrites.fold_norms import fold_norms
from antiadv.engine.rewrites.lines import draw_lines, has_kernel
from antiadv.engine.rewrites.pair_columns import is_usual, pair_narrow
from antiadv.engine.rewrites.strided import join_strides
from antiadv.models.layers import Conv

PLAIN_FORWARDS = (nn.Conv2d.forward, Conv.forward)  # they use the stored weights, and derive no others from them


class Copies:
    """The copies that one engine runs in place of the networks it is asked about."""

    def __init__(self, precision: str, compiled: bool) -> None:
        self.precision, self.compiled = precision, compiled
        self.by_model: OrderedDict[nn.Module, nn.Module] = OrderedDict()
        self._by_base: OrderedDict[nn.Module, nn.Module] = OrderedDict()  # one copy for all defences of a network

    def of(self, model: nn.Module, run_on_one: Callable[[nn.Module], object], x: Tensor) -> nn.Module:
        """The model with a copy of its bare network, made at the first request; the model itself without a copy.

        x are the images of a request. `run_on_one` makes it for one of them with another model: a copy that fails is
        not used.
        """
        if model not in self.by_model:

            def works(base: nn.Module) -> bool:
                """For example, a network may depend on the layout of its images."""
                try:
                    with aside():
                        run_on_one(with_base(model, base))
                except Exception:  # if the network itself fails too, the request reports it
                    return False
                return True

            base = base_of(model)
            if base not in self._by_base:
                with aside(), torch.inference_mode(False):  # weights copied in inference mode have no gradients
                    made = optimised(base, self.precision, self.compiled, works, x[:1])
                _keep(self._by_base, base, made)
            made = self._by_base[base]
            _keep(self.by_model, model, model if made is base else with_base(model, made))
        return self.by_model[model]


def _keep(kept: OrderedDict[nn.Module, nn.Module], model: nn.Module, made: nn.Module) -> None:
    kept[model] = made
    if len(kept) > MODELS_KEPT:
        kept.popitem(last=False)


def optimised(
    base: nn.Module, precision: str, compiled: bool, works: Callable[[nn.Module], bool], x: Tensor
) -> nn.Module:
    """Return the copy of `base` to run, or `base` itself.

    `works` runs a copy on the image x, inside its defence. A copy on which this fails is not used.
    """
    made = channels_last(base) if gains(base, precision) else base
    if made is not base and not works(made):
        made = base
    deterministic = compilable(base)
    on_gpu = any(p.is_cuda for p in base.parameters())
    if made is not base:
        if deterministic:
            fold_norms(made, x)
        if precision in HALF_DTYPES:
            short = shortened(made, HALF_DTYPES[precision] if on_gpu else None, lines=not compiled)
            made = short if works(short) else made
            refine_head(made)
    if compiled and deterministic:
        made = _Compiled(made, frozen=not on_gpu, last=made is not base)
    return Half(made) if precision == "half" else made


def compilable(base: nn.Module) -> bool:
    """Whether a network may be compiled: it draws no random numbers inside."""
    return not any(getattr(m, "uncompilable", False) for m in base.modules())


def gains(base: nn.Module, precision: str) -> bool:
    """Whether channels last is faster: for convolutions on tensor cores, and on a CPU except in float64."""
    kinds = {p.device.type for p in base.parameters() if p.ndim == 4 and p.dtype != torch.float64}
    return "cpu" in kinds or ("cuda" in kinds and precision != "float32")


def shortened(net: nn.Module, dtype: torch.dtype | None, lines: bool = False) -> nn.Module:
    """A copy for passes in 16 bits. With `dtype` its weights are stored so, and convolutions suit tensor cores.

    `lines` is for code that is not compiled: a compiler joins a norm with what comes after it.
    """
    short = channels_last(net)
    if dtype is not None:
        pair_narrow(short)
        join_strides(short)
        for m in short.modules():
            if isinstance(m, nn.Conv2d) and is_usual(m) and type(m).forward in PLAIN_FORWARDS:
                m.to(dtype)
    if lines:
        draw_lines(short, biases=dtype is not None and has_kernel())
    return short


def with_base(model: nn.Module, base: nn.Module) -> nn.Module:
    """The same defence on another network; for a bare network, that other network."""
    if not isinstance(model, Defence):
        return base
    twin = torch_private.shallow_copy(model)
    twin.base = with_base(model.base, base)
    return twin


class _Compiled(nn.Module):
    """A network compiled once for any number of images. It calls no hooks of the network.

    With `frozen`, passes without gradients have the weights folded into their code. On a GPU that gains nothing, and
    every network of one family would be compiled anew. With `last`, images are laid channels last, so that one layout
    is compiled. Without a compiler on the machine, or if it fails, the network runs as it is.
    """

    def __init__(self, net: nn.Module, frozen: bool, last: bool) -> None:
        super().__init__()
        self.net, self.training, self._last = net, False, last
        self._run: Callable[[Tensor], Tensor] = torch.compile(net.forward)
        self._frozen = torch.compile(net.forward, options={"freezing": True}) if frozen else self._run

    def forward(self, x: Tensor) -> Tensor:
        run = self._run if torch.is_grad_enabled() else self._frozen
        if self._last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        try:
            torch_private.mark_batch_dynamic(x)
            return run(x)
        except RuntimeError as error:
            if not torch_private.is_compiler_error(error):
                raise
            self._run = self._frozen = self.net.forward
            s: Tensor = self.net.forward(x)
            return s


def channels_last(net: nn.Module) -> nn.Module:
    """A copy whose weights lie channels last; the network itself if it cannot be copied.

    The copy calls the hooks of the network, also those registered later, so that passes are still counted.
    """
    hooks = [h for m in net.modules() for name, h in vars(m).items() if "_hooks" in name]
    try:
        twin = copy.deepcopy(net, {id(h): h for h in hooks})
        return twin.to(memory_format=torch.channels_last).requires_grad_(False)  # type: ignore[call-overload, no-any-return]
    except Exception:  # a network may hold anything: a lock, a file, weights for video
        return net
