"""The headline of README.md: table 3 in short, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from antiadv.evaluation.store import Store
from antiadv.paper import table_3
from antiadv.paper.filled_table import fill
from antiadv.paper.networks import Source
from antiadv.paper.store_index import StoreIndex
from antiadv.paper.table_layout import Line
from antiadv.reporting.render.markdown import table_as_markdown
from antiadv.reporting.select import searched
from antiadv.reporting.table import Number, text_table
from antiadv.reporting.wording import NOTHING, count

HEAD = ("network", "n", "clean", "AutoAttack", "gain [95 %] (paper)", "adaptive", "gain [95 %]")
Numbers = Mapping[str, Number]


def headline(store: Store | str | Path) -> str:
    """Clean accuracy, AutoAttack and the adaptive attack for each network, bare → with the layer.

    A network has a line if its cells under AutoAttack are stored, without and with the layer. The others are counted.
    """
    filled = fill(table_3.layout(Source()), StoreIndex(Store.of(store)))
    lines = list(zip(filled.layout.lines, filled.numbers, strict=True))
    networks = [(line, f, g) for (_, f), (line, g) in zip(lines[::2], lines[1::2], strict=True)]
    complete = [(line, f, g) for line, f, g in networks if g["AA gain"].ours is not None]
    stored = f"{len(filled.used)} of {count(len(filled.layout.requests), 'cell')} are stored"
    if not complete:
        return f"No network of table 3 is complete yet ({stored}). Run `antiadv reproduce table-3`.\n"
    more = "" if len(complete) == len(networks) else f" {len(complete)} of {len(networks)} networks so far: {stored}."
    shown = {line.network.name for line, _, _ in complete}
    precision = searched(cell for cell in filled.used if cell.model in shown)
    note = f"In per cent and points, bare → with the layer (K = 2, α = 0.15), Linf 8/255. {precision}{more}"
    return f"{table_as_markdown(text_table(HEAD, [_row(*each) for each in complete]))}\n{note}\n"


def _row(line: Line, f: Numbers, g: Numbers) -> tuple[str, ...]:
    gain = g["AA gain"]
    n = NOTHING if gain.ours is None else f"{gain.ours.n}"
    cells = _arrow(f, g, "clean"), _arrow(f, g, "AA"), str(gain), _arrow(f, g, "adaptive"), str(g["adaptive gain"])
    return f"`{line.network.name}`", n, *cells


def _arrow(bare: Numbers, defended: Numbers, heading: str) -> str:
    """`44.1 → 68.0`"""
    return " → ".join(numbers[heading].text for numbers in (bare, defended))
