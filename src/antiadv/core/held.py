"""What searches have found so far, within reach of whoever has to end an attack early.

    with holding() as held: …     a search that begins inside says where its images are
    held.images(x)                the best image of each sample so far; x where there is none
    held.ledgers                  what the samples have spent so far

A remote or flaky classifier may fail at any answer. The images found before are then in the hands of a search that
never returns. A search calls `oracle.hold(self)` when it begins, once, and offers `found()`. It is held weakly: one
that ended has handed its images on. Nothing is looked up or copied before something fails.
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
    """What is held: an attack's state from step to step, such as `Survivors` or `Closest`."""

    def found(self) -> Tensor:
        """The best image of each of its samples so far, in their order; the clean image where there is none."""


class Held:
    """See the head of this file. The rows of a search are the places of its samples in the whole batch."""

    def __init__(self) -> None:
        self.ledgers: list[Ledger] = []  # one for each search of the whole, in their order
        self.returned: list[tuple[Tensor, Tensor]] = []  # rows, and the images of searches that are over
        self._searches: list[tuple[Tensor, weakref.ref[Search]]] = []

    def add(self, rows: Tensor, search: Search, ledger: Ledger) -> None:
        self._searches = [(r, s) for r, s in self._searches if s() is not None]
        self._searches.append((rows, weakref.ref(search)))
        if not any(known is ledger for known in self.ledgers):
            self.ledgers.append(ledger)

    def images(self, x: Tensor) -> Tensor:
        """Of searches inside each other the outer has the last word, where it has any: it keeps only what fooled."""
        z = x.clone()
        for rows, images in self.returned:
            z[rows.to(z.device)] = images.detach().to(z)
        for rows, held in reversed(self._searches):
            search = held()
            if search is None:
                continue
            found = search.found().detach().to(z)
            there = rows.to(z.device)
            moved = (found != x[there]).flatten(1).any(1)
            z[there[moved]] = found[moved]
        return torch.where(z.isfinite(), z, x)


_HELD: ContextVar[Held | None] = ContextVar("held", default=None)


@contextlib.contextmanager
def holding() -> Iterator[Held]:
    held = Held()
    before = _HELD.set(held)
    try:
        yield held
    finally:
        _HELD.reset(before)


def hold(rows: Tensor, search: Search, ledger: Ledger) -> None:
    """Nothing where nobody asked."""
    held = _HELD.get()
    if held is not None:
        held.add(rows, search, ledger)
