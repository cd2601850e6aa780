"""Whether what is stored is what the networks, data and files at hand would give: asked before any of it is used.

    check_fresh(cells, store, world)  →  the probes to keep beside cells that have none

For each cell with stored samples, the samples asked for must lie on the disk as they did, the weights, images and files
must be those of the cell, and the network must answer the probe images as it did (`probe.py`). Otherwise the run stops,
with a sentence that says what has changed and what to do; what is stored is left as it is. A network that is not at
hand or does not answer stops it too: no number is shown as that of a network that cannot be asked. Where nothing is
stored, a network that fails is left to its shards, each of which says why.

Cells that an earlier version stored have no probe. For the library's own networks, whose code and weights are known, it
is added without a word. For any other a warning says that the stored samples could not be checked.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from antiadv import models
from antiadv.core.errors import AntiadvError, BadInput, StoreMismatch
from antiadv.evaluation.cell import Cell
from antiadv.evaluation.probe import Asked, Difference, Probe
from antiadv.evaluation.resources import Resources
from antiadv.evaluation.store import Store

NAMED = 3  # folders in a sentence


def check_fresh(cells: Sequence[Cell], store: Store, resources: Resources) -> dict[Cell, Probe]:
    """Each network is loaded and asked once, whatever the order of the cells."""
    found: dict[Cell, Probe] = {}
    for model in dict.fromkeys(cell.model for cell in cells):
        check = _Check(store, resources, model)
        for cell in cells:
            if cell.model == model:
                check.one(cell)
        check.tell()
        found |= check.new
    return found


class _Check:
    """The cells of one network."""

    def __init__(self, store: Store, resources: Resources, model: str) -> None:
        self.store, self.resources, self.model = store, resources, model
        self.asked: dict[str, Asked] = {}  # by data set
        self.new: dict[Cell, Probe] = {}
        self.changed: dict[Cell, Difference] = {}
        self.unknown, self.unsteady = list[Cell](), list[Cell]()

    def one(self, cell: Cell) -> None:
        have = self.store.done(cell)
        if not have and not cell.samples:
            return
        try:
            if have:
                self.resources.check(cell)
                self.resources.data(cell.data).check([i for i in cell.samples if i in have])
            self._ask(cell, bool(have))
        except AntiadvError:
            if have:
                raise
        except (Exception, SystemExit) as error:
            if have:
                said = (str(error).strip() or "no message").splitlines()[0].rstrip(".")
                raise BadInput(
                    f"the network {self.model} does not answer ({type(error).__name__}: {said}), so the samples stored "
                    f"in {self.store.folder(cell)} cannot be shown as its own. Mend it and run again."
                ) from error

    def _ask(self, cell: Cell, have: bool) -> None:
        if cell.data not in self.asked:
            self.asked[cell.data] = Asked(self.resources, self.model, cell.data)
        now, stored = self.asked[cell.data], self.store.probe(cell) if have else None
        now.check_alive()
        if stored is None or stored.images != now.images:
            self.new[cell] = now.probe
            self.unknown += [cell] * have
        elif stored.empty:
            self.unsteady.append(cell)
        elif (difference := now.compare(stored)) is not None:
            self.changed[cell] = difference

    def tell(self) -> None:
        """Raise where an answer is another one; warn where that could not be asked."""
        if self.changed:
            first = next(iter(self.changed.values()))
            raise StoreMismatch(
                f"the network {self.model} has changed since the samples in {self._folders(list(self.changed))} were "
                f"stored: {first}. They are kept, and not shown as its own. Name another folder with --store, or move "
                "these away, and run again."
            )
        if self.unknown and not _is_ours(self.model):
            warnings.warn(
                f"the samples in {self._folders(self.unknown)} were stored without answers of {self.model} to compare "
                "with, so whether it has changed since could not be checked. Its answers of today are kept from now "
                "on. Name another folder with --store to have all samples of today's network.",
                stacklevel=1,
            )
        if self.unsteady:
            warnings.warn(
                f"the network {self.model} answered the same image differently each time when the samples in "
                f"{self._folders(self.unsteady)} were stored, so whether it has changed since cannot be checked.",
                stacklevel=1,
            )

    def _folders(self, cells: Sequence[Cell]) -> str:
        names = [str(self.store.folder(cell)) for cell in cells[:NAMED]]
        more = f" and {len(cells) - NAMED} more" if len(cells) > NAMED else ""
        return ", ".join(names) + more


def _is_ours(model: str) -> bool:
    """Whether code of this library runs it, with weights whose digest is in the key."""
    return models.is_registered(model) and model.partition(":")[0].strip() != "file"
