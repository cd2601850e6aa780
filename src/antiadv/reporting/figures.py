"""Figures: plain values in, SVG out. Needs matplotlib (`antiadv[report]`).

    Series    a label and its points, with intervals where there are any
    Panel     axes and series; sideways, it has a line per name and values along x
    Figure    a title, a caption, and panels that a page arranges to fit the screen
    svg(…)    one panel as an <svg> with a description in words

Text and axes take the colour of the text around them (`currentColor`), so a page may be light or dark. Series have
colours that are visible on both, and a line style and a marker of their own for readers who do not see colours.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from antiadv.core.errors import MissingExtra
from antiadv.core.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Kind = Literal["curve", "dots", "level", "marks"]

LONGEST = 200  # longer names are cut
INK = "#010203"  # replaced by currentColor; nothing else has this colour
COLOURS = ("#3c82d6", "#d1701a", "#1f9e78", "#b060c8", "#b8860b", "#d4508c")
MARKS, DASHES = "osD^vP", ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)), (0, (3, 2)))
WIDTH, HEIGHT, LINE = 4.2, 3.1, 0.46  # inches: fits a telephone without shrinking the text
SETTINGS: dict[Any, Any] = {  # Any: matplotlib lists all three hundred keys in its type
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}


@dataclass(frozen=True)
class Series:
    """`low` and `high` are intervals of the values: of y, or of x if the panel is sideways. `mark` is the marker.

    A curve is a line with a band, dots are joined points with bars, marks are points without a line, and a level is one
    value across the panel, which the caption explains.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    kind: Kind = "curve"
    mark: str = ""
    hue: int | None = None  # the index of its colour, to share it with another series

    def json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"label": self.label, "x": list(self.x), "y": list(self.y)}
        return plain | ({"low": list(self.low), "high": list(self.high)} if self.low else {})


@dataclass(frozen=True)
class Word:
    """A name to the right of (`beside`, `height`), with a thin line to its point (x, y) if that is elsewhere."""

    x: float
    y: float
    text: str
    beside: float
    height: float


