"""Tables on a terminal. Needs rich, from the command line's packages."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Literal

from antiadv.core.printable import printable
from antiadv.reporting.table import Entry, Table

if TYPE_CHECKING:
    from rich.table import Table as RichTable


def table_for_terminal(table: Table, folded: bool = False, unbroken: Collection[str] = ()) -> RichTable:
    """Render a table. `folded` puts intervals on a second line; columns named in `unbroken` are never wrapped."""
    from rich import box
    from rich.table import Table as RichTable

    shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for i, name in enumerate(table.head):
        justify: Literal["left", "right"] = "left" if i < table.labels else "right"
        heading = name.replace("median ", "median\n")
        shown.add_column(heading, overflow="fold", justify=justify, no_wrap=name in unbroken)
    for line in table.lines:
        shown.add_row(*(_text(entry, folded) for entry in line))
    return shown


def _text(entry: Entry, folded: bool) -> str:
    if not folded or not entry.small:
        return printable(str(entry))
    return printable(f"{entry.text} {entry.paper_text}".rstrip()) + "\n" + printable(entry.small)


def without_shared(table: Table) -> tuple[list[tuple[str, str]], Table]:
    """Split off the label columns that have the same text in every line: their names and texts, and the rest.

    Columns without any text are left out.
    """
    columns = [[str(line[i]) for line in table.lines] for i in range(len(table.head))]
    filled = [i for i, column in enumerate(columns) if any(column)]
    same = [i for i in filled if i < table.labels and len(set(columns[i])) == 1]
    kept = [i for i in filled if i not in same]
    head = tuple(table.head[i] for i in kept)
    lines = tuple(tuple(line[i] for i in kept) for line in table.lines)
    labels = sum(i < table.labels for i in kept)
    return [(table.head[i], columns[i][0]) for i in same], dataclasses.replace(
        table, head=head, lines=lines, labels=labels
    )
