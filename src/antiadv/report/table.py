"""Records to rows: every stored cell, each defended one beside the bare classifier it came from.

rows(store)    one Row per cell, bare before defended, with what the terminal table and the JSON show
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from antiadv import attacks, defences
from antiadv.attacks.adaptive.eot import EOT
from antiadv.core.errors import BadInput
from antiadv.core.threat import Access
from antiadv.evaluate.cell import Cell, Record
from antiadv.evaluate.store import Store
from antiadv.report.measures import (
    Difference,
    Ratio,
    Share,
    clean_accuracy,
    median_queries,
    paired,
    query_ratio,
    robust_accuracy,
)

IN_HAND = "in hand"  # the data of a cell whose images no data set holds: it has no key, and no command makes it again


@dataclass(frozen=True)
class Row:
    """One cell's records and numbers; `gain` and `ratio`, of median queries, are against the bare classifier under the
    same attack, on the same samples."""

    cell: Cell
    clean: Share
    robust: Share
    queries: float | None
    gain: Difference | None
    ratio: Ratio | None = None
    records: Sequence[Record] = field(default=(), repr=False, compare=False)

    def json(self) -> dict[str, Any]:
        said = {k: getattr(self.cell, k) for k in ("data", "model", "weights", "defence", "attack", "seed")}
        said |= {"threat": str(self.cell.threat)}
        if self.cell.data != IN_HAND:
            said |= {"key": self.cell.key, "command": self.cell.command}
        numbers = {k: _plain(getattr(self, k)) for k in ("clean", "robust", "gain", "ratio")}
        return {**said, **numbers, "median_queries": self.queries}


def _plain(value: Share | Difference | Ratio | None) -> dict[str, Any] | None:
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
    bare = found.get(bare_cell(cell).key, []) if cell.defence != defences.BARE else []
    said = cell.identity
    named = dataclasses.replace(cell, data=str(said["data"]), model=str(said["model"]))  # wherever the files lay
    return make_row(named, found[cell.key], bare)


def make_row(cell: Cell, records: Sequence[Record], bare: Sequence[Record]) -> Row:
    """The row of a cell with these records, beside those of the bare classifier if there are any."""
    ball = cell.threat.ball
    common = {r.sample for r in bare} & {r.sample for r in records}
    gain, ratio = (paired(bare, records, ball), query_ratio(bare, records, ball)) if common else (None, None)
    clean, robust = clean_accuracy(records), robust_accuracy(records, ball)
    return Row(cell, clean, robust, median_queries(records, ball), gain, ratio, tuple(records))


def bare_cell(cell: Cell) -> Cell:
    """The same cell without its defence."""
    return dataclasses.replace(cell, defence=defences.BARE)


def level(cell: Cell) -> Access:
    """The level of access at which a cell counts. Who averages a defence's dice out knows it, whatever it answers."""
    return Access.INTERNALS if isinstance(attacks.parse(cell.attack), EOT) else cell.threat.access


def _order(cell: Cell) -> tuple[str, str, Access, str, str, bool, str]:
    defended = cell.defence != defences.BARE
    return cell.data, cell.model, level(cell), cell.attack, str(cell.threat), defended, cell.defence
