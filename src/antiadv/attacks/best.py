"""The best candidate so far, for each sample: success is sticky, and a fooled sample is never asked about again.

    offer(rows, z, s)    keep z where it fools or lowers the margin;  → which of the rows go on: standing, and solvent

An attack offers whatever it has asked about and goes on with the rows so marked.
"""

from __future__ import annotations

import torch
from torch import Tensor

from antiadv.core.ball import per_row
from antiadv.core.oracle import Oracle


class Best:
    """`z` holds the images to return, `m` their margins (negative: fooled); both for all samples of the oracle."""

    def __init__(self, oracle: Oracle, x: Tensor, y: Tensor) -> None:
        self._oracle, self._y = oracle, y
        self.z = x.clone()
        self.m = x.new_full((len(x),), torch.inf)
        self.fooled = torch.zeros(len(x), dtype=torch.bool, device=x.device)

    def standing(self) -> Tensor:
        """The rows that go on: not fooled yet, and able to pay for a query."""
        rows = (~self.fooled).nonzero().squeeze(1)
        return rows[solvent(self._oracle, rows)]

    def offer(self, rows: Tensor, z: Tensor, s: Tensor) -> Tensor:
        y = self._y[rows]
        m, fooled = self._oracle.margin(s, y), self._oracle.fooled(s, y)
        better = fooled | (m < self.m[rows])
        self.z[rows] = torch.where(per_row(better, z), z, self.z[rows])
        self.m[rows] = torch.where(better, m.to(self.m), self.m[rows])
        self.fooled[rows] = fooled
        return ~fooled & solvent(self._oracle, rows)


def solvent(oracle: Oracle, rows: Tensor) -> Tensor:
    """Which of these rows of the oracle can pay for a query."""
    if oracle.threat.queries is None:
        return torch.ones_like(rows, dtype=torch.bool)
    able = oracle.left() > 0
    if able.all():  # the host knows it of all samples, and need not ask the device which are meant
        return torch.ones_like(rows, dtype=torch.bool)
    return able[rows.cpu()].to(rows.device)
