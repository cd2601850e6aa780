"""Random numbers without state, keyed by sample: each depends on (seed, sample, fold, position) and on nothing else.

    key      k = mix(mix(sample·φ + seed) + φ)               one 64-bit key per sample
    fold     k' = mix(k ⊕ mix(t·φ + β))                      the key of step t
    bits     b_j = mix(k + j·φ),  j = 1, 2, …                SplitMix64's output function over a counter

So results do not depend on batch size, order, early stopping, sharding or resumption. Each 64-bit word gives two
numbers. The bits are the same on every device; normals agree to the last digit of `erfinv`.

Notation:   φ → `_PHI` (2⁶⁴ / golden ratio), mix → `_mix_` (Steele, Lea, Flood, OOPSLA 2014).
Cost:       on a CPU less than a tenth of a compact network's forward pass (by test); on CUDA one kernel per request
            (`draws_cuda.py`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from antiadv.core import draws_cuda


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


_PHI = _signed(0x9E3779B97F4A7C15)
_BETA = _signed(0x94D049BB133111EB)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)
_BLOCK = 1 << 15  # 64-bit words hashed at a time on a CPU: 256 KiB fit the second-level cache


def _mix_(z: Tensor) -> Tensor:
    """SplitMix64's output function, in place. int64 arithmetic wraps; the masks make the shifts logical."""
    z ^= (z >> 30) & ((1 << 34) - 1)
    z *= _MIX_1
    z ^= (z >> 27) & ((1 << 37) - 1)
    z *= _MIX_2
    z ^= (z >> 31) & ((1 << 33) - 1)
    return z


def _mix(word: int) -> int:
    """The same for one word on the host, so that the number of a step need not go to the device."""
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % (1 << 64)
    word = (word ^ word >> 27) * 0x94D049BB133111EB % (1 << 64)
    return word ^ word >> 31


class Draws:
    """One key per sample. `draws[rows]` selects samples, `draws.fold(t)` is for step t, the rest returns numbers."""

    def __init__(self, keys: Tensor) -> None:
        self.keys = keys

    @classmethod
    def of(cls, seed: int, ids: Tensor) -> Draws:
        """The keys of these samples. `ids` are their numbers in the data set, not their places in a batch."""
        seed = _signed(int(seed) % (1 << 64))  # a numpy integer would overflow
        return cls(_mix_(_mix_(ids.long() * _PHI + seed) + _PHI))

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, rows: Tensor | slice) -> Draws:
        return Draws(self.keys[rows])

    def fold(self, step: int | Tensor) -> Draws:
        """The keys of a step: one step for all samples, or one per sample."""
        fused = draws_cuda.serves(self.keys)
        if isinstance(step, int):
            word = _signed(_mix((step * _PHI + _BETA) % (1 << 64)))
            return Draws(draws_cuda.step(self.keys, word) if fused else _mix_(self.keys ^ word))
        t = step.to(self.keys.device, torch.int64)
        return Draws(draws_cuda.fold(self.keys, t) if fused else _mix_(self.keys ^ _mix_(t * _PHI + _BETA)))

    def repeat(self, times: int, first: int = 0) -> Draws:
        """`times` keys per sample, sample by sample: those of `fold(first)`, `fold(first + 1)`, …"""
        each = torch.arange(first, first + times, device=self.keys.device)
        return Draws(Draws(self.keys[:, None]).fold(each).keys.flatten())

    def uniform(self, *shape: int) -> Tensor:
        """float32 in [0, 1), multiples of 2⁻²⁴, `[N, *shape]`."""
        return self._numbers("uniform", shape)

    def normal(self, *shape: int) -> Tensor:
        """Standard normals in float32, `[N, *shape]`, by the inverse distribution function."""
        return self._numbers("normal", shape)

    def signs(self, *shape: int) -> Tensor:
        """±1 in float32, `[N, *shape]`."""
        return self._numbers("signs", shape)

    def below(self, bound: int, *shape: int) -> Tensor:
        """Integers 0 … bound−1, `[N, *shape]`."""
        return (self.uniform(*shape) * bound).long().clamp_max(bound - 1)  # float32 may round up to `bound`

    def _numbers(self, kind: str, shape: tuple[int, ...]) -> Tensor:
        """The 32-bit halves of the hashed counter as numbers; block by block on a CPU."""
        count = math.prod(shape)
        if count == 0 or len(self) == 0:
            return torch.zeros((len(self), *shape), device=self.keys.device)
        words = (count + 1) // 2
        counter = torch.arange(1, words + 1, device=self.keys.device) * _PHI
        if draws_cuda.serves(self.keys):
            return draws_cuda.numbers(kind, self.keys, counter)[:, :count].reshape(len(self), *shape)
        size = max(1, _BLOCK // words) if self.keys.device.type == "cpu" else len(self)
        convert = _CONVERT[kind]
        parts = [convert(_mix_(k[:, None] + counter).view(torch.int32)[:, :count]) for k in self.keys.split(size)]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).reshape(len(self), *shape)


def _uniform(h: Tensor) -> Tensor:
    return ((h >> 8) & 0xFFFFFF).to(torch.float32).mul_(2.0**-24)


def _normal(h: Tensor) -> Tensor:
    u = ((h >> 8) & 0xFFFFFF).to(torch.float32)
    return u.mul_(2.0**-23).add_(2.0**-24 - 1).erfinv_().mul_(math.sqrt(2))


def _signs(h: Tensor) -> Tensor:
    return ((h >> 31) * 2 + 1).to(torch.float32).neg_()


_CONVERT = {"uniform": _uniform, "normal": _normal, "signs": _signs}
