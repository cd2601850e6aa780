"""A grid: lines and columns of our numbers, each beside a published one where there is one. Where the numbers come from
it does not know.

    Number    a share or a difference of ours with its interval, and what was published, in per cent
    Grid      labels and numbers, as Markdown, as cells of text, and as plain values for JSON
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from antiadv.core.printable import in_table
from antiadv.reporting.measures import Difference, Share

NOTHING = "–"


@dataclass(frozen=True)
class Number:
    """None where nothing is stored, or nothing was published."""

    ours: Share | Difference | None
    paper: float | None = None
    signed: bool = False  # a difference, shown with its sign

    def __str__(self) -> str:
        """`54.2 [51.1, 57.3] (53.1)`: ours, its 95 % interval, and in brackets the published number."""
        return " ".join(part for part in (*self.said, self.published) if part) or NOTHING

    @property
    def said(self) -> tuple[str, str]:
        """Our number and its interval."""
        if self.ours is None:
            return (NOTHING if self.paper is not None else ""), ""
        sign = "+" if self.signed else ""
        value, low, high = (f"{100 * v:{sign}.1f}" for v in (self.ours.value, self.ours.low, self.ours.high))
        return value, f"[{low}, {high}]"

    @property
    def published(self) -> str:
        """To one digit, of a tie away from zero: the paper has two, and rounds some of its own so."""
        if self.paper is None:
            return ""
        shown = Decimal(repr(self.paper)).quantize(Decimal("0.1"), ROUND_HALF_UP)
        return f"({shown:{'+' if self.signed else ''}})"

    def json(self) -> dict[str, Any]:
        return {"ours": None if self.ours is None else dataclasses.asdict(self.ours), "paper": self.paper}


@dataclass(frozen=True)
class GridLine:
    """`numbers` by heading; a heading that does not concern the line is left out."""

    labels: tuple[str, ...]
    numbers: Mapping[str, Number]

    @property
    def n(self) -> str:
        """How many samples stand behind the numbers: one number, or from least to most."""
        seen = sorted({number.ours.n for number in self.numbers.values() if number.ours is not None})
        return NOTHING if not seen else f"{seen[0]}" if len(seen) == 1 else f"{seen[0]}–{seen[-1]}"


@dataclass(frozen=True)
class Grid:
    """`sentences` are what must be said below it."""

    title: str
    labels: tuple[str, ...]
    headings: tuple[str, ...]
    lines: tuple[GridLine, ...]
    sentences: tuple[str, ...] = ()

    @property
    def head(self) -> list[str]:
        return [*self.labels, "n", *self.headings]

    def cells(self, folded: bool = False) -> list[list[str]]:
        """The text of each line; `folded` puts the interval on a line of its own, for a narrow terminal."""
        return [
            [*line.labels, line.n, *(_text(line.numbers.get(heading), folded) for heading in self.headings)]
            for line in self.lines
        ]

    def markdown(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *self.cells()]
        return "".join("| " + " | ".join(in_table(cell) for cell in line) + " |\n" for line in lines)

    def json(self) -> dict[str, Any]:
        lines = [
            {
                **dict(zip(self.labels, line.labels, strict=True)),
                "numbers": {heading: number.json() for heading, number in line.numbers.items()},
            }
            for line in self.lines
        ]
        return {"title": self.title, "lines": lines, "sentences": list(self.sentences)}


def _text(number: Number | None, folded: bool) -> str:
    if number is None:
        return ""
    if not folded or number.ours is None:
        return str(number)
    value, interval = number.said
    return f"{value} {number.published}".rstrip() + f"\n{interval}"


def join(parts: Sequence[str]) -> str:
    """
    >>> join(["a"]), join(["a", "b"]), join(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def count(n: int, thing: str) -> str:
    """
    >>> count(1, "cell"), count(2, "cell")
    ('1 cell', '2 cells')
    """
    return f"{n} {thing}" + ("" if n == 1 else "s")
