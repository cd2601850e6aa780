"""Records to rows: every stored cell, each defended one beside the bare classifier it came from.

rows(store)    one Row per cell, bare before defended, with what the terminal table and the JSON show
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from antiadv import defences
from antiadv.core.errors import BadInput
from antiadv.core.threat import Access
from antiadv.evaluate.cell import Cell, Record
from antiadv.evaluate.store import Store
from antiadv.report.measures import Difference, Share, clean_accuracy, median_queries, paired, robust_accuracy


@dataclass(frozen=True)
class Row:
    """One cell's numbers; `gain` is against the bare classifier under the same attack, on the same samples."""

    cell: Cell
    clean: Share
    robust: Share
    queries: float | None
    gain: Difference | None

    def json(self) -> dict[str, Any]:
        said = {k: getattr(self.cell, k) for k in ("data", "model", "weights", "defence", "attack", "seed")}
        said |= {"threat": str(self.cell.threat), "key": self.cell.key, "command": self.cell.command}
        numbers = {k: _plain(getattr(self, k)) for k in ("clean", "robust", "gain")}
        return {**said, **numbers, "median_queries": self.queries}


def _plain(value: Share | Difference | None) -> dict[str, Any] | None:
    return None if value is None else dataclasses.asdict(value)


def rows(store: Store, cells: Iterable[Cell] | None = None) -> list[Row]:
    """A row for each cell, or for each stored one. Cells of which nothing is stored are left out."""
    read = [(cell, store.read(cell)) for cell in (store.cells() if cells is None else cells)]
    found = {cell.key: records for cell, records in read if records}
    if not found:
        raise BadInput(f"the store {store.root} holds no records; run antiadv evaluate or antiadv demo first.")
    return [_row(cell, found) for cell, records in sorted(read, key=lambda item: _order(item[0])) if records]


def _row(cell: Cell, found: dict[str, list[Record]]) -> Row:
    """`found` holds the records of each cell by its key: two texts of one data set or model are one cell."""
    records, ball = found[cell.key], cell.threat.ball
    bare = found.get(bare_cell(cell).key, []) if cell.defence != defences.BARE else []
    common = {r.sample for r in bare} & {r.sample for r in records}
    gain = paired(bare, records, ball) if common else None
    said = cell.identity
    named = dataclasses.replace(cell, data=str(said["data"]), model=str(said["model"]))  # wherever the files lay
    return Row(named, clean_accuracy(records), robust_accuracy(records, ball), median_queries(records, ball), gain)


def bare_cell(cell: Cell) -> Cell:
    """The same cell without its defence."""
    return dataclasses.replace(cell, defence=defences.BARE)


def _order(cell: Cell) -> tuple[str, str, Access, str, str, bool, str]:
    defended = cell.defence != defences.BARE
    return cell.data, cell.model, cell.threat.access, cell.attack, str(cell.threat), defended, cell.defence
