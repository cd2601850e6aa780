"""What a person sees: tables on stdout, progress on stderr, so that `--json` output can be piped."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from antiadv.evaluate import Progress
from antiadv.report.render import HEADINGS, fields
from antiadv.report.table import Row

EVERY = 10.0  # seconds between plain lines where there is no terminal


def out() -> Console:
    return Console(highlight=False, markup=False, emoji=False)


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1) + "\n")


def print_rows(rows: Sequence[Row], sentences: Sequence[str]) -> None:
    """One table, then the verdict. What all rows share stands once, in the caption."""
    lines = [fields(row) for row in rows]
    same = [len({line[i] for line in lines}) == 1 and i < 5 for i in range(len(HEADINGS))]
    shared = [f"{name} {lines[0][i]}" for i, name in enumerate(HEADINGS) if same[i]]
    table = Table(caption=", ".join(shared) or None, caption_justify="left")
    for i, name in enumerate(HEADINGS):
        if not same[i]:
            table.add_column(name, overflow="fold", justify="left" if i < 4 else "right")
    for line in lines:
        table.add_row(*(text for i, text in enumerate(line) if not same[i]))
    console = out()
    console.print(table)
    for sentence in sentences:
        console.print(sentence, soft_wrap=True)


def print_table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    table = Table()
    for name in headings:
        table.add_column(name, overflow="fold")
    for line in lines:
        table.add_row(*line)
    out().print(table)


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[Progress], None] | None]:
    """A live line on a terminal; a plain line every ten seconds elsewhere; nothing when quiet."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if quiet:
        yield None
    elif console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[more]}"),
        )
        with Bar(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
            task = bar.add_task("planning", total=None, more="")

            def live(p: Progress) -> None:
                bar.update(task, description=_what(p), completed=p.done, total=p.total, more=_more(p))

            yield live
    else:
        yield _lines(console)


def _lines(console: Console) -> Callable[[Progress], None]:
    last = time.monotonic()

    def line(p: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY or p.done == p.total:
            last = time.monotonic()
            left = p.seconds / p.done * (p.total - p.done) if p.done else float("nan")
            eta = f", about {left:.0f} s left" if p.done and p.done < p.total else ""
            console.print(f"{_what(p)}: {p.done} of {p.total} samples, {_more(p)}{eta}", soft_wrap=True)

    return line


def _what(p: Progress) -> str:
    defence = "" if p.cell.defence == "none" else " + " + p.cell.defence.partition(":")[0]
    return f"{p.cell.attack} on {p.cell.model}{defence}"


def _more(p: Progress) -> str:
    return f"{p.fooled} fooled, {p.queries:,} queries"
