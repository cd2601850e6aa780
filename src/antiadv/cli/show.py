"""Output: tables and JSON on stdout, progress on stderr.

Functions import rich and the library when they run, so that `antiadv --help` is quick.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, TextIO

from antiadv.core.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

    from antiadv.evaluation import Progress
    from antiadv.reporting.rows import Row

EVERY = 10.0  # seconds between progress lines without a terminal
UNBROKEN = ("robust % [95 %]", "gain (p)")  # columns that are never wrapped
WIDE = 160  # columns of a table without a terminal


_results: list[TextIO] = []  # stdout while a command runs


@contextmanager
def stdout_for_results() -> Iterator[None]:
    """Send everything that networks and libraries print to stderr; only this module writes to stdout."""
    _results.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _results.pop()


def plain_console(**how: Any) -> Console:
    """Return a console that shows control codes as text: names may come from an untrusted store."""
    from rich.console import Console
    from rich.text import Text

    class Plain(Console):
        def render_str(self, text: str, **how: Any) -> Text:
            return super().render_str("\n".join(map(printable, text.split("\n"))), **how)

    return Plain(highlight=False, markup=False, emoji=False, **how)


def out() -> Console:
    file = _stdout()
    return plain_console(file=file, width=None if file.isatty() else WIDE)


def print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        out().print(line, soft_wrap=True)


def print_json(value: Any) -> None:
    _stdout().write(json.dumps(value, indent=1) + "\n")
    _stdout().flush()  # a program may wait for it


def _stdout() -> TextIO:
    return _results[-1] if _results else sys.stdout


def print_rows(rows: Sequence[Row], sentences: Sequence[str]) -> None:
    """Print the columns that all rows share, the table of the other columns, and sentences."""
    from antiadv.reporting.render.terminal import table_for_terminal, without_shared
    from antiadv.reporting.rows import row_table

    shared, table = without_shared(row_table(rows, budget=True))
    console = out()
    console.print(" · ".join(f"{name} {text}" for name, text in shared), soft_wrap=True)
    console.print(table_for_terminal(table, unbroken=UNBROKEN))
    for sentence in sentences:
        console.print(printable(sentence), soft_wrap=True)


def print_table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    from antiadv.reporting.render.terminal import table_for_terminal
    from antiadv.reporting.table import text_table

    out().print(table_for_terminal(text_table(headings, lines, labels=len(headings))))


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[Progress], None] | None]:
    """Show progress on stderr: live on a terminal, else a line every ten seconds, or nothing if `quiet`."""
    console = plain_console(stderr=True)
    if console.is_terminal:
        with _live(console) as tell:
            yield tell
    else:
        yield None if quiet else _lines(console)


@contextmanager
def _live(console: Console) -> Iterator[Callable[[Progress], None]]:
    from rich.console import Group
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    cell, overall, more = (Text(overflow="ellipsis", no_wrap=True) for _ in range(3))
    cell.plain, bar, left = "planning", ProgressBar(width=20), _clock()
    line = Table.grid(padding=(0, 1))
    line.add_row(bar, overall)

    def tell(p: Progress) -> None:
        t = p.overall
        cell.plain = _name(p) if _alone(p) else f"{_name(p)}\n{p.here}, {p.here.queries:,} queries"
        overall.plain, more.plain = str(t), f"{t.queries:,} queries, {_time(p, left(p))}"
        bar.update(t.done + t.failed, t.total)

    with Live(Group(cell, line, more), console=console, transient=True, refresh_per_second=8):
        yield tell


def _lines(console: Console) -> Callable[[Progress], None]:
    last, left = time.monotonic(), _clock()

    def line(p: Progress) -> None:
        nonlocal last
        remaining = left(p)
        if time.monotonic() - last >= EVERY or p.overall.over:
            last = time.monotonic()
            t, here = p.overall, "" if _alone(p) else f"{p.here}, {p.here.queries:,} queries; in all "
            text = f"{_name(p)}: {here}{t}, {t.queries:,} queries, {_time(p, remaining)}"
            console.print(text, soft_wrap=True)

    return line


def _clock() -> Callable[[Progress], float | None]:
    """Return a function that estimates the seconds left from the finished shards; None before the first."""
    done, at = 0, 0.0

    def left(p: Progress) -> float | None:
        nonlocal done, at
        over = p.overall.done + p.overall.failed
        if over != done:  # fewer than before if another evaluation has started
            done, at = over, p.seconds
        return max(0.0, at / done * (p.overall.total - done) - (p.seconds - at)) if done else None

    return left


def _time(p: Progress, left: float | None) -> str:
    if p.overall.over:
        return f"{_rate(p)}, in {_clocked(p.seconds)}"
    return f"{_clocked(p.seconds)} so far" if left is None else f"{_rate(p)}, about {_clocked(left)} left"


def _clocked(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


def _rate(p: Progress) -> str:
    """Return samples per second, minute or hour: the first unit that gives at least one."""
    each = p.overall.done / max(p.seconds, 1e-9)
    unit, seconds = next((u for u in (("a second", 1), ("a minute", 60)) if each * u[1] >= 1), ("an hour", 3600))
    value = each * seconds
    return f"{value:,.0f} samples {unit}" if value >= 10 else f"{value:.1f} samples {unit}"


def _name(p: Progress) -> str:
    defence = "" if p.cell.defence == "none" else f" with {p.cell.defence}"
    return printable(f"{p.cell.attack} on {p.cell.model}{defence}")


def _alone(p: Progress) -> bool:
    """Return whether there is no other cell to run."""
    return p.here.total == p.overall.total
