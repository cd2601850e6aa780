"""A table as CSV. An interval and a published number have columns of their own: `AA low`, `AA high`, `AA paper`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from antiadv.core.printable import in_csv
from antiadv.reporting.table import Entry, Table


def table_as_csv(table: Table) -> str:
    columns = [[line[i] for line in table.lines] for i in range(len(table.head))]
    parts = [list(_parts(column)) for column in columns]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([f"{name} {part}".rstrip() for name, has in zip(table.head, parts, strict=True) for part in has])
    for line in table.lines:
        writer.writerow([_text(entry, part) for entry, has in zip(line, parts, strict=True) for part in has])
    return out.getvalue()


def _parts(entries: Sequence[Entry]) -> Iterator[str]:
    """The columns that one column of the table needs."""
    yield ""
    yield from (p for p in ("low", "high", "paper") if any(getattr(e, p) is not None for e in entries))


def _text(entry: Entry, part: str) -> str:
    if not part and entry.value is None:
        return in_csv(entry.text)
    number: float | None = getattr(entry, part or "value")
    return "" if number is None else f"{number:.12g}"
