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
from antiadv.core.attack import check_attack
from antiadv.core.ball import L2, Ball, Linf
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Threat


@dataclass(frozen=True)
class AsFoolbox:
    """`attack` is a spec such as `square:steps=500`; `norm` the norm of the radius; `seed` its random numbers.

    Images and radii are in the bounds of the foolbox model. The criterion is labels, `Misclassification` or
    `TargetedMisclassification`.
    """

    attack: str
    norm: str = "linf"
    seed: int = 0

    def __call__(
        self, model: Any, inputs: Tensor, criterion: Any, *, epsilons: float | Sequence[float | None] | None
    ) -> tuple[Any, Any, Any]:
        """The images of each radius, the same clipped, and whether they fool; lists if `epsilons` is a list."""
        targeted = hasattr(criterion, "target_classes")
        y = criterion.target_classes if targeted else getattr(criterion, "labels", criterion)
        y = getattr(y, "raw", y)
        if not isinstance(y, Tensor):
            raise BadInput(
                "the criterion is labels, Misclassification or TargetedMisclassification; found "
                f"{type(criterion).__name__}. Give one of these."
            )
        low, high = getattr(model, "bounds", (0.0, 1.0))
        wide = high - low
        net, x = _Called(model, low, wide), ((inputs - low) / wide).clamp(0, 1)
        several = isinstance(epsilons, Sequence)
        radii = list(epsilons) if isinstance(epsilons, Sequence) else [epsilons]
        units = [_attacked(self, net, x, y, None if r is None else r / wide, targeted) for r in radii]
        images = [z * wide + low for z in units]
        fooled = [(model(z).argmax(1) == y) == targeted for z in images]
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


def _attacked(
    how: AsFoolbox | AsArt, net: nn.Module, x: Tensor, y: Tensor, radius: float | None, targeted: bool = False
) -> Tensor:
    made = attacks.parse(how.attack)
    ball: Ball = (L2 if how.norm == "l2" else Linf)(float("inf") if radius is None else radius)
    threat = Threat(ball, made.access, targeted=targeted)
    check_attack(made, threat)
    oracle = Oracle(net, threat, Ledger(len(x)))
    return made(oracle, x, y, ball, Draws.of(how.seed, torch.arange(len(x), device=x.device)))


class _Called(nn.Module):
    """A foolbox model as a module on images in [0, 1]."""

    def __init__(self, model: Any, low: float, wide: float) -> None:
        super().__init__()
        self._model, self._low, self._wide, self.training = model, low, wide, False

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self._model(x * self._wide + self._low)
        return s
