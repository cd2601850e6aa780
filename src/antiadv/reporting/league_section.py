"""The league's part of a report: a table and a figure for each network, and which defence to deploy.

league_section(store)   →  Section, which `build_document` takes; empty for a store without a league
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from antiadv.evaluation.store import Store
from antiadv.reporting.document import Section, Shown
from antiadv.reporting.league_figure import fronts, slug
from antiadv.reporting.league_stored import leagues
from antiadv.reporting.league_table import League


def league_section(store: Store) -> Section:
    made = leagues(store)
    return Section(
        sentences=tuple(text for each in made for text in each.sentences),
        tables=tuple(map(_shown, made)),
        figures=tuple(figure for each in made if (figure := fronts(each)) is not None),
    )


def _shown(made: League) -> Shown:
    title = f"League: {made.network}"
    table = dataclasses.replace(made.table, name=slug(made), title=title, sentences=tuple(made.notes))
    return Shown(table, f"antiadv league --model {made.network}", tuple(_keys(made)))


def _keys(made: League) -> Iterator[str]:
    for line in made.lines:
        yield from (cell.key for cell, _ in line.cells.values())
