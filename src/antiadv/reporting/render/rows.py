"""Rows to text: the same columns wherever they are shown, as Markdown or HTML; data and seed where rows differ."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from antiadv.core.printable import in_table, printable
from antiadv.reporting.table import Row

HEADINGS = (
    "data",
    "model",
    "defence",
    "attack",
    "threat",
    "seed",
    "precision",
    "n",
    "clean %",
    "robust % [95 %]",
    "median queries",
    "gain (p)",
    "× queries",
)
NOT_ATTACKED = "not attacked"
TELLING = ("data", "seed")  # most often the same in all rows


def fields(row: Row) -> tuple[str, ...]:
    """The text of each column of a row, in the order of HEADINGS. Names may be a stranger's: no control codes."""
    cell = row.cell
    return (
        *map(printable, (row.data, row.model, row.defence, cell.attack)),
        str(cell.threat),
        str(cell.seed),
        printable(cell.precision),
        str(row.clean.n),
        f"{100 * row.clean.value:.1f}",
        NOT_ATTACKED if row.robust is None else str(row.robust),
        "–" if row.queries is None else f"{row.queries:g}",
        "" if row.gain is None else str(row.gain),
        "" if row.ratio is None else str(row.ratio),
    )


def needed(rows: Sequence[Row]) -> list[str]:
    """The columns that these rows need."""
    columns = dict(zip(HEADINGS, zip(*map(fields, rows), strict=True), strict=True)) if rows else {}
    return [name for name in HEADINGS if name not in TELLING or len({*columns.get(name, ())}) > 1]


def _grid(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """The columns that these rows need, and their lines."""
    names = needed(rows)
    each = [dict(zip(HEADINGS, fields(row), strict=True)) for row in rows]
    return names, [[line[name] for name in names] for line in each]


def markdown(rows: Sequence[Row]) -> str:
    names, body = _grid(rows)
    lines = [names, ["---"] * len(names), *body]
    return "".join("| " + " | ".join(in_table(cell) for cell in line) + " |\n" for line in lines)


def html(rows: Sequence[Row], sentences: Sequence[str]) -> str:
    """A table and a paragraph for each sentence, as a notebook shows them; every text is escaped."""
    names, lines = _grid(rows)
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{said}"
