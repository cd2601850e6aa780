"""A card for each line of a league, with the fields of RobustBench's model cards. All values are text.

RobustBench does not rank defences that work at test time, so these cards are not entries of its board. `autoattack_acc`
is AutoAttack's robust accuracy there. Here it is the accuracy under the attack that knows the defence, which begins
with `fast`, the project's stand-in for AutoAttack; the footnote says so.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from antiadv import __version__
from antiadv.core.errors import MissingExtra
from antiadv.core.files import atomic_write
from antiadv.reporting.figures import alone, draw
from antiadv.reporting.league_entrants import ADAPTIVE, SCORES
from antiadv.reporting.league_figure import fronts
from antiadv.reporting.league_table import HIDES, League, Line

FIELDS = (
    *("link", "name", "authors", "additional_data", "number_forward_passes", "dataset", "venue", "architecture", "eps"),
    *("clean_acc", "reported", "autoattack_acc", "external", "footnote", "unreliable"),
)


def card(league: League, line: Line, data: str, eps: str) -> dict[str, str]:
    """The card of one line. What is not known is an empty text."""
    left, seen = line.robust(ADAPTIVE), line.traffic
    values = {
        "name": f"{league.network} with {line.spec}" if line is not league.bare else league.network,
        "number_forward_passes": "" if seen is None else f"{seen.passes:.2f}",
        "dataset": data,
        "venue": f"antiadv {__version__}",
        "architecture": league.network.partition(":")[0],
        "eps": eps,
        "clean_acc": "" if line.clean is None else f"{100 * line.clean.value:.2f}",
        "autoattack_acc": "" if left is None else f"{100 * left.value:.2f}",
        "footnote": _footnote(league, line),
        "unreliable": str(league.label(line) == HIDES).lower(),
    }
    return {name: values.get(name, "") for name in FIELDS}


def _footnote(league: League, line: Line) -> str:
    told = ["autoattack_acc is empty: the attack that knows the defence was not run"]
    if line.robust(ADAPTIVE) is not None:
        told = [f"autoattack_acc is under {league.columns[ADAPTIVE]}"]
    gain, label = league.gain(line, SCORES), league.label(line)
    if gain is not None:
        told.append(f"gain under {league.columns[SCORES]}: {gain.points} points")
    return "; ".join([*told, *([label] if label else [])])


def cards(league: League, data: str, eps: str) -> dict[str, str]:
    """The text of each card, by the name of its file."""
    names = {
        line.name: re.sub(r"[^A-Za-z0-9]+", "-", f"{league.network}-{line.name}").strip("-") for line in league.lines
    }
    made = {names[line.name]: card(league, line, data, eps) for line in league.lines}
    return {f"{name}.json": json.dumps(told, indent=1) + "\n" for name, told in made.items()}


def write(league: League, folder: Path, data: str, eps: str) -> list[Path]:
    """Write league.json, a card for each line, and figures where matplotlib is installed. Returns the paths."""
    texts = {"league.json": json.dumps(league.json(), indent=1) + "\n", **cards(league, data, eps), **pictures(league)}
    for name, text in texts.items():
        with atomic_write(folder / name) as part:
            part.write_text(text)
    return [folder / name for name in texts]


def pictures(league: League) -> dict[str, str]:
    """The figure of cost against robustness as SVG, a file for each column; none without matplotlib."""
    figure = fronts(league)
    try:
        drawn = draw([figure] if figure is not None else [])
    except MissingExtra:
        return {}
    return {f"{name}.svg": alone(element) for name, element in drawn.items()}
