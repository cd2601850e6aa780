"""The ledger: what each sample has spent. Oracles write it; records and receipts quote it.

    queries     images sent to the classifier                                                               [N]
    gradients   backward passes made for them: one for a gradient, one per class for a Jacobian             [N]
    zeros       of these, how many gradients were exactly zero: a sign of masking, for the report           [N]
    checks      images that the judge's answer was given for in the middle of a search: `Oracle.exactly`    [N]

Kept on the host, so that budgets are exact without asking the device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from antiadv.core.errors import BudgetSpent


class Ledger:
    """See the head of this file. `budget` is in queries, the same for every sample; without one there is no limit."""

    def __init__(self, samples: int, budget: int | None = None) -> None:
        self.budget = budget
        self.queries = torch.zeros(samples, dtype=torch.int64)
        self.gradients = torch.zeros(samples, dtype=torch.int64)
        self.checks = torch.zeros(samples, dtype=torch.int64)
        self._zeros = torch.zeros(samples, dtype=torch.int64)
        self._noted: list[tuple[Tensor, Tensor]] = []  # rows, on the host, and which gradients vanished, on the device

    @property
    def zeros(self) -> Tensor:
        if self._noted:
            still = torch.cat([s for _, s in self._noted]).cpu()  # the one time the device is waited for
            rows = torch.cat([r for r, _ in self._noted])
            self._zeros += torch.bincount(rows[still], minlength=len(self._zeros))
            self._noted.clear()
        return self._zeros

    def note_zeros(self, rows: Tensor, still: Tensor) -> None:
        """Which of these rows' gradients vanished; looked at later, so that no attack waits for its device here."""
        self._noted.append((rows, still))
        if len(self._noted) >= 1024:
            self.zeros  # noqa: B018 - adds up what was noted

    def replace(self, rows: Tensor, other: Ledger) -> None:
        """These rows as another ledger of the same samples has them."""
        for name in ("queries", "gradients", "checks"):
            getattr(self, name)[rows] = getattr(other, name)[rows]
        self.zeros[rows] = other.zeros[rows]

    def charge(self, rows: Tensor, each: int, *, gradient: bool = False) -> None:
        """Charge `each` queries to every row, or nothing at all if one of them cannot pay."""
        cost = torch.full_like(rows, each)
        self.queries.index_add_(0, rows, cost)  # a row named twice pays twice
        if self.budget is not None and len(rows):
            most = int(self.queries.index_select(0, rows).max())
            if most > self.budget:
                self.queries.index_add_(0, rows, cost, alpha=-1)
                raise BudgetSpent(
                    f"the threat allows {self.budget} queries per sample; "
                    f"{most} were asked. Ask oracle.left() before spending."
                )
        if gradient:
            self.gradients.index_add_(0, rows, cost)

    def check(self, rows: Tensor, each: int) -> None:
        """Write down `each` exact answers for every row, or nothing at all if one of them has sent fewer images."""
        count = torch.full_like(rows, each)
        self.checks.index_add_(0, rows, count)
        told, sent = (kept.index_select(0, rows) for kept in (self.checks, self.queries))
        over = int((told - sent).argmax())
        if told[over] > sent[over]:
            self.checks.index_add_(0, rows, count, alpha=-1)
            raise BudgetSpent(
                f"exact answers are for images that were sent before; {told[over]} were asked for a sample of which "
                f"{sent[over]} images were sent. Send an image first."
            )
