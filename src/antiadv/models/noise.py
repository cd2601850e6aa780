"""Gaussian noise layers: noise inside a network, for a random self-ensemble (Liu et al., ECCV 2018, arXiv:1712.00673).

    layer      h ↦ h + σ·n,   n ~ N(0, I), fresh at every call while `draw` is set; the identity while it is not

A layer does not own its dice. Whoever wants noise says where it comes from: training and measuring take a stream of
their own (`reseed`), a defence the house's draws. A network as loaded is silent, and so a function of its input.

Notation:   σ → `std`, n → `draw(h)`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class GaussianNoise(nn.Module):
    """h + std·draw(h). It holds no tensor, so a network with it has the keys of one without."""

    uncompilable = True  # compiled code would be made anew for every `draw`
    draw: Callable[[Tensor], Tensor] | None

    def __init__(self, std: float) -> None:
        super().__init__()
        self.std, self.draw = std, None

    def forward(self, h: Tensor) -> Tensor:
        return h if self.draw is None or self.std == 0 else h + self.std * self.draw(h)

    def extra_repr(self) -> str:
        return f"std={self.std}"


class Stream:
    """Standard normals like h, a function of the seed and of how many times it was called: fresh at every call.

    One key serves a whole batch: the noise of a sample depends on its place in the batch.
    """

    def __init__(self, seed: int) -> None:
        self.seed, self.calls = seed, 0

    def __call__(self, h: Tensor) -> Tensor:
        generator = torch.Generator(h.device).manual_seed(fold(self.seed, self.calls))
        self.calls += 1
        return torch.randn(h.shape, generator=generator, device=h.device, dtype=h.dtype)


def noise_layers(model: nn.Module) -> list[GaussianNoise]:
    """The layers that add noise, in the order in which the network holds them."""
    return [layer for layer in model.modules() if isinstance(layer, GaussianNoise) and layer.std > 0]


def reseed(layers: Iterable[GaussianNoise], seed: int) -> None:
    """Turn the noise on: from here on it is a function of `seed` alone; distinct layers get distinct noise."""
    for place, layer in enumerate(layers):
        layer.draw = Stream(fold(seed, place))


@contextmanager
def noisy(layers: Sequence[GaussianNoise], seed: int) -> Iterator[None]:
    """The noise of `seed` inside; afterwards what there was."""
    before = [layer.draw for layer in layers]
    reseed(layers, seed)
    try:
        yield
    finally:
        for layer, draw in zip(layers, before, strict=True):
            layer.draw = draw


def silence(layers: Iterable[GaussianNoise]) -> None:
    """Turn the noise off."""
    for layer in layers:
        layer.draw = None


def fold(*parts: int) -> int:
    """A seed made of several whole numbers; other numbers, or another order, give another seed."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()) >> 1
