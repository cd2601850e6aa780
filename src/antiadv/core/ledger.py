"""The ledger: what each sample has spent. Oracles write it; records and receipts quote it.

    queries     images sent to the classifier                                                               [N]
    gradients   backward passes made for them: one for a gradient, one per class for a Jacobian             [N]
    zeros       of these, how many gradients were exactly zero: a sign of masking, for the report           [N]
    checks      images that the judge's answer was given for in the middle of a search: `Oracle.exactly`    [N]
    unsound     answers with NaN or infinity in them, scores or gradients: a shard that has any fails       [N]

Kept on the host, so that budgets are exact without asking the device. What only the device knows (`zeros`, `unsound`)
is noted there and read later, so that no attack waits for it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from antiadv.core.errors import BudgetSpent

NOTES = 1024  # kept before they are added up


class _Notes:
    """How often something was true of each row, noted on the device and added up on the host when it is asked for."""

    def __init__(self, samples: int) -> None:
        self._counts = torch.zeros(samples, dtype=torch.int64)
        self._noted: list[tuple[Tensor, Tensor]] = []  # rows, on the host, and whether it was true, on the device

    def add(self, rows: Tensor, true: Tensor) -> None:
        self._noted.append((rows, true))
        if len(self._noted) >= NOTES:
            self.counts()

    def counts(self) -> Tensor:
        if self._noted:
            true = torch.cat([t for _, t in self._noted]).cpu()  # the one time the device is waited for
            rows = torch.cat([r for r, _ in self._noted])
            self._counts += torch.bincount(rows[true], minlength=len(self._counts))
            self._noted.clear()
        return self._counts


class Ledger:
    """See the head of this file. `budget` is in queries, the same for every sample; without one there is no limit.

    `above` is a ledger and this one's rows in it, for a model beside the one under attack: what is unsound is noted
    there, since it spoils the same search.
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
        """Which of these rows' gradients vanished."""
        self._zeros.add(rows, still)

    def note_unsound(self, rows: Tensor, unsound: Tensor) -> None:
        """Which of these rows' answers had NaN or infinity in them."""
        if self._above is None:
            self._unsound.add(rows, unsound)
        else:
            ledger, its = self._above
            ledger.note_unsound(its[rows], unsound)

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
