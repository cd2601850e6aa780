"""The judge: images to records. It trusts no attack, and looks at the images itself, in float32, through the defence.

    looks(x)       scores of g and labels of f
    records(…)     what g says of x and of z, how far z is from x, and what the ledger says it cost

Whatever an attack returned is first put into the box [0, 1]; what is not a number counts as the clean image. Whether
z lies in the ball is not decided here: the record keeps the distance, and the measures compare it with a radius.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from antiadv.core.ball import Ball
from antiadv.core.defence import base_of
from antiadv.core.errors import BadInput
from antiadv.core.oracle import Engine, Ledger
from antiadv.evaluate.cell import Record


@dataclass(frozen=True)
class Look:
    """What g says of a batch, and the labels f gives it."""

    scores: Tensor
    base: Tensor

    @property
    def labels(self) -> Tensor:
        return self.scores.argmax(1)


def look(model: nn.Module, x: Tensor, engine: Engine) -> Look:
    s = engine.scores(model, x)
    base = base_of(model)
    return Look(s, s.argmax(1) if base is model else engine.scores(base, x).argmax(1))


def tidy(x: Tensor, z: Tensor) -> Tensor:
    """z as images: in the box, and the clean image wherever the attack returned something that is no number."""
    if z.shape != x.shape:
        raise BadInput(
            f"an attack must return images like x, {tuple(x.shape)}; found {tuple(z.shape)}. Mend the attack."
        )
    fine = torch.isfinite(z).flatten(1).all(1).reshape(-1, *[1] * (x.ndim - 1))
    return torch.where(fine, z, x).clamp(0, 1)


def records(
    ids: Sequence[int], y: Tensor, x: Tensor, z: Tensor, clean: Look, attacked: Look, ball: Ball, ledger: Ledger
) -> list[Record]:
    columns = [
        list(ids),
        y.tolist(),
        clean.labels.tolist(),
        attacked.labels.tolist(),
        clean.base.tolist(),
        attacked.base.tolist(),
        _short(ball.distance(x, z), digits=9),  # finer than the ball's tolerance: on the sphere is in the ball
        ledger.queries.tolist(),
        ledger.gradients.tolist(),
        ledger.zeros.tolist(),
        *_confidences(clean, y),
        *_confidences(attacked, y),
        [1] * len(y),
        (clean.labels == y).long().tolist(),
        (attacked.labels == y).long().tolist(),
    ]
    return [Record(*row) for row in zip(*columns, strict=True)]


def _confidences(seen: Look, y: Tensor) -> tuple[list[float], list[float]]:
    p = seen.scores.double().softmax(1)
    return _short(p.amax(1)), _short(p.gather(1, y[:, None]).squeeze(1))


def _short(v: Tensor, digits: int = 6) -> list[float]:
    """Six significant digits: enough for any report, and a third of the bytes."""
    return [float(f"{value:.{digits}g}") for value in v.tolist()]
