"""Private parts of torch that this library uses, all in one place. Tested with torch 2.11 to 2.15.

A new version of torch may change any of these without notice. What is used, and by which module:

    torch.cuda.jiterator._create_jit_fn      core/draws_cuda.py       falls back to plain operations
    Tensor._version                          core/validation.py
    torch._C: dispatch modes, functorch      core/defence.py
    torch._dynamo, torch._functorch          engine/optimise.py, engine/switches.py: only where a network is compiled
    torch._inductor                          engine/background.py: in the process that compiles
    torch.ops.mkldnn, torch.cpu._is_…        evaluation/automatic.py
    nn.Module._modules, ._parameters         engine/optimise.py, engine/rewrites
    nn.Conv2d._conv_forward                  engine/rewrites
    torch._decomp, torch._inductor           serving/gradients.py, serving/export.py, serving/pt2_backend.py
    make_fx(_allow_non_fake_inputs=…)        serving/export.py

`torch._foreach_*` in `train/step.py` is private in name only: the documentation of torch lists these functions.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable, KeysView
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

ConvForward = Callable[[Any, Tensor, Tensor, Tensor | None], Tensor]
M = TypeVar("M", bound=nn.Module)


def cuda_kernel(code: str, **scalars: int) -> Callable[..., Tensor]:
    """An elementwise CUDA kernel, compiled from C++ source at its first call."""
    from torch.cuda.jiterator import _create_jit_fn

    return _create_jit_fn(code, **scalars)


def times_written(x: Tensor) -> int:
    """How often a tensor was written into. Torch does not count it for tensors made in inference mode: 0."""
    return 0 if x.is_inference() else x._version


def readable(t: Tensor) -> bool:
    """Whether the host may read the numbers of a tensor now: not while a tracer, vmap or a CUDA graph records."""
    if t.is_meta or torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack():
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    return not (t.is_cuda and torch.cuda.is_current_stream_capturing())


@functools.cache
def computes_in_bfloat16() -> bool:
    """Whether this CPU has instructions for bfloat16, and torch may use them."""
    allowed = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # knows of ONEDNN_MAX_CPU_ISA
    return allowed and any(getattr(torch.cpu, f"_is_{name}_supported", bool)() for name in ("avx512_bf16", "amx_tile"))


def compiler_configs() -> tuple[Any, Any]:
    """The settings of dynamo and of functorch. Importing them takes as long as importing the rest of torch."""
    import torch._dynamo.config as dynamo
    import torch._functorch.config as functorch

    return dynamo, functorch


def compiler_cache() -> str:
    """The folder in which the compiler keeps what it made."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return cache_dir()


def mark_batch_dynamic(x: Tensor) -> None:
    """Compile one piece of code for any number of images, not one for each number."""
    from torch._dynamo.decorators import maybe_mark_dynamic

    maybe_mark_dynamic(x, 0)


def is_compiler_error(error: Exception) -> bool:
    from torch._dynamo.exc import TorchDynamoException

    return isinstance(error, TorchDynamoException)


def parameter_names(m: nn.Module) -> KeysView[str]:
    """The names of the parameters that a module has itself, those that are None included."""
    return m._parameters.keys()


def shallow_copy(m: M) -> M:
    """A copy that shares its parts with the module: replacing a part of the copy leaves the module alone."""
    twin = copy.copy(m)
    twin._modules = dict(m._modules)
    return twin


def has_plain_conv(m: nn.Conv2d) -> bool:
    """Whether this class computes its convolution as torch's own class does."""
    return type(m)._conv_forward is nn.Conv2d._conv_forward


def conv_forward(m: nn.Conv2d) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    """How this module computes its convolution now, as f(images, weight, bias)."""
    return m._conv_forward


def replace_conv(m: nn.Conv2d, forward: ConvForward) -> None:
    """Let this module compute its convolution as forward(module, images, weight, bias)."""
    m._conv_forward = types.MethodType(forward, m)  # type: ignore[method-assign]


def plain_conv(m: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The convolution of torch's own class."""
    y: Tensor = nn.Conv2d._conv_forward(m, x, weight, bias)
    return y


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The operators that torch can write as simpler ones."""
    from torch._decomp import decomposition_table

    return dict(decomposition_table)


def trace(m: nn.Module, x: Tensor, table: dict[Any, Callable[..., Any]]) -> nn.Module:
    """The operators that this module runs, gradients included, for any number of images like these."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    # only the number of images is a symbol: with all sizes as symbols, a trace takes several times as long
    sizes: list[Any] = [DimDynamic.DYNAMIC, *[DimDynamic.STATIC] * (x.ndim - 1)]
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    fake = mode.from_tensor(x, symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes))
    with enable_python_dispatcher():  # some operators compute symbolic sizes in Python only, such as padding
        made = make_fx(m, tracing_mode="fake", decomposition_table=table, _allow_non_fake_inputs=True)(fake)
    made.graph.eliminate_dead_code()
    made.recompile()
    return made


def compile_ahead(program: Any, path: str) -> None:
    """Compile an exported program to a package of native code. Needs a C++ compiler, and takes minutes."""
    from torch._inductor import aoti_compile_and_package

    aoti_compile_and_package(program, package_path=path)


def load_compiled(path: str) -> Callable[..., Any]:
    """Load a package of native code, which runs code of its maker."""
    from torch._inductor import aoti_load_package

    return aoti_load_package(path)
