"""One of our attacks as foolbox and ART call their own.

    from antiadv.attacks.foreign.ours import AsArt, AsFoolbox
    raw, clipped, success = AsFoolbox("apgd")(fmodel, x, y, epsilons=[4 / 255, 8 / 255])
    z = AsArt(classifier, "apgd", eps=8 / 255).generate(x, y)

Cost:       that of the attack, for each radius.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
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
        images = [_attacked(self, _Called(model), inputs, y, radius) for radius in radii]
        fooled = [model(z).argmax(1) != y for z in images]
        return (images, images, torch.stack(fooled)) if several else (images[0], images[0], fooled[0])


@dataclass(frozen=True)
class AsArt:
    """The same for ART. `estimator` is a PyTorchClassifier of images in [0, 1]; `eps=None` sets no radius."""

    estimator: Any
    attack: str
    eps: float | None = None
    norm: str = "linf"
    seed: int = 0

    def generate(self, x: NDArray[Any], y: NDArray[Any] | None = None, **_: object) -> NDArray[Any]:
        """The attacked images. `y` are labels or one-hot rows; without them, what the estimator says."""
        net = self.estimator.model.eval()
        images = torch.as_tensor(x, dtype=torch.float32, device=self.estimator.device)
        known = self.estimator.predict(x) if y is None else y
        labels = torch.as_tensor(known.argmax(1) if known.ndim == 2 else known, device=images.device).long()
        return _attacked(self, net, images, labels, self.eps).cpu().numpy()


def _attacked(how: AsFoolbox | AsArt, net: nn.Module, x: Tensor, y: Tensor, radius: float | None) -> Tensor:
    made = attacks.parse(how.attack)
    ball: Ball = (L2 if how.norm == "l2" else Linf)(float("inf") if radius is None else radius)
    oracle = Oracle(net, Threat(ball, made.access), Ledger(len(x)))
    return made(oracle, x, y, ball, Draws.of(how.seed, torch.arange(len(x), device=x.device)))


class _Called(nn.Module):
    """A foolbox model as a module."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model, self.training = model, False

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self._model(x)
        return s
