"""Training with Gaussian noise, for randomised smoothing (Cohen et al., ICML 2019, arXiv:1902.02918).

    z = x + σ d,  d standard normal        one noisy copy of each image per step, not clipped to [0, 1]
    minimise   mean CE(f(z), y)

`antiadv certify --std σ` certifies its networks: they must be accurate on noisy images.

Notation:   σ → `std`, in pixels of [0, 1].
Cost:       as standard training.
Departures: weight decay, schedule and averaging are those of all recipes here (train/step.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from antiadv.core.errors import BadSpec
from antiadv.train.inner import cross_entropy
from antiadv.train.recipe import Batch, Loss, Recipe


@dataclass(frozen=True)
class Gaussian(Recipe):
    std: float = 0.25

    limits: ClassVar[tuple[str, ...]] = (
        "It was trained with noise and without adversarial images: without the vote of `smoothing` it is not robust.",
    )

    def __post_init__(self) -> None:
        if not 0 < self.std < float("inf"):
            raise BadSpec(f"gaussian needs a finite std above 0, in pixels of [0, 1]; found {self.std}. Use 0.25.")

    def perturb(self, net: nn.Module, batch: Batch) -> Tensor:
        return batch.x + self.std * batch.d

    def loss(self, net: nn.Module, x: Tensor, z: Tensor, y: Tensor) -> Loss:
        s = net(z)
        return Loss(cross_entropy(s, y), s)
