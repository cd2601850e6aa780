"""Rows to text: the same columns wherever they are shown."""

from __future__ import annotations

from collections.abc import Sequence

from antiadv.report.table import Row

HEADINGS = ("model", "defence", "attack", "threat", "n", "clean %", "robust % [95 %]", "median queries", "gain (p)")


def fields(row: Row) -> tuple[str, ...]:
    """The text of each column of a row, in the order of HEADINGS."""
    cell = row.cell
    return (
        cell.model,
        cell.defence,
        cell.attack,
        str(cell.threat),
        str(row.robust.n),
        f"{100 * row.clean.value:.1f}",
        str(row.robust),
        "–" if row.queries is None else f"{row.queries:g}",
        "" if row.gain is None else str(row.gain),
    )


def markdown(rows: Sequence[Row]) -> str:
    lines = [HEADINGS, tuple("---" for _ in HEADINGS), *map(fields, rows)]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
