"""Experiments: which cells to run and what to make of them. They stand above the report and below the command line.

    EXPERIMENTS                   a module for every table and figure of the paper: its cells, its layout, its numbers
    layout("table-3")             lines and columns, each naming the cells it is computed from
    cells("table-3")              those of them that can be run here
    missing("table-3")            those that cannot, and why
    filled("table-3", store)      the numbers that a store holds, beside the paper's
    headline(store)               the few of them that matter most, as Markdown; `page(store)` is all of it, in words

None of this needs the command line's packages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from antiadv.core.errors import BadSpec
from antiadv.evaluation.cell import Cell
from antiadv.evaluation.resources import Resources
from antiadv.evaluation.store import Store
from antiadv.paper import (
    figure_3,
    figure_4,
    figure_5,
    table_1,
    table_2,
    table_3,
    table_4,
    table_5,
    table_6,
    text,
)
from antiadv.paper.fill import Filled, StoreIndex, fill
from antiadv.paper.layout import Layout
from antiadv.paper.networks import Source
from antiadv.paper.page import headline, page
from antiadv.paper.todo import Missing, resolve

__all__ = ["EXPERIMENTS", "Source", "cells", "filled", "find", "headline", "layout", "missing", "page"]


class Experiment(Protocol):
    """What a module here has."""

    TITLE: str
    SAMPLES: int

    def layout(self, source: Source, samples: int | None = None) -> Layout: ...


EXPERIMENTS: dict[str, Experiment] = {
    "table-1": table_1,
    "table-2": table_2,
    "table-3": table_3,
    "table-4": table_4,
    "table-5": table_5,
    "table-6": table_6,
    "figure-3": figure_3,
    "figure-4": figure_4,
    "figure-5": figure_5,
    "text": text,
}


def find(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise BadSpec(f"there is no experiment {name!r}; known are {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]


def layout(name: str, samples: int | None = None, networks: str = "zoo", data: str | None = None) -> Layout:
    """`samples` in place of the table's own numbers; `data` is the folder of imported data sets."""
    return find(name).layout(Source(networks, data), samples)


def cells(
    name: str,
    samples: int | None = None,
    networks: str = "zoo",
    precision: str = "float32",
    data: str | None = None,
    resources: Resources | None = None,
) -> list[Cell]:
    """The cells of a table that can be run here, in the order of its lines."""
    return resolve(layout(name, samples, networks, data).asks, precision, resources)[0]


def missing(
    name: str,
    samples: int | None = None,
    networks: str = "zoo",
    precision: str = "float32",
    data: str | None = None,
    resources: Resources | None = None,
) -> list[Missing]:
    """What of a table cannot be run here, and why."""
    return resolve(layout(name, samples, networks, data).asks, precision, resources)[1]


def filled(
    name: str, store: Store | str | Path, samples: int | None = None, networks: str = "zoo", data: str | None = None
) -> Filled:
    """What a store holds of a table, and what is missing there; nothing is run."""
    shelf = StoreIndex(store if isinstance(store, Store) else Store(store))
    return fill(layout(name, samples, networks, data), shelf)
