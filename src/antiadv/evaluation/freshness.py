"""Stale results: stored records are used only if the networks, data and files in hand would give them again.

For each cell with stored samples, the images, weights and files must have the digests of the cell, and the network must
give the stored scores for the probe images (`probe.py`). Otherwise, and if the network is missing or does not answer,
the run stops with an error; the stored records stay as they are. Where nothing is stored, a network that fails is left
to its shards, which report why.

Cells stored by an earlier version have no probe. For the library's own networks it is added silently, since their code
and weights are known. For any other network a warning says that the records could not be checked.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from antiadv import models
from antiadv.core.errors import AntiadvError, BadInput, StoreMismatch, first_line
from antiadv.evaluation.cell import Cell
from antiadv.evaluation.probe import Asked, Difference, Probe
from antiadv.evaluation.resources import Resources
from antiadv.evaluation.store import Store

NAMED = 3  # folders in a message


def check_fresh(cells: Sequence[Cell], store: Store, resources: Resources) -> dict[Cell, Probe]:
    """Check all cells, and return the probes to store for those that have none. Each network is asked once."""
    probes: dict[Cell, Probe] = {}
    for model in dict.fromkeys(cell.model for cell in cells):
        check = _NetworkCheck(store, resources, model)
        for cell in cells:
            if cell.model == model:
                check.add(cell)
        check.report()
        probes |= check.new
    return probes


class _NetworkCheck:
    """Checks the cells of one network."""

    def __init__(self, store: Store, resources: Resources, model: str) -> None:
        self.store, self.resources, self.model = store, resources, model
        self.asked: dict[str, Asked] = {}  # by data set
        self.new: dict[Cell, Probe] = {}
        self.changed: dict[Cell, Difference] = {}
        self.unchecked, self.random = list[Cell](), list[Cell]()

    def add(self, cell: Cell) -> None:
        stored = self.store.done(cell)
        if not stored and not cell.samples:
            return
        try:
            if stored:
                self.resources.check(cell)
                self.resources.data(cell.data).check([i for i in cell.samples if i in stored])
            self._compare(cell, bool(stored) or self.store.answers(cell).exists())
        except AntiadvError:
            if stored:
                raise
        except (Exception, SystemExit) as error:
            if stored:
                raise BadInput(
                    f"the network {self.model} does not answer ({first_line(error)}), so the samples stored in "
                    f"{self.store.folder(cell)} cannot be shown as its own. Fix it and run again."
                ) from error

    def _compare(self, cell: Cell, stored: bool) -> None:
        if cell.data not in self.asked:
            self.asked[cell.data] = Asked(self.resources, self.model, cell.data)
        now, probe = self.asked[cell.data], self.store.probe(cell) if stored else None
        now.check_alive()
        if probe is None or probe.images != now.images:
            self.new[cell] = now.probe
            self.unchecked += [cell] * stored
        elif probe.empty:
            self.random.append(cell)
        elif (difference := now.compare(probe)) is not None:
            self.changed[cell] = difference

    def report(self) -> None:
        """Raise if an answer changed; warn where the network could not be compared."""
        if self.changed:
            first = next(iter(self.changed.values()))
            raise StoreMismatch(
                f"the network {self.model} has changed since the samples in {self._folders(list(self.changed))} were "
                f"stored: {first}. They are kept, and not shown as its own. Name another folder with --store, or move "
                "these away, and run again."
            )
        if self.unchecked and not _is_ours(self.model):
            warnings.warn(
                f"the samples in {self._folders(self.unchecked)} were stored without answers of {self.model}, so "
                "whether it has changed since could not be checked. Its answers of today are kept from now on. Name "
                "another folder with --store to get all samples from today's network.",
                stacklevel=1,
            )
        if self.random:
            warnings.warn(
                f"the network {self.model} answered the same image differently each time when the samples in "
                f"{self._folders(self.random)} were stored, so whether it has changed since cannot be checked.",
                stacklevel=1,
            )

    def _folders(self, cells: Sequence[Cell]) -> str:
        names = [str(self.store.folder(cell)) for cell in cells[:NAMED]]
        more = f" and {len(cells) - NAMED} more" if len(cells) > NAMED else ""
        return ", ".join(names) + more


def _is_ours(model: str) -> bool:
    """Whether the library's own code runs this network, with weights whose digest is in the key."""
    foreign = models.is_remote(model) or model.partition(":")[0].strip() == "file"
    return models.is_registered(model) and not foreign
