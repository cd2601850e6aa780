"""One of our attacks as foolbox calls its own: `attack(fmodel, inputs, criterion, epsilons=8 / 255)`.

    from antiadv.attacks.foreign.as_foolbox import AsFoolbox
    raw, clipped, success = AsFoolbox("apgd")(fmodel, x, y, epsilons=[4 / 255, 8 / 255])

ART's attacks differ in their arguments from class to class, so there is no such class for ART.
Cost:       that of the attack, for each radius.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from antiadv import attacks
from antiadv.core.ball import L2, Ball, Linf
from antiadv.core.draws import Draws
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Threat


@dataclass(frozen=True)
class AsFoolbox:
    """`attack` is a spec such as `square:steps=500`; `norm` the norm of the radius; `seed` its random numbers."""

    attack: str
    norm: str = "linf"
    seed: int = 0

    def __call__(
        self, model: Any, inputs: Tensor, criterion: Any, *, epsilons: float | Sequence[float | None] | None
    ) -> tuple[Any, Any, Any]:
        """The images of each radius, the same clipped, and whether they fool; lists if `epsilons` is a list."""
        y = getattr(criterion, "labels", criterion)
        y = getattr(y, "raw", y)
        several = isinstance(epsilons, Sequence)
        radii = list(epsilons) if isinstance(epsilons, Sequence) else [epsilons]
        images = [self._at(model, inputs, y, radius) for radius in radii]
        fooled = [model(z).argmax(1) != y for z in images]
        return (images, images, torch.stack(fooled)) if several else (images[0], images[0], fooled[0])

    def _at(self, model: Any, x: Tensor, y: Tensor, radius: float | None) -> Tensor:
        made = attacks.parse(self.attack)
        ball: Ball = (L2 if self.norm == "l2" else Linf)(float("inf") if radius is None else radius)
        oracle = Oracle(_Called(model), Threat(ball, made.access), Ledger(len(x)))
        return made(oracle, x, y, ball, Draws.of(self.seed, torch.arange(len(x), device=x.device)))


class _Called(nn.Module):
    """A foolbox model as a module."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model, self.training = model, False

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self._model(x)
        return s
