"""The images that searches have found so far, for the case that an attack ends early.

    with holding() as held: …     searches that begin in the block register themselves
    held.images(x)                the best image of each sample so far; x where there is none
    held.ledgers                  what the samples have spent so far

A remote or flaky classifier may fail at any answer, and then the search never returns its images. So a search calls
`oracle.hold(self)` once, when it begins, and has a method `found()`. The reference is weak: a search that ended has
returned its images. Nothing is read or copied before a failure.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Protocol

import torch
from torch import Tensor

from antiadv.core.ledger import Ledger


class Search(Protocol):
    """The state of an attack from step to step, such as `Survivors` or `Closest`."""

    def found(self) -> Tensor:
        """The best image of each sample so far, in their order; the clean image where nothing was found."""


class Held:
    """See the head of this file. The rows of a search are the places of its samples in the complete batch."""

    def __init__(self) -> None:
        self.ledgers: list[Ledger] = []  # one for each search of the complete batch, in their order
        self.returned: list[tuple[Tensor, Tensor]] = []  # rows and images of searches that ended
        self._searches: list[tuple[Tensor, weakref.ref[Search]]] = []

    def add(self, rows: Tensor, search: Search, ledger: Ledger) -> None:
        self._searches = [(r, s) for r, s in self._searches if s() is not None]
        self._searches.append((rows, weakref.ref(search)))
        if not any(known is ledger for known in self.ledgers):
            self.ledgers.append(ledger)

    def images(self, x: Tensor) -> Tensor:
        """For nested searches the images of the outer one win, where it has any: it keeps only successes."""
        z = x.clone()
        for rows, images in self.returned:
            z[rows.to(z.device)] = images.detach().to(z)
        for rows, held in reversed(self._searches):
            search = held()
            if search is None:
                continue
            best, places = search.found().detach().to(z), rows.to(z.device)
            moved = (best != x[places]).flatten(1).any(1)
            z[places[moved]] = best[moved]
        return torch.where(z.isfinite(), z, x)


_HELD: ContextVar[Held | None] = ContextVar("held", default=None)


@contextlib.contextmanager
def holding() -> Iterator[Held]:
    """Collect the searches that begin in this block."""
    held = Held()
    before = _HELD.set(held)
    try:
        yield held
    finally:
        _HELD.reset(before)


def hold(rows: Tensor, search: Search, ledger: Ledger) -> None:
    """Register a search with the innermost `holding` block; without one, do nothing."""
    held = _HELD.get()
    if held is not None:
        held.add(rows, search, ledger)
