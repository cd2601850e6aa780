"""docs/league.md: which defence to deploy, from the cells and `traffic.json` in `results/league`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from antiadv import defences, models
from antiadv.evaluation import Store
from antiadv.reporting.league_card import cards, pictures
from antiadv.reporting.league_entrants import ENTRANTS
from antiadv.reporting.league_stored import cell_of, leagues, sizes
from antiadv.reporting.league_table import League
from antiadv.reporting.render.markdown import table_as_markdown
from tools.docs.markdown import render, table, wrap
from tools.run_league import SAMPLES

NOTHING = "**Nothing is stored yet.** Run the command at the end of this page, then `make docs`."
LAYERS = ("layer", "gated layer")
FILES = "docs/league"  # of the figures and the cards


def page(root: Path) -> str:
    made = found(root / "results" / "league")
    return render(
        "league",
        deploy="\n\n".join(wrap(" ".join(each.sentences)) for each in made) or NOTHING,
        few=f"{wrap(few(made))}\n\n" if few(made) else "",
        layer="\n\n".join(wrap(where(each)) for each in made) or NOTHING,
        tables="\n".join(map(section, made)) or NOTHING + "\n",
        settings=table(settings()),
    )


def files(root: Path) -> dict[str, str]:
    """The figures, and a card for each line."""
    texts: dict[str, str] = {}
    for made in found(root / "results" / "league"):
        cell = cell_of(made)
        texts |= pictures(made) | cards(made, cell.data, str(cell.threat.ball))
    return {f"{FILES}/{name}": text for name, text in texts.items()}


def found(folder: Path) -> list[League]:
    """A league for each network whose weights are those of its card."""
    weights = {models.canonical(card.spec): card.weights for card in models.cards()}
    made = leagues(Store(folder)) if folder.is_dir() else []
    return [each for each in made if cell_of(each).weights == weights.get(each.network)]


def few(made: Sequence[League]) -> str:
    """A warning while cells have fewer images than were planned."""
    short = [each for each in made if sizes(each)[0] < SAMPLES]
    if not short:
        return ""
    told = "; ".join(f"`{each.network}`: {_images(each)} images" for each in short)
    return (
        f"**These are small runs on a CPU** ({told}), with {', '.join(budgets(short))}. Many differences are not "
        f"settled by so few images. Runs of {SAMPLES} images with 1,000 queries on a GPU are the next step. The command "
        "at the end of this page makes them; the page then shows them in place of these."
    )


def budgets(made: Sequence[League]) -> list[str]:
    most = {cell.threat.queries for each in made for line in each.lines for cell, _ in line.cells.values()}
    return [f"{queries:,} queries" for queries in sorted(q for q in most if q is not None)]


def _images(made: League) -> str:
    least, most = sizes(made)
    return f"{most}" if least == most else f"{least} to {most}"


def section(made: League) -> str:
    clean = next((line.traffic.n for line in made.lines if line.traffic is not None), 0)
    about = (
        f"Settings for {made.settings} networks, `{cell_of(made).threat.ball}`. Attacked: {_images(made)} images. "
        f"Clean: {clean or 'no'} images."
    )
    fronts = [{"attacker": words, "front": front(made, c)} for c, words in made.columns.items()]
    parts = [f"### `{made.network}`\n", wrap(about) + "\n", table_as_markdown(made.table, trusted=True)]
    drawn = [f"![{name.removesuffix('.svg')}](league/{name})" for name in pictures(made)]
    shown = ["\n".join(drawn) + "\n"] if drawn else []
    return "\n".join(
        [*parts, "The Pareto fronts of passes against robust accuracy, cheapest first:\n", table(fronts), *shown]
    )


def front(made: League, column: str) -> str:
    shown = [(line, line.robust(column)) for line in made.front(column)]
    return "; ".join(f"{line.name} ({line.passes:g} passes, {robust})" for line, robust in shown if robust) or "–"


def where(made: League) -> str:
    """Where the layer, gated or not, lies in each column."""
    told = []
    for line in made.lines:
        if line.name in LAYERS:
            places = {column: made.place(line, column) for column in made.columns}
            said = "; ".join(f"{column}: {place}" for column, place in places.items() if place is not None)
            told.append(f"*{line.name}*: {said or 'nothing is stored'}.")
    return f"On `{made.network}`, {' '.join(told)}"


def settings() -> Sequence[dict[str, str]]:
    known = {
        name: s for name, s in ENTRANTS.items() if s.robust.partition(":")[0] in {*defences.DEFENCES, defences.BARE}
    }
    return [
        {"entrant": name, "on standard networks": f"`{s.standard}`", "on robust networks": f"`{s.robust}`"}
        for name, s in known.items()
    ]
