"""The reproduction of the paper: its tables, figures, claims and theory. Only the command line, tools and tests use it.

EXPERIMENTS                   every table and figure: its cells, its layout, the paper's numbers
layout("table-3")             its rows and columns, and the cells that each number needs
cells("table-3")              the cells that can be run here
filled("table-3", store)      the numbers that a store holds, next to the paper's
headline(store)               the most important numbers, as Markdown
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from antiadv.core.errors import BadSpec
from antiadv.engine.precision import AUTO
from antiadv.evaluation.cell import Cell
from antiadv.evaluation.resources import Resources
from antiadv.evaluation.store import Store
from antiadv.paper import ablations, numbers_in_text, table_1, table_2, table_3, table_4
from antiadv.paper.filled_table import FilledTable, fill
from antiadv.paper.headline import headline
from antiadv.paper.missing_cells import resolve
from antiadv.paper.networks import Source
from antiadv.paper.store_index import StoreIndex
from antiadv.paper.table_layout import Layout

__all__ = ["EXPERIMENTS", "Source", "cells", "filled", "find", "headline", "layout"]


class Experiment(Protocol):
    """A table or figure: a module, or an `Ablation`."""

    TITLE: str
    SAMPLES: int

    def layout(self, source: Source, samples: int | None = None) -> Layout: ...


EXPERIMENTS: dict[str, Experiment] = {
    "table-1": table_1,
    "table-2": table_2,
    "table-3": table_3,
    "table-4": table_4,
    "table-5": ablations.TABLE_5,
    "table-6": ablations.TABLE_6,
    "figure-3": ablations.FIGURE_3,
    "figure-4": ablations.FIGURE_4,
    "figure-5": ablations.FIGURE_5,
    "text": numbers_in_text,
}


def find(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise BadSpec(f"there is no experiment {name!r}; known are {', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]


def layout(name: str, samples: int | None = None, networks: str = "zoo", data: str | None = None) -> Layout:
    """The layout of a table. `samples` replaces the table's own number; `data` is the folder of imported data sets."""
    return find(name).layout(Source(networks, data), samples)


def cells(
    name: str,
    samples: int | None = None,
    networks: str = "zoo",
    precision: str = AUTO,
    data: str | None = None,
    resources: Resources | None = None,
) -> list[Cell]:
    """The cells of a table that can be run here, in the order of its lines."""
    return resolve(layout(name, samples, networks, data).requests, precision, resources)[0]


def filled(
    name: str, store: Store | str | Path, samples: int | None = None, networks: str = "zoo", data: str | None = None
) -> FilledTable:
    """The numbers that a store holds for a table, and what is missing. Nothing is run."""
    index = StoreIndex(Store.of(store))
    return fill(layout(name, samples, networks, data), index)
