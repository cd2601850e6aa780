"""Which stored precision counts, where a cell is stored in several.

The precision says how an attack searched. The judge always decides in float32, so cells that differ only in their
precision measure the same thing. One rule selects among them everywhere: the most samples first, then the finest
precision (`rank`). Some attacks are known to break fewer samples in a coarse precision; `WEAK` lists them, and
docs/precision.md has the measurements.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from antiadv.engine.precision import PRECISIONS
from antiadv.evaluation.cell import Cell, Record
from antiadv.reporting.wording import count, join

if TYPE_CHECKING:
    from antiadv.reporting.rows import Row

# Attacks that compare two scores at a time lose small differences. The two images of a pair of Bandits lie σ·2|e|/|v|
# apart once its prior v is long. The loss then changes by less than the rounding of half, and many pairs get the wrong
# sign.
WEAK = {"bandits": ("half", "mixed"), "qeba": ("half",), "simba": ("mixed",)}


def coarseness(precision: str) -> int:
    """The place of a precision from fine to coarse. An unknown one counts as the coarsest."""
    return PRECISIONS.index(precision) if precision in PRECISIONS else len(PRECISIONS)


def rank(cell: Cell, records: Collection[Record]) -> tuple[int, int]:
    """Sort key: most samples first, then the finest precision. The largest counts."""
    return len(records), -coarseness(cell.precision)


def ignoring_precision(cell: Cell) -> Cell:
    """The same cell, for comparing cells that may differ in precision."""
    return dataclasses.replace(cell, precision=PRECISIONS[0])


def select_precision(rows: Iterable[Row]) -> list[Row]:
    """Return one row for all cells that differ only in their precision."""
    best: dict[Cell, Row] = {}
    for row in rows:
        cell = ignoring_precision(row.cell)
        if cell not in best or rank(row.cell, row.records) > rank(best[cell].cell, best[cell].records):
            best[cell] = row
    return list(best.values())


def nearest(
    cell: Cell, records: Sequence[Record], others: Sequence[tuple[Cell, Sequence[Record]]]
) -> tuple[Cell, Sequence[Record]]:
    """Return the bare cell to compare a cell with and its records, which are none if there is no other.

    The same rule on the shared samples; the cell's own precision comes before a finer one.
    """
    mine = {r.sample for r in records}

    def key(other: tuple[Cell, Sequence[Record]]) -> tuple[int, bool, int]:
        shared, fineness = rank(other[0], [r for r in other[1] if r.sample in mine])
        return shared, other[0].precision == cell.precision, fineness

    return max(others, key=key, default=(cell, ()))


def weak(cell: Cell) -> set[str]:
    """The attacks in a cell that are known to break fewer samples in its precision."""
    return {name for name in re.findall(r"\w+", cell.attack) if cell.precision in WEAK.get(name, ())}


def known_weak() -> str:
    """`WEAK` in words, for pages."""
    return join([f"`{name}` in {join([f'`{p}`' for p in precisions])}" for name, precisions in WEAK.items()])


def searched(cells: Iterable[Cell]) -> str:
    """`Searched in tf32 (9) and half (1), judged in float32.`, and which attacks are known to be weaker so."""
    cells = list(cells)
    counts = sorted(Counter(cell.precision for cell in cells).items(), key=lambda item: coarseness(item[0]))
    precisions = join([f"{p} ({n})" if len(counts) > 1 else p for p, n in counts])
    known = sorted(Counter((name, cell.precision) for cell in cells for name in weak(cell)).items())
    less = [f" {count(n, 'cell')} of {name} in {p}, which is known to break fewer samples." for (name, p), n in known]
    return f"Searched in {precisions}, judged in float32.{''.join(less)}"
