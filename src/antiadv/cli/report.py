"""`antiadv report`: what a store holds, as a table with intervals and the verdict."""

from __future__ import annotations

from pathlib import Path

from antiadv.cli import options, show
from antiadv.report import report


def command(
    store: options.StoreFolder = Path("results"), json: options.Json = False, debug: options.Debug = False
) -> None:
    """Show what a store holds: accuracies with intervals, queries, gains with p-values, and the verdict."""
    made = report(store)
    if json:
        show.print_json(made.json())
    else:
        show.print_rows(made.rows, made.sentences)
