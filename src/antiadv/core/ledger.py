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

import math

import torch
from torch import Tensor

from antiadv.core.errors import BudgetSpent

NOTES_KEPT = 1024  # before they are added up


class _Notes:
    """The largest magnitude of each answer: noted on the device, and read on the host when a count is asked for.

    Comparing it there costs an attack one operation per answer: zero means a zero gradient, and NaN or infinity means
    an unsound answer.
    """

    def __init__(self, samples: int) -> None:
        self.zeros = torch.zeros(samples, dtype=torch.int64)
        self.unsound = torch.zeros(samples, dtype=torch.int64)
        self._noted: list[tuple[Tensor, Tensor]] = []  # rows on the host, and magnitudes on the device

    def add(self, rows: Tensor, sizes: Tensor) -> None:
        self._noted.append((rows, sizes))
        if len(self._noted) >= NOTES_KEPT:
            self.read()

    def read(self) -> _Notes:
        if self._noted:
            sizes = torch.cat([t for _, t in self._noted]).cpu()  # the only wait for the device
            rows = torch.cat([r.repeat_interleave(len(t) // max(1, len(r))) for r, t in self._noted])
            samples = len(self.zeros)
            self.zeros += torch.bincount(rows[sizes == 0], minlength=samples)
            self.unsound += torch.bincount(rows[~(sizes < math.inf)], minlength=samples)
            self._noted.clear()
        return self


class Ledger:
    """See the head of this file. `budget` is in queries per sample; None means no limit.

    The ledger of a model that the attacker owns has a parent: the ledger of the model under attack, and the rows in it
    (`above`). Unsound answers are noted there, because they spoil the same search.
    """

    def __init__(self, samples: int, budget: int | None = None, above: tuple[Ledger, Tensor] | None = None) -> None:
        self.budget, self._above = budget, above
        self.repeats = 0  # images of all samples that were charged because they were sent again (`wire.py`)
        self.queries = torch.zeros(samples, dtype=torch.int64)
        self.gradients = torch.zeros(samples, dtype=torch.int64)
        self.checks = torch.zeros(samples, dtype=torch.int64)
        self._scores, self._gradients = _Notes(samples), _Notes(samples)

    @property
    def zeros(self) -> Tensor:
        return self._gradients.read().zeros

    @property
    def unsound(self) -> Tensor:
        return self._scores.read().unsound + self._gradients.read().unsound

    def note_scores(self, rows: Tensor, sizes: Tensor) -> None:
        """Note the largest magnitude of each answer, for any number of answers per row."""
        self._scores.add(rows, sizes)
        self._tell_parent(rows, sizes)

    def note_gradients(self, rows: Tensor, sizes: Tensor) -> None:
        """The same for gradients."""
        self._gradients.add(rows, sizes)
        self._tell_parent(rows, sizes)

    def _tell_parent(self, rows: Tensor, sizes: Tensor) -> None:
        if self._above is not None:
            parent, its_rows = self._above
            parent.note_scores(its_rows[rows], sizes)

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
