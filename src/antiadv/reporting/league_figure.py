"""Cost against robustness: a panel for each column of a league, with the Pareto front as a line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from antiadv.reporting.curves import ACCURACY
from antiadv.reporting.figures import Figure, Panel, Series, Word, ceiling
from antiadv.reporting.league_table import League, Line
from antiadv.reporting.measures import Share

APART = 0.055  # of the height of a panel, between names that stand one below another
NEAR = 0.32  # of the width of the points: closer ones share a stack of names
CAPTION = (
    "Robust accuracy against the mean passes for a clean image that comes alone. The line joins the Pareto front, with "
    "95 % intervals: no other entrant costs no more and is more robust, or is as robust and cheaper. Entrants that "
    "lose more than a point of clean accuracy are not on it."
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
    return Panel(title, "passes", ACCURACY, shown, log=True, words=_names(points, ceiling(shown))) if shown else None


def _series(label: str, points: Sequence[Point], hue: int) -> Series:
    value, low, high = (tuple(round(100 * getattr(s, k), 3) for *_, s in points) for k in ("value", "low", "high"))
    xs = tuple(x for _, x, _ in points)
    return (
        Series(label, xs, value, kind="marks", hue=hue) if hue else Series(label, xs, value, low, high, "dots", hue=0)
    )


def _names(points: Sequence[Point], top: float) -> tuple[Word, ...]:
    """The name of each entrant near its point; names of points that lie side by side form one stack."""
    words = []
    for stack in _stacks(points):
        right = max(x for _, x, _ in stack)
        heights = spread([100 * share.value for *_, share in stack], top)
        words += [
            Word(x, 100 * share.value, line.name, right, height)
            for (line, x, share), height in zip(stack, heights, strict=True)
        ]
    return tuple(words)


def _stacks(points: Sequence[Point]) -> Iterator[list[Point]]:
    """The points from left to right, cut where there is room for a name; each stack from its lowest to its highest."""
    logs = sorted({math.log(x) for _, x, _ in points})
    gap = NEAR * (logs[-1] - logs[0])
    ends = [at for at, following in zip(logs, [*logs[1:], math.inf], strict=True) if following - at > gap]
    for start, end in zip([-math.inf, *ends], ends, strict=False):
        yield sorted((p for p in points if start < math.log(p[1]) <= end), key=lambda p: p[2].value)


def spread(values: Sequence[float], top: float) -> list[float]:
    """Heights near these values, which rise: far enough apart to be read, and between 0 and the top.

    >>> [round(height, 1) for height in spread([1, 1, 50, 99], 100)]
    [2.8, 8.2, 50.0, 97.2]
    """
    apart = min(APART * top, top / max(1, len(values)))
    up, down = list(values), list(values)
    for i in range(1, len(values)):
        up[i] = max(up[i], up[i - 1] + apart)
        down[-i - 1] = min(down[-i - 1], down[-i] - apart)
    middle = [(a + b) / 2 for a, b in zip(up, down, strict=True)]
    low = [max(y, apart * (i + 0.5)) for i, y in enumerate(middle)]
    return [min(y, top - apart * (len(values) - i - 0.5)) for i, y in enumerate(low)]
