"""The ledger: what each sample has spent. Oracles write it; records and receipts quote it.

    queries     images sent to the classifier                                                       [N]
    gradients   backward passes for them: one for a gradient, one per class for a Jacobian          [N]
    zeros       how many gradients were exactly zero: a sign of masking, for the report             [N]
    checks      images that the judge was asked about during a search (`confirm.py`)                [N]
    unsound     answers with NaN or infinity, in scores or gradients: the shard then fails          [N]

It is kept on the host, so that budgets are exact without a wait for the device. `zeros` and `unsound` are noted on the
device and read later, so that no attack waits for them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from antiadv.core.errors import BudgetSpent

NOTES_KEPT = 1024  # before they are added up


class _Notes:
    """How often something was true for each row: noted on the device, and added up on the host when asked for."""

    def __init__(self, samples: int) -> None:
        self._counts = torch.zeros(samples, dtype=torch.int64)
        self._noted: list[tuple[Tensor, Tensor]] = []  # rows on the host, and whether it was true, on the device

    def add(self, rows: Tensor, true: Tensor) -> None:
        self._noted.append((rows, true))
        if len(self._noted) >= NOTES_KEPT:
            self.counts()

    def counts(self) -> Tensor:
        if self._noted:
            true = torch.cat([t for _, t in self._noted]).cpu()  # the only wait for the device
            rows = torch.cat([r for r, _ in self._noted])
            self._counts += torch.bincount(rows[true], minlength=len(self._counts))
            self._noted.clear()
        return self._counts


class Ledger:
    """See the head of this file. `budget` is in queries per sample; None means no limit.

    The ledger of a model that the attacker owns has a parent: the ledger of the model under attack, and the rows in it
    (`above`). Unsound answers are noted there, because they spoil the same search.
    """

    def __init__(self, samples: int, budget: int | None = None, above: tuple[Ledger, Tensor] | None = None) -> None:
        self.budget, self._above = budget, above
        self.queries = torch.zeros(samples, dtype=torch.int64)
        self.gradients = torch.zeros(samples, dtype=torch.int64)
        self.checks = torch.zeros(samples, dtype=torch.int64)
        self._zeros, self._unsound = _Notes(samples), _Notes(samples)

    @property
    def zeros(self) -> Tensor:
        return self._zeros.counts()

    @property
    def unsound(self) -> Tensor:
        return self._unsound.counts()

    def note_zeros(self, rows: Tensor, still: Tensor) -> None:
        """Note for which rows the gradient was zero (`still`)."""
        self._zeros.add(rows, still)

    def note_unsound(self, rows: Tensor, unsound: Tensor) -> None:
        """Note for which rows the answer had NaN or infinity."""
        if self._above is None:
            self._unsound.add(rows, unsound)
        else:
            parent, its_rows = self._above
            parent.note_unsound(its_rows[rows], unsound)

    def replace(self, rows: Tensor, other: Ledger) -> None:
        """Take these rows from another ledger of the same samples."""
        for name in ("queries", "gradients", "checks"):
            getattr(self, name)[rows] = getattr(other, name)[rows]
        self.zeros[rows] = other.zeros[rows]

    def charge(self, rows: Tensor, each: int, *, gradient: bool = False) -> None:
        """Charge `each` queries to every row; nothing is charged if one row would exceed its budget."""
        cost = torch.full_like(rows, each)
        self.queries.index_add_(0, rows, cost)  # a row that is named twice is charged twice
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
        """Count `each` confirmed answers for every row; an error if a row has sent fewer images than that."""
        count = torch.full_like(rows, each)
        self.checks.index_add_(0, rows, count)
        confirmed, sent = (kept.index_select(0, rows) for kept in (self.checks, self.queries))
        over = int((confirmed - sent).argmax())
        if confirmed[over] > sent[over]:
            self.checks.index_add_(0, rows, count, alpha=-1)
            raise BudgetSpent(
                f"only images that were sent before are confirmed; {confirmed[over]} answers were asked for a sample "
                f"with {sent[over]} images sent. Send an image first."
            )
