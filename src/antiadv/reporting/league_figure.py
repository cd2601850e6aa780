"""Cost against robustness: a panel for each column of a league, with the Pareto front as a line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from antiadv.reporting.curves import ACCURACY
from antiadv.reporting.figures import Figure, Panel, Series
from antiadv.reporting.league_table import League, Line
from antiadv.reporting.measures import Share

APART = 4.5  # points between the names of entrants that cost the same
CAPTION = (
    "Robust accuracy against the mean passes for a clean image that comes alone. The line joins the Pareto front, with "
    "95 % intervals: no other entrant costs no more and is more robust, or is as robust and cheaper."
)

Point = tuple[Line, float, Share]


def fronts(league: League) -> Figure | None:
    """None if no cost is known."""
    panels = [panel for column in league.columns if (panel := front(league, column)) is not None]
    return Figure(slug(league), f"Cost and robustness: {league.network}", CAPTION, tuple(panels)) if panels else None


def slug(league: League) -> str:
    """A name for files: letters, digits and hyphens."""
    return re.sub(r"[^A-Za-z0-9]+", "-", f"league-{league.network}").strip("-")


def front(league: League, column: str) -> Panel | None:
    points = [
        (line, line.passes, robust)
        for line in league.lines
        if line.passes is not None and (robust := line.robust(column)) is not None
    ]
    kept = {line.name for line in league.front(column)}
    joined = sorted((p for p in points if p[0].name in kept), key=lambda p: p[1])
    rest = [p for p in points if p[0].name not in kept]
    series = [_series("Pareto front", joined, 0), _series("others", rest, 1)]
    title = f"{league.network}, {league.columns[column]}"
    shown = tuple(s for s in series if s.x)
    return Panel(title, "passes", ACCURACY, shown, log=True, words=tuple(_names(points))) if shown else None


def _series(label: str, points: Sequence[Point], hue: int) -> Series:
    value, low, high = (tuple(round(100 * getattr(s, k), 3) for *_, s in points) for k in ("value", "low", "high"))
    xs = tuple(x for _, x, _ in points)
    return (
        Series(label, xs, value, kind="marks", hue=hue) if hue else Series(label, xs, value, low, high, "dots", hue=0)
    )


def _names(points: Sequence[Point]) -> Iterator[tuple[float, float, str]]:
    """The name of each entrant beside its point; a name that would cover another is set higher."""
    for passes in sorted({x for _, x, _ in points}):
        free = 0.0
        for line, x, share in sorted(points, key=lambda p: p[2].value):
            if x == passes:
                y = max(100 * share.value, free)
                yield x, y, line.name
                free = y + APART
