"""A sheet: any table of a report, as values first and as text when asked for. Where its numbers come from it does not
know.

    Entry    what one place shows, what it sorts by, its interval, and what was published, in the unit it is shown in
    Sheet    a head and lines of entries: as Markdown, CSV, LaTeX and plain values; the page of a browser shows the same

In CSV an interval and a published number have columns of their own (`AA`, `AA low`, `AA high`, `AA paper`), so that
nobody has to take a text apart. A number that is only a bound has the end that is known: `> 180` a low one.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from antiadv.core.printable import in_csv, in_table, printable
from antiadv.reporting.grid import NOTHING, Grid, Number
from antiadv.reporting.measures import Difference, Ratio, Share

DIGITS = 4  # of a percentage in CSV and JSON: far finer than any interval


@dataclass(frozen=True)
class Entry:
    """`value` is what it sorts by: without one, its text. `small` and `paper_text` are shown in smaller print."""

    text: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    paper: float | None = None
    small: str = ""
    paper_text: str = ""
    code: bool = False  # shown as it is typed
    link: str = ""  # the place on the same page that says more
    place: str = ""  # what such a link calls this one

    def __str__(self) -> str:
        return " ".join(part for part in (self.text, self.small, self.paper_text) if part)

    @property
    def key(self) -> str:
        """What a browser sorts by: nothing sorts last."""
        return self.text.removeprefix(NOTHING) if self.value is None else repr(self.value)

    @property
    def plain(self) -> Any:  # a text, a number, or a number with what belongs to it: what JSON holds
        more = {k: v for k in ("low", "high", "paper") if (v := getattr(self, k)) is not None}
        if not more:
            return self.text if self.value is None else self.value
        return {"value": self.value, **more}


@dataclass(frozen=True)
class Sheet:
    """The first `labels` columns say what a line is; where there is little room, the one at `pin` speaks for all."""

    name: str
    title: str
    head: tuple[str, ...]
    lines: tuple[tuple[Entry, ...], ...]
    labels: int = 1
    pin: int = 0

    def markdown(self) -> str:
        texts = [self.head, ("---",) * len(self.head), *(tuple(map(_marked, line)) for line in self.lines)]
        return "".join("| " + " | ".join(in_table(cell) for cell in line) + " |\n" for line in texts)

    def csv(self) -> str:
        parts = [list(_columns(column)) for column in self._columns()]
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([f"{name} {part}".rstrip() for name, has in zip(self.head, parts, strict=True) for part in has])
        for line in self.lines:
            writer.writerow([_part(entry, p) for entry, has in zip(line, parts, strict=True) for p in has])
        return out.getvalue()

    def latex(self) -> str:
        """A `tabular` for booktabs; the interval in small print, the published number in brackets as elsewhere."""
        shape = "".join("r" if self.style(i) == "number" else "l" for i in range(len(self.head)))
        head = " & ".join(f"\\textbf{{{escaped(name)}}}" for name in self.head)
        body = "".join(" & ".join(map(_typeset, line)) + " \\\\\n" for line in self.lines)
        rules = f"\\toprule\n{head} \\\\\n\\midrule\n{body}\\bottomrule\n"
        return (
            f"% {self.title}; needs \\usepackage{{booktabs}}\n\\begin{{tabular}}{{{shape}}}\n{rules}\\end{{tabular}}\n"
        )

    def json(self) -> list[dict[str, Any]]:
        return [dict(zip(self.head, (entry.plain for entry in line), strict=True)) for line in self.lines]

    def style(self, i: int) -> str:
        """What kind of column it is."""
        if i < self.labels:
            return "pin" if i == self.pin else "label"
        return "number" if any(line[i].value is not None for line in self.lines) else "words"

    def rest(self, line: Sequence[Entry]) -> str:
        """What the labels beside the pinned one say."""
        return " · ".join(e.text for i, e in enumerate(line[: self.labels]) if i != self.pin and e.text)

    def _columns(self) -> list[list[Entry]]:
        return [[line[i] for line in self.lines] for i in range(len(self.head))]


def _columns(entries: Sequence[Entry]) -> Iterator[str]:
    """The columns that CSV needs for one of ours."""
    yield ""
    yield from (p for p in ("low", "high", "paper") if any(getattr(e, p) is not None for e in entries))


def _part(entry: Entry, part: str) -> str:
    if not part and entry.value is None:
        return in_csv(entry.text)
    found: float | None = getattr(entry, part or "value")
    return "" if found is None else f"{found:.12g}"


def _marked(entry: Entry) -> str:
    return f"`{entry}`" if entry.code and entry.text else str(entry)


# ---------------------------------------------------------------- making entries


def code(said: str, link: str = "", place: str = "") -> Entry:
    return Entry(said, code=True, link=link, place=place)


def count(n: float | None) -> Entry:
    return Entry(NOTHING) if n is None else Entry(f"{n:,.6g}" if n < 1e6 else f"{n:,.0f}", n)


def number(found: Number | None) -> Entry:
    """A number of a grid, in per cent."""
    if found is None:
        return Entry()
    value, interval = found.said
    if found.ours is None:
        return Entry(NOTHING, paper=found.paper, paper_text=found.published)
    middle, low, high = (percent(v) for v in (found.ours.value, found.ours.low, found.ours.high))
    return Entry(value, middle, low, high, found.paper, interval, found.published)


def measured(found: Share | Difference | None, more: str = "") -> Entry:
    """A share or a difference with its interval, in per cent."""
    if found is None:
        return Entry()
    made = number(Number(found, signed=isinstance(found, Difference)))
    return Entry(made.text, made.value, made.low, made.high, None, f"{made.small}{more}")


def ratio(found: Ratio | None) -> Entry:
    """How many times as much; of a bound the end that is known."""
    if found is None:
        return Entry()
    low, high = (found.value if found.bound == bound else None for bound in ("more", "less"))
    return Entry(str(found), found.value, low, high)


def percent(share: float) -> float:
    return round(100 * share, DIGITS)


def of_grid(name: str, grid: Grid) -> Sheet:
    """The same table, line by line; n sorts by the fewest samples behind a line."""
    lines = tuple(
        (
            *map(Entry, line.labels),
            Entry(line.n, None if line.n == NOTHING else float(line.n.partition("–")[0])),
            *(number(line.numbers.get(heading)) for heading in grid.headings),
        )
        for line in grid.lines
    )
    return Sheet(name, grid.title, tuple(grid.head), lines, len(grid.labels), pin=min(1, len(grid.labels) - 1))


# ---------------------------------------------------------------- LaTeX

_LATEX = {c: "\\" + c for c in "&%$#_{}"} | {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "×": "$\\times$",
    "−": "$-$",
    "–": "--",
    "…": "\\ldots{}",
    "α": "$\\alpha$",
    "ε": "$\\varepsilon$",
    "σ": "$\\sigma$",
    "→": "$\\to$",
}


def escaped(said: str) -> str:
    r"""
    >>> escaped("α = 10/255, 50 %_{x}")
    '$\\alpha$ = 10/255, 50 \\%\\_\\{x\\}'
    """
    return "".join(_LATEX.get(c, c) for c in printable(said))


def _typeset(entry: Entry) -> str:
    shown = escaped(entry.text)
    shown = f"\\texttt{{{shown}}}" if entry.code and shown else shown
    small = f"{{\\scriptsize {escaped(entry.small)}}}" if entry.small else ""
    return " ".join(part for part in (shown, small, escaped(entry.paper_text)) if part)
