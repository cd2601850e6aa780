"""Which cells of a table can be run on this machine, in which order, and why the others cannot.

The order: TRADES and AWP of table 3, its other compact networks, table 2, table 4, the text, the figures, tables 5, 6
and 1. The larger networks come last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from antiadv.core.errors import AntiadvError
from antiadv.engine.precision import AUTO, PRECISIONS
from antiadv.evaluation.cell import Cell
from antiadv.evaluation.plan import make_cell
from antiadv.evaluation.resources import Resources
from antiadv.evaluation.store import Store
from antiadv.paper.table_layout import CellNames, CellRequest, Layout

ORDER = (
    *("table-3", "table-2", "table-4", "text", "figure-3", "figure-4", "figure-5"),
    *("table-5", "table-6", "table-1"),
)
FIRST = ("TRADES", "AWP")  # the methods of table 3 that are run before the others


@dataclass(frozen=True)
class Missing:
    """A cell that cannot be run here, and the reason."""

    request: CellRequest
    why: str


def resolve(
    requests: Iterable[CellRequest], precision: str = AUTO, resources: Resources | None = None
) -> tuple[list[Cell], list[Missing]]:
    """Split requests into cells that can be run, in the same order, and cells that cannot, with the reason."""
    resources = Resources() if resources is None else resources
    cells, missing = [], []
    for request in requests:
        cell = request.network.absent or _make_cell(request, precision, resources)
        if isinstance(cell, Cell):
            cells.append(cell)
        else:
            missing.append(Missing(request, cell))
    return cells, missing


def as_stored(cell: Cell, store: Store) -> Cell:
    """Return the cell in a precision in which all its samples are stored. If there is none, return it unchanged."""
    others = [dataclasses.replace(cell, precision=p) for p in PRECISIONS]
    return next((other for other in others if set(other.samples) <= store.done(other)), cell)


def _make_cell(request: CellRequest, precision: str, resources: Resources) -> Cell | str:
    """The cell, or why it cannot be made: a data set is not imported, has too few images, or a file is damaged."""
    try:
        return make_cell(
            model=request.network.model,
            data=request.network.data,
            defence=request.defence,
            attack=request.attack,
            threat=request.threat,
            samples=range(request.samples),
            precision=precision,
            resources=resources,
        )
    except AntiadvError as error:
        return str(error)


def in_order(layouts: Mapping[str, Layout]) -> list[CellRequest]:
    """Each cell once, in the order to run them, with the most samples that any of the tables needs."""
    ranked = [
        (_rank(name, request), place, request)
        for name, layout in layouts.items()
        for place, request in enumerate(layout.requests)
    ]
    largest: dict[CellNames, CellRequest] = {}
    for _, _, request in sorted(ranked, key=lambda item: item[:2]):
        first = largest.setdefault(request.names, request)
        largest[request.names] = dataclasses.replace(first, samples=max(first.samples, request.samples))
    return list(largest.values())


def _rank(name: str, request: CellRequest) -> tuple[bool, int, bool]:
    first = name == ORDER[0] and request.network.title in FIRST and request.names[0] == "cifar10:test"
    return request.network.size == "larger", ORDER.index(name), not first
