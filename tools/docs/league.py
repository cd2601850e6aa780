"""docs/league.md: which defence to deploy, from the cells and `traffic.json` in `results/league`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from antiadv import attacks, defences, models
from antiadv.evaluation import Store
from antiadv.reporting.league import described
from antiadv.reporting.league_entrants import ENTRANTS
from antiadv.reporting.league_table import League, Line, Read
from antiadv.reporting.league_traffic import Traffic
from antiadv.reporting.render.markdown import table_as_markdown
from antiadv.reporting.select import rank
from tools.docs.markdown import render, table, wrap
from tools.run_league import ATTACKS, TRAFFIC, Plan, plans, read_traffic

NOTHING = "**Nothing is stored yet.** Run the command at the end of this page, then `make docs`."
LAYERS = ("layer", "gated layer")

Found = dict[tuple[str, str], Read]  # by the full texts of defence and attack


def page(root: Path) -> str:
    leagues = found(root / "results" / "league")
    return render(
        "league",
        deploy="\n\n".join(wrap(" ".join(made.sentences)) for made in leagues) or NOTHING,
        layer="\n\n".join(wrap(where(made)) for made in leagues) or NOTHING,
        tables="\n".join(section(made) for made in leagues) or NOTHING + "\n",
        settings=table(settings()),
    )


def found(folder: Path) -> list[League]:
    """A league for each network of which the bare cell under some attack is stored."""
    traffic, cells = read_traffic(folder / TRAFFIC), stored(folder)
    weights = {models.canonical(card.spec): card.weights for card in models.cards()}
    made = []
    for plan in plans():
        name = plan.network.name
        facts = traffic.get(name, {})
        seen = facts.get("found", {}) if facts.get("weights") == weights.get(name) else {}
        of_plan = league(
            plan, {k: Traffic(**v) for k, v in seen.items()}, cells.get((name, weights.get(name) or ""), {})
        )
        if of_plan.bare.cells:
            made.append(of_plan)
    return made


def stored(folder: Path) -> dict[tuple[str, str], Found]:
    """Cells with their records, by network and weights. Of several precisions the best counts."""
    cells: dict[tuple[str, str], Found] = {}
    store = Store(folder)
    for cell in store.cells() if folder.is_dir() else []:
        kept = cells.setdefault((models.canonical(cell.model), cell.weights), {})
        key = defences.full_text(cell.defence), attacks.full_text(attacks.parse(cell.attack))
        read = cell, store.read(cell)
        if read[1] and (key not in kept or rank(*read) > rank(*kept[key])):
            kept[key] = read
    return cells


def league(plan: Plan, traffic: dict[str, Traffic], cells: Found) -> League:
    texts = {column: attacks.full_text(attacks.parse(text)) for column, text in ATTACKS.items()}

    def line(name: str, spec: str) -> Line:
        full = defences.full_text(spec)
        kept = {c: cells[full, text] for c, text in texts.items() if (full, text) in cells}
        return Line(name, spec, traffic.get(name), kept)

    lines = [line(*item) for item in plan.entrants.items()]
    shown = [made for made in lines if made.cells or made.spec == defences.BARE]
    ran = {c: read[0] for made in reversed(shown) for c, read in made.cells.items()}
    used = {c: described(cell.attack, cell.threat) for c in ATTACKS if (cell := ran.get(c)) is not None}
    return League(plan.network.name, tuple(shown), used, settings=plan.kind)


def section(made: League) -> str:
    sizes = {len(records) for line in made.lines for _, records in line.cells.values()}
    images = f"{min(sizes)}" if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)}"
    clean = next((line.traffic.n for line in made.lines if line.traffic is not None), 0)
    radius = next(str(cell.threat.ball) for cell, _ in made.bare.cells.values())
    about = (
        f"Settings for {made.settings} networks, `{radius}`. Attacked: {images} images. Clean: {clean or 'no'} images."
    )
    fronts = [{"attacker": words, "front": front(made, c)} for c, words in made.columns.items()]
    parts = [f"### `{made.network}`\n", wrap(about) + "\n", table_as_markdown(made.table, trusted=True)]
    return "\n".join([*parts, "The Pareto fronts of passes against robust accuracy, cheapest first:\n", table(fronts)])


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
