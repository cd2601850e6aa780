"""Rows to text: the same columns wherever they are shown, as Markdown or HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from antiadv.report.table import Row

HEADINGS = (
    "model",
    "defence",
    "attack",
    "threat",
    "precision",
    "n",
    "clean %",
    "robust % [95 %]",
    "median queries",
    "gain (p)",
    "× queries",
)


def fields(row: Row) -> tuple[str, ...]:
    """The text of each column of a row, in the order of HEADINGS."""
    cell = row.cell
    return (
        row.model,
        cell.defence,
        cell.attack,
        str(cell.threat),
        cell.precision,
        str(row.robust.n),
        f"{100 * row.clean.value:.1f}",
        str(row.robust),
        "–" if row.queries is None else f"{row.queries:g}",
        "" if row.gain is None else str(row.gain),
        "" if row.ratio is None else str(row.ratio),
    )


def markdown(rows: Sequence[Row]) -> str:
    lines = [HEADINGS, tuple("---" for _ in HEADINGS), *map(fields, rows)]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def html(rows: Sequence[Row], sentences: Sequence[str]) -> str:
    """A table and a paragraph for each sentence, as a notebook shows them; every text is escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in HEADINGS)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in fields(row)) + "</tr>" for row in rows)
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{said}"
