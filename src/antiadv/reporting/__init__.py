"""Reports: pure functions of stored records.

report(store)           →  Report: rows, flags and verdict; `print(report(store))` shows a Markdown table
build.build_document    →  the complete report, for a folder with an HTML page
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from antiadv.core.printable import in_markdown
from antiadv.evaluation.store import Store
from antiadv.reporting.curves import radii
from antiadv.reporting.flags import Flag, changes_with_precision
from antiadv.reporting.flags import flags as _flags
from antiadv.reporting.measures import Calibration
from antiadv.reporting.render.html import table_as_html
from antiadv.reporting.render.markdown import table_as_markdown
from antiadv.reporting.rows import Row, row_table
from antiadv.reporting.rows import rows as _rows
from antiadv.reporting.select import ignoring_precision, select_precision
from antiadv.reporting.temperature import Digests, of_store
from antiadv.reporting.verdict import Confidence, Level, confidence, levels
from antiadv.reporting.verdict import verdict as _verdict


@dataclasses.dataclass(frozen=True)
class Report:
    """The rows of some cells, and what follows from them.

    `levels` are the gains that the verdict speaks of. `confidence` compares the scores on clean images.
    """

    rows: list[Row]
    verdict: list[str]
    levels: list[Level] = dataclasses.field(default_factory=list)
    flags: list[Flag] = dataclasses.field(default_factory=list)
    confidence: list[Confidence] = dataclasses.field(default_factory=list)

    @property
    def sentences(self) -> list[str]:
        """The sentences below the table: flags, then radii, then confidence, then the verdict."""
        return [*(f"Flag {flag}" for flag in self.flags), *radii(self.rows), *map(str, self.confidence), *self.verdict]

    def __repr__(self) -> str:
        return f"Report({len(self.rows)} rows: {' '.join(self.verdict)})"

    def __str__(self) -> str:
        return as_markdown(self.rows, self.sentences)

    def _repr_html_(self) -> str:
        return table_as_html(row_table(self.rows), self.sentences)

    def json(self) -> dict[str, Any]:
        parts = {k: [part.json() for part in getattr(self, k)] for k in ("rows", "levels", "flags", "confidence")}
        return {**parts, "verdict": self.verdict}


def as_markdown(rows: Sequence[Row], sentences: Sequence[str]) -> str:
    """Render rows as a Markdown table with a paragraph for each sentence below it."""
    return table_as_markdown(row_table(rows)) + "".join(f"\n{in_markdown(sentence)}\n" for sentence in sentences)


def report_of(rows: list[Row], scaled: Mapping[Digests, Calibration] | None = None) -> Report:
    """Return the report of these rows. Cells are compared whatever precision they were searched in."""
    selected = select_precision(rows)
    same = [dataclasses.replace(row, cell=ignoring_precision(row.cell)) for row in selected]
    twice = changes_with_precision([row for row in rows if row.robust is not None])  # compares what is not selected
    return Report(rows, _verdict(same), levels(same), [*_flags(selected), *twice], confidence(same, scaled))


def report(store: Store | str | Path) -> Report:
    """Report everything that a store holds: rows with intervals, flags, and the verdict on each defence.

    >>> import antiadv, tempfile
    >>> asked = {"model": "compact:trades", "attack": "transfer", "threat": "linf:16/255", "samples": range(4)}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     antiadv.evaluate([antiadv.make_cell(**asked, defence=d) for d in ("none", "anti_adversary")], folder)
    ...     made = report(folder)
    >>> [(row.cell.defence, str(row.robust)) for row in made.rows]
    [('none', '25.0 [4.6, 69.9]'), ('anti_adversary', '25.0 [4.6, 69.9]')]
    """
    opened = Store.of(store)
    return report_of(_rows(opened), of_store(opened.root))