@dataclass(frozen=True)
class Panel:
    """`names` make it sideways: y counts them from the top. `ticks` are places on x, 1 apart, and their names."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    names: tuple[str, ...] = ()
    log: bool = False
    ticks: tuple[tuple[float, str], ...] = ()
    zero: float | None = None  # a thin line at this value, where nothing is gained
    words: tuple[Word, ...] = ()  # names of points

    @property
    def about(self) -> str:
        """A description in words, for screen readers."""
        series = "; ".join(self._described(s) for s in self.series)
        return f"{self.title}. {self.x_label}{' against ' + self.y_label if self.y_label else ''}: {series}."

    def _described(self, s: Series) -> str:
        if self.names:
            return f"{s.label}: " + ", ".join(f"{self.names[round(y)]} {x:.3g}" for x, y in zip(s.x, s.y, strict=True))
        ends = f"{s.y[0]:.1f}" if s.kind == "level" or len(s.x) == 1 else f"{s.y[0]:.1f} to {s.y[-1]:.1f}"
        where = "" if s.kind == "level" else f" at {self._at(s.x[0])}"
        return f"{s.label} {ends}{where}" + (f" to {self._at(s.x[-1])}" if where and len(s.x) > 1 else "")

    def _at(self, x: float) -> str:
        return dict(self.ticks).get(x, f"{x:,.4g}" if x < 1000 else f"{x:,.0f}")

    def json(self) -> dict[str, Any]:
        plain = {"title": self.title, "x": self.x_label, "y": self.y_label, "series": [s.json() for s in self.series]}
        return plain | ({"names": list(self.names)} if self.names else {})


@dataclass(frozen=True)
class Figure:
    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    sources: tuple[str, ...] = field(default=(), repr=False)  # keys of the cells it was drawn from

    @property
    def places(self) -> list[str]:
        """A name for each panel."""
        return [f"{self.name}-{i}" for i in range(1, len(self.panels) + 1)]

    def json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"title": self.title, "caption": self.caption, "cells": list(self.sources)}
        return plain | {"panels": [panel.json() for panel in self.panels]}


# ---------------------------------------------------------------- drawing


def draw(figures: Iterable[Figure]) -> dict[str, str]:
    """Draw every panel. Returns SVG elements by name."""
    every = [pair for figure in figures for pair in zip(figure.places, figure.panels, strict=True)]
    return {name: svg(_without_codes(panel), name) for name, panel in every}


def _without_codes(panel: Panel) -> Panel:
    """The same panel with names that XML can hold and that leave room for the axes."""

    def named(text: str) -> str:
        plain = printable(text)
        return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 1]}…"

    series = tuple(replace(s, label=named(s.label)) for s in panel.series)
    ticks = tuple((x, named(text)) for x, text in panel.ticks)
    words = tuple(replace(word, text=named(word.text)) for word in panel.words)
    names = tuple(map(named, panel.names))
    return replace(panel, title=named(panel.title), series=series, names=names, ticks=ticks, words=words)


def svg(panel: Panel, name: str) -> str:
    """Draw one panel as an <svg> element. Its ids start with `name`, and its bytes are the same every time."""
    try:
        import matplotlib
        from matplotlib.figure import Figure as Canvas  # not pyplot, which keeps global state
    except ImportError as missing:
        raise MissingExtra("matplotlib", "report") from missing
    with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the browser has fonts that this machine may lack
        warnings.filterwarnings("ignore", "constrained_layout not applied")  # a name is too long for the panel
        tall = 1.1 + LINE * len(panel.names) if panel.names else HEIGHT
        canvas = Canvas(figsize=(WIDTH, tall), layout="constrained", facecolor="none")
        axes = canvas.subplots()
        axes.set_facecolor("none")
        handles = [_sideways(axes, s, i) if panel.names else _upright(axes, s, i) for i, s in enumerate(panel.series)]
        _dress(axes, panel)
        named = [(handle, s.label) for handle, s in zip(handles, panel.series, strict=True) if s.kind != "level"]
        if named:
            wide = max(len(label) for _, label in named) > 26
            canvas.legend(*zip(*named, strict=True), loc="outside lower center", ncols=1 if wide else 2, frameon=False)
        out = io.StringIO()
        canvas.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _inlined(out.getvalue(), panel, name)


def _upright(axes: Axes, s: Series, i: int) -> Any:  # the matplotlib artist for the legend
    hue = i if s.hue is None else s.hue
    colour, dash, mark = COLOURS[hue % 6], DASHES[hue % 6], s.mark or MARKS[hue % 6]
    if s.kind == "level":
        return axes.axhline(s.y[0], color=colour, linestyle=":", linewidth=1.4)
    if s.kind == "curve":
        if s.low:
            axes.fill_between(s.x, s.low, s.high, color=colour, alpha=0.18, linewidth=0)
        return axes.plot(s.x, s.y, color=colour, linestyle=dash, linewidth=1.8)[0]
    if s.kind == "marks":
        return axes.plot(s.x, s.y, mark, color=colour, fillstyle="none", markersize=8)[0]
    return axes.errorbar(s.x, s.y, _bars(s, s.y), color=colour, linestyle=dash, marker=mark, capsize=2, markersize=4.5)


def _sideways(axes: Axes, s: Series, i: int) -> Any:
    hue = i if s.hue is None else s.hue
    colour, mark = COLOURS[hue % 6], s.mark or MARKS[i % 6]
    places = [y + 0.12 * i for y in s.y]  # below the name, one below another
    bars = _bars(s, s.x)
    return axes.errorbar(s.x, places, None, bars, color=colour, linestyle="", marker=mark, capsize=2, markersize=4.5)


def _bars(s: Series, values: Sequence[float]) -> tuple[list[float], list[float]] | None:
    if not s.low:
        return None
    below = [max(0.0, v - low) for v, low in zip(values, s.low, strict=True)]
    return below, [max(0.0, high - v) for v, high in zip(values, s.high, strict=True)]


def _dress(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title, loc="left")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    if panel.log:
        axes.set_xscale("log")
        if panel.names or panel.words:
            from matplotlib.ticker import LogLocator

            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))  # few values are powers of ten
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:,g}")
    if panel.ticks:
        axes.set_xticks([x for x, _ in panel.ticks], labels=[text for _, text in panel.ticks])
        axes.set_xlim(panel.ticks[0][0] - 0.3, panel.ticks[-1][0] + 0.3)
        if any(len(text) > 4 for _, text in panel.ticks):
            axes.tick_params(axis="x", rotation=45)
    _name(axes, panel)
    axes.grid(axis="both" if not panel.names else "x", color=INK, alpha=0.15, linewidth=0.6)
    if panel.zero is not None:
        (axes.axvline if panel.names else axes.axhline)(panel.zero, color=INK, alpha=0.6, linewidth=0.9)
    if panel.names:
        axes.set_ylim(len(panel.names) - 0.35, -0.55)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        for y, name in enumerate(panel.names):
            axes.text(0, y - 0.32, name, transform=axes.get_yaxis_transform(), fontsize=8, va="center")
    else:
        axes.set_ylim(0, ceiling(panel.series))


def ceiling(series: Iterable[Series]) -> float:
    """The upper end of the vertical axis."""
    return 1.08 * max(v for s in series for v in (*s.y, *s.high)) or 1


def _name(axes: Axes, panel: Panel) -> None:
    """Write the names of points, and make room for them to the right of the last point."""
    from matplotlib.transforms import offset_copy

    beside = offset_copy(axes.transData, axes.get_figure(root=True), x=11, units="points")
    line = {
        "arrowstyle": "-",
        "color": INK,
        "alpha": 0.45,
        "linewidth": 0.6,
        "shrinkA": 0,
        "shrinkB": 4,
        "relpos": (0, 0.5),
    }
    for w in panel.words:
        axes.annotate(
            w.text,
            (w.x, w.y),
            (w.beside, w.height),
            textcoords=beside,
            fontsize=7,
            va="center",
            color=INK,
            arrowprops=line,
        )
    if panel.words:
        places = [x for s in panel.series for x in s.x]
        low, high = min(places), max(places)
        span = high / low if high > low else 2.0
        axes.set_xlim(low * span**-0.08, high * span**0.42)


def _inlined(drawn: str, panel: Panel, name: str) -> str:
    """Make matplotlib's SVG an element of a page: without prologue and style sheet, and with ids of its own."""
    body = drawn[drawn.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', body)
    body = re.sub(r'(href="#|url\(#)', rf"\1{name}-", body)
    body = body.replace(INK, "currentColor")
    opening, _, rest = body.partition(">")
    shape = re.search(r'viewBox="[^"]*"', opening)
    assert shape is not None  # matplotlib always writes one
    words = f'<title id="{name}-title">{escape(panel.title)}</title><desc id="{name}-desc">{escape(panel.about)}</desc>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {shape[0]}'
    return f'{head} role="img" aria-labelledby="{name}-title {name}-desc">{words}{rest}'


ALONE = "<style>svg{color:#111}@media(prefers-color-scheme:dark){svg{color:#ddd}}</style></svg>"


def alone(element: str) -> str:
    """The same as a file, with a text colour of its own."""
    return f'<?xml version="1.0" encoding="utf-8"?>\n{element.rstrip().removesuffix("</svg>")}{ALONE}\n'
