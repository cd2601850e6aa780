"""Reports: pure functions of stored records.

report(store)  →  Report: rows, flags, verdict, and their text; `print(report(store))` is the Markdown table
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from antiadv.core.printable import in_markdown
from antiadv.evaluation.store import Store
from antiadv.reporting.flags import Flag, flags
from antiadv.reporting.measures import Calibration
from antiadv.reporting.render.rows import html, markdown
from antiadv.reporting.table import Row, fullest, ignoring_precision, rows
from antiadv.reporting.temperature import Digests, beside
from antiadv.reporting.verdict import Confidence, Level, confidence, levels, verdict


@dataclasses.dataclass(frozen=True)
class Report:
    """What the rows show: `levels` are the gains behind the verdict, `confidence` what becomes of the scores."""

    rows: list[Row]
    verdict: list[str]
    levels: list[Level] = dataclasses.field(default_factory=list)
    flags: list[Flag] = dataclasses.field(default_factory=list)
    confidence: list[Confidence] = dataclasses.field(default_factory=list)

    @property
    def sentences(self) -> list[str]:
        """What stands below the table: the warning signs, the confidence, and the verdict last."""
        return [*(f"Flag {flag}" for flag in self.flags), *map(str, self.confidence), *self.verdict]

    def __str__(self) -> str:
        return markdown(self.rows) + "".join(f"\n{in_markdown(sentence)}\n" for sentence in self.sentences)

    def _repr_html_(self) -> str:
        return html(self.rows, self.sentences)

    def json(self) -> dict[str, Any]:
        parts = {k: [part.json() for part in getattr(self, k)] for k in ("rows", "levels", "flags", "confidence")}
        return {**parts, "verdict": self.verdict}


def report_of(found: list[Row], scaled: Mapping[Digests, Calibration] | None = None) -> Report:
    """All that can be said of these rows; what is compared was searched in whatever precision."""
    best = fullest(found)
    same = [dataclasses.replace(row, cell=ignoring_precision(row.cell)) for row in best]
    return Report(found, verdict(same), levels(same), flags(best), confidence(same, scaled))


def report(store: Store | str | Path) -> Report:
    """Everything the store holds, as rows with intervals, the warning signs, and the verdict on each defence.

    >>> import antiadv, tempfile
    >>> asked = {"model": "compact:trades", "attack": "transfer", "threat": "linf:16/255", "samples": range(4)}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     antiadv.evaluate([antiadv.make_cell(**asked, defence=d) for d in ("none", "anti_adversary")], folder)
    ...     made = report(folder)
    >>> [(row.cell.defence, str(row.robust)) for row in made.rows]
    [('none', '25.0 [4.6, 69.9]'), ('anti_adversary', '25.0 [4.6, 69.9]')]
    """
    facts = store if isinstance(store, Store) else Store(store)
    return report_of(rows(facts), beside(facts.root))
