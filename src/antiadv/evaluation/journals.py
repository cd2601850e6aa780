"""Journals of endpoints: what was answered is not asked again, if a run is killed in the middle of a shard.

    journals = Journals(store)             opens nothing yet
    journals.open(cell, resources)         before a shard: the endpoint reads and writes the cell's journal
    with journals.paused() as endpoint     the endpoint without its journal, or None for a network in this process
    journals.settle()                      after its records are stored: its answers are no longer needed
    journals.close()                       at the end; the journal of an unfinished shard stays

A network in this process has no journal, since asking it again costs nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from antiadv.evaluation.cell import Cell
from antiadv.evaluation.resources import Resources
from antiadv.evaluation.store import Store
from antiadv.models.journal import Journal
from antiadv.models.remote import Remote


class Journals:
    """The journal of the shard that runs, if its network is an endpoint. Only for the local runner."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: tuple[Remote, Journal] | None = None

    def open(self, cell: Cell, resources: Resources) -> None:
        self.close()
        endpoint = resources.model(cell.model)
        if isinstance(endpoint, Remote):
            endpoint.journal = Journal(self._store.answers(cell), cell.key)
            self._open = endpoint, endpoint.journal

    @contextlib.contextmanager
    def paused(self) -> Iterator[Remote | None]:
        if self._open is None:
            yield None
            return
        endpoint, journal = self._open
        endpoint.journal = None
        try:
            yield endpoint
        finally:
            endpoint.journal = journal

    def settle(self) -> None:
        if self._open is not None:
            self._open[1].settle()
        self.close()

    def close(self) -> None:
        if self._open is not None:
            endpoint, journal = self._open
            journal.close()
            endpoint.journal, self._open = None, None
