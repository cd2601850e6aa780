"""The random numbers of `draws.py` on CUDA: one kernel per request, instead of twenty.

    fold(k, t)            mix(k ⊕ mix(t·φ + β))                             a key and a step, both 64-bit words
    step(k, w)            mix(k ⊕ w)                                        w = mix(t·φ + β), computed on the host
    numbers(kind, k, c)   mix(k + c), and its two halves as float32         c = j·φ, the counter

Torch compiles the kernels for the device at their first use, with NVRTC, which is part of its CUDA builds. If that
fails, `ready` is False and the plain operations are used. They give the same bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from antiadv.core import torch_private

_MIX = """
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z = z ^ (z >> 31);
"""

_FOLD = f"""
template <typename T> T antiadv_fold(T key, T step) {{
    unsigned long long z = (unsigned long long)step * 0x9E3779B97F4A7C15ull + 0x94D049BB133111EBull;
    {_MIX}
    z ^= (unsigned long long)key;
    {_MIX}
    return (T)z;
}}
"""

_STEP = f"""
template <typename T> T antiadv_step(T key, T word) {{
    unsigned long long z = (unsigned long long)key ^ (unsigned long long)word;
    {_MIX}
    return (T)z;
}}
"""

# a 32-bit half h as a float32 number: the same arithmetic as in draws.py
_CONVERT = {
    "uniform": "(float)(h >> 8) * 5.9604644775390625e-8f",
    "normal": "erfinvf((float)(h >> 8) * 1.1920928955078125e-7f - 0.999999940395355224609375f) * 1.4142135623730951f",
    "signs": "((int)h < 0 ? 1.0f : -1.0f)",
}


def _numbers_code(kind: str) -> str:
    return f"""
template <typename T> T antiadv_{kind}(T key, T counter) {{
    unsigned long long z = (unsigned long long)key + (unsigned long long)counter;
    {_MIX}
    unsigned int h = (unsigned int)z;
    unsigned long long low = (unsigned int)__float_as_int({_CONVERT[kind]});
    h = (unsigned int)(z >> 32);
    unsigned long long high = (unsigned int)__float_as_int({_CONVERT[kind]});
    return (T)(high << 32 | low);
}}
"""


@functools.cache
def _compiled(code: str, **scalars: int) -> Callable[..., Tensor]:
    return torch_private.cuda_kernel(code, **scalars)


@functools.cache
def ready() -> bool:
    """Whether this machine can compile the kernels."""
    try:
        one = torch.ones(1, dtype=torch.int64, device="cuda")
        for code in (_FOLD, *map(_numbers_code, _CONVERT)):
            _compiled(code)(one, one)
        step(one, 1)
        torch.cuda.synchronize()
    except Exception:  # of any kind: the plain operations are used
        return False
    return True


def serves(keys: Tensor) -> bool:
    """Whether to use the kernels: on CUDA, and not while torch.compile traces, which fuses operations itself."""
    return keys.is_cuda and not torch.compiler.is_compiling() and ready()


def fold(keys: Tensor, step: Tensor) -> Tensor:
    return _compiled(_FOLD)(keys, step)


def step(keys: Tensor, word: int) -> Tensor:
    return _compiled(_STEP, word=0)(keys, word=word)


def numbers(kind: str, keys: Tensor, counter: Tensor) -> Tensor:
    """float32 numbers, two per word of the counter: `[N, 2·words]`."""
    return _compiled(_numbers_code(kind))(keys[:, None], counter).view(torch.float32)
