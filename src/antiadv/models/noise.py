"""Gaussian noise layers: noise inside a network, for a random self-ensemble (Liu et al., ECCV 2018, arXiv:1712.00673).

    layer      h ↦ h + σ·n,   n ~ N(0, I), new at every call; the identity while `draw` is None

The caller supplies the random numbers: training and its measurements set a `Stream` (`reseed`), a defence sets
`core.draws`. A network is loaded without noise, so it is a function of its input.

Notation:   σ → `std`, n → `draw(h)`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class GaussianNoise(nn.Module):
    """Returns h + std·draw(h). It holds no tensor, so it adds no key to the state_dict."""

    uncompilable = True  # torch.compile would compile again for every `draw`
    draw: Callable[[Tensor], Tensor] | None

    def __init__(self, std: float) -> None:
        super().__init__()
        self.std, self.draw = std, None

    def forward(self, h: Tensor) -> Tensor:
        return h if self.draw is None or self.std == 0 else h + self.std * self.draw(h)

    def extra_repr(self) -> str:
        return f"std={self.std}"


class Stream:
    """Standard normal numbers of the shape of h, determined by the seed and the number of calls so far.

    The noise of a sample depends on its place in the batch.
    """

    def __init__(self, seed: int) -> None:
        self.seed, self.calls = seed, 0

    def __call__(self, h: Tensor) -> Tensor:
        generator = torch.Generator(h.device).manual_seed(fold(self.seed, self.calls))
        self.calls += 1
        return torch.randn(h.shape, generator=generator, device=h.device, dtype=h.dtype)


def noise_layers(model: nn.Module) -> list[GaussianNoise]:
    """Return the layers that add noise, in the order of the modules."""
    return [layer for layer in model.modules() if isinstance(layer, GaussianNoise) and layer.std > 0]


def reseed(layers: Iterable[GaussianNoise], seed: int) -> None:
    """Turn the noise on. It depends on `seed` only, and differs between layers."""
    for place, layer in enumerate(layers):
        layer.draw = Stream(fold(seed, place))


@contextmanager
def noisy(layers: Sequence[GaussianNoise], seed: int) -> Iterator[None]:
    """Turn the noise of `seed` on, and restore the previous state at the end."""
    before = [layer.draw for layer in layers]
    reseed(layers, seed)
    try:
        yield
    finally:
        for layer, draw in zip(layers, before, strict=True):
            layer.draw = draw


def fold(*parts: int) -> int:
    """Return a seed made of several integers. Other integers, or another order, give another seed."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()) >> 1
