"""Random self-ensemble (Liu et al., ECCV 2018, arXiv:1712.00673): the mean of several passes of a noisy network.

    g(x) = log ( 1/M · Σ_m softmax f(x; n_m) )         n_m: fresh noise in every noise layer of f, m = 1 … M

The network was trained with that noise (recipe `self_ensemble`). Its noise layers are off when it is loaded. They are
on during a call, with random numbers keyed by the samples in it.

Notation:   M → `passes`, n → what a noise layer's `draw` returns.
Cost:       M forward passes of f.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from antiadv.core.defence import Randomised
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.core.validation import is_count


@runtime_checkable
class Noisy(Protocol):
    """A noise layer, such as `models.noise.GaussianNoise`: h + std·draw(h), or h while `draw` is None."""

    std: float
    draw: Callable[[Tensor], Tensor] | None


class SelfEnsemble(Randomised):
    """The network `base`, which has noise layers, averaged over `passes` noisy passes.

    Not for threads that share one network: during a call the random numbers are stored in its noise layers.
    """

    def __init__(self, base: nn.Module, passes: int = 10) -> None:
        super().__init__(base)
        if not is_count(passes, 1):
            raise BadInput(f"a self-ensemble needs an integer passes ≥ 1; found {passes!r}. Use 10.")
        if not self._layers():
            raise BadInput(
                "a self-ensemble needs a network with noise layers; found none. "
                "Use one that was trained with them, such as compact:self_ensemble, or the defence small_noise."
            )
        self.passes = passes

    def answer(self, x: Tensor, draws: Draws) -> Tensor:
        layers = self._layers()
        before = [layer.draw for layer in layers]
        try:
            each = [self._noisy(x, layers, draws.fold(m)) for m in range(self.passes)]
        finally:
            for layer, draw in zip(layers, before, strict=True):
                layer.draw = draw
        # in float64, so that results do not depend on the batch size
        return (torch.stack(each).logsumexp(0) - math.log(self.passes)).to(x.dtype)

    def _noisy(self, x: Tensor, layers: list[Noisy], draws: Draws) -> Tensor:
        for place, layer in enumerate(layers):
            layer.draw = _Noise(draws.fold(place))
        s: Tensor = self.base(x.clone())  # a copy, because the base may write in place
        self.check_answer(s, x)
        return s.double().log_softmax(1)

    def _layers(self) -> list[Noisy]:
        return [layer for layer in self.base.modules() if isinstance(layer, Noisy) and layer.std > 0]


class _Noise:
    """Standard normals like h, keyed by sample."""

    def __init__(self, draws: Draws) -> None:
        self.draws = draws

    def __call__(self, h: Tensor) -> Tensor:
        return self.draws.normal(*h.shape[1:]).to(h)
