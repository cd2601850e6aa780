"""Reports: pure functions of stored records.

report(store)  →  Report: rows, verdict, and their text; `print(report(store))` is the Markdown table
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from antiadv.evaluate.store import Store
from antiadv.report.render import markdown
from antiadv.report.table import Row, rows
from antiadv.report.verdict import verdict


@dataclasses.dataclass(frozen=True)
class Report:
    rows: list[Row]
    verdict: list[str]

    def __str__(self) -> str:
        return markdown(self.rows) + "".join(f"\n{sentence}\n" for sentence in self.verdict)

    def json(self) -> dict[str, Any]:
        return {"rows": [row.json() for row in self.rows], "verdict": self.verdict}


def report(store: Store | str | Path) -> Report:
    """Everything the store holds, as rows with intervals and the verdict on each defence."""
    found = rows(store if isinstance(store, Store) else Store(store))
    return Report(found, verdict(found))
