"""Confirmation: a success counts only where the judge's engine finds it too.

An engine that searches may compute in fewer digits than the judge. It may then take an image for a success that the
judge rejects. There are two answers to that:

    during a search    an attack that would stop at an image asks for the judge's scores of it (`Oracle.confirm`).
                       If the judge rejects the image, the attack marks it (`Oracle.mark_rejected`) and goes on.
    after a search     `samples_to_rerun` names the samples that are searched a second time with the judge's engine.

So rounding never makes a defence look stronger than it is.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from antiadv.core.ball import Ball
from antiadv.core.engine import Engine
from antiadv.core.ledger import Ledger


class Confirmation:
    """The judge's answers to one search on one model, and the images that the judge rejected.

    A sample gets at most as many confirmed answers as images were sent for it. The ledger counts them as `checks`. They
    cost no queries: the attack paid for the image when it sent it.
    """

    def __init__(self, model: nn.Module, engine: Engine, ledger: Ledger) -> None:
        self._model, self._engine, self._ledger = model, engine, ledger
        self._rejected: dict[int, Tensor] = {}  # row of the ledger → the last rejected image of that sample

    @property
    def needed(self) -> bool:
        """Whether the judge may answer otherwise.

        Never for a randomised model: the judge uses other random numbers, so its answer confirms nothing.
        """
        randomised = getattr(self._model, "randomised", False)
        return not randomised and self._engine.judge(self._model) is not self._engine

    def scores(self, rows: Tensor, z: Tensor, each: int) -> Tensor:
        """The judge's scores of z, which holds `each` images for every row."""
        self._ledger.check(rows, each)
        return self._engine.judge(self._model).scores(self._model, z)

    def mark_rejected(self, rows: Tensor, z: Tensor) -> None:
        """Record that the judge rejected these images, one per row."""
        self._rejected.update(zip(rows.tolist(), z.detach(), strict=True))

    def was_rejected(self, rows: Tensor, z: Tensor) -> Tensor:
        """Whether each image equals, bit for bit, the last one that was rejected for its row; on the host."""
        last = [self._rejected.get(row) for row in rows.tolist()]
        return torch.tensor([r is not None and torch.equal(r, image) for r, image in zip(last, z, strict=True)])


def samples_to_rerun(
    x: Tensor, z: Tensor, ball: Ball, minimal: bool, by_search: Tensor, by_judge: Tensor, rejected: Tensor
) -> Tensor:
    """The places of the samples that must be searched again with the judge's engine.

    These are the samples whose final image fools the search (`by_search`) and not the judge (`by_judge`), with two
    exceptions. An image outside the ball is no success in either case. And a search that learned of the rejection
    (`rejected`) already spent the rest of its budget, so a second search would be a second budget. An attack that
    minimises the distance (`minimal`) follows the boundary of its own engine, so it is rerun in both cases.
    """
    claimed = minimal | ((ball.distance(x, z) <= ball.reach) & ~rejected)
    return (by_search & ~by_judge & claimed).nonzero().squeeze(1)
