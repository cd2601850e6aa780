"""An oracle around an oracle: what adaptive attacks derive from, to change single answers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Self

from torch import Tensor, nn

from antiadv.core.held import Search
from antiadv.core.losses import Loss
from antiadv.core.oracle import Oracle


class OracleWrapper(Oracle):
    """An oracle that passes every request on to another one. Adaptive attacks override single answers of it.

    `inner` has the ledger, and refuses what the threat does not grant.
    """

    def __init__(self, inner: Oracle) -> None:
        self.inner, self.threat = inner, inner.threat

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, rows: Tensor) -> Self:
        part = copy.copy(self)
        part.inner = self.inner[rows]
        return part

    @property
    def places(self) -> Tensor:
        return self.inner.places

    def hold(self, search: Search) -> None:
        self.inner.hold(search)

    def left(self) -> Tensor:
        return self.inner.left()

    def zeros(self) -> Tensor:
        return self.inner.zeros()

    def repeated(self, z: Tensor) -> Tensor:
        return self.inner.repeated(z)

    @property
    def randomised(self) -> bool:
        return self.inner.randomised

    def labels(self, z: Tensor) -> Tensor:
        return self.inner.labels(z)

    def scores(self, z: Tensor) -> Tensor:
        return self.inner.scores(z)

    @property
    def needs_confirmation(self) -> bool:
        return self.inner.needs_confirmation

    def confirm(self, z: Tensor) -> Tensor | None:
        return self.inner.confirm(z)

    def mark_rejected(self, z: Tensor) -> None:
        self.inner.mark_rejected(z)

    def was_rejected(self, z: Tensor) -> Tensor:
        return self.inner.was_rejected(z)

    def gradient(self, z: Tensor, loss: Loss, *targets: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner.gradient(z, loss, *targets)

    def jacobian(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner.jacobian(z)

    def scores_and_pullback(self, z: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        return self.inner.scores_and_pullback(z)

    def open(self) -> nn.Module:
        return self.inner.open()

    def on_own_model(self, model: nn.Module) -> Oracle:
        return self.inner.on_own_model(model)
