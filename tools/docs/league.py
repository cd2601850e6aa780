"""docs/league.md: which defence to deploy, from the cells and `traffic.json` in `results/league`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from antiadv import defences, models
from antiadv.evaluation import Store
from antiadv.evaluation.certify_stored import stored_runs
from antiadv.reporting.league_card import cards, pictures
from antiadv.reporting.league_entrants import COLUMNS, ENTRANTS, SCORES
from antiadv.reporting.league_stored import cell_of, leagues, sizes
from antiadv.reporting.league_table import League, Place
from antiadv.reporting.measures import Share
from antiadv.reporting.render.markdown import table_as_markdown
from antiadv.reporting.wording import count, join
from tools.docs.markdown import render, table, wrap
from tools.run_league import SAMPLES, plans

NOTHING = "**Nothing is stored yet.** Run the command at the end of this page, then `make docs`."
LAYERS = ("layer", "gated layer")
RADII = 0.0, 0.1, 0.25, 0.5
FRONT, SURELY, PERHAPS = "on the front", "surely dominated", "dominated, but within the error,"
BEATEN = (
    "*Beaten*: a defence that needs no more passes, and loses at most one point of clean accuracy, is surely more "
    "robust."
)
MEANS = {
    "scores": "compares scores (Square)",
    "labels": "sees labels (RayS)",
    "gradients": "has gradients (APGD)",
    "adaptive": "knows the defence (adaptive)",
}
FILES = "docs/league"  # of the figures and the cards


def page(root: Path) -> str:
    made = found(root)
    return render(
        "league",
        deploy="\n\n".join(wrap(" ".join(each.sentences)) for each in made) or NOTHING,
        answer=answer(made),
        few=few(made),
        layer=where(made) if made else NOTHING + "\n",
        floor=floor(root / "results" / "certify"),
        tables="\n".join(map(section, made)) or NOTHING + "\n",
        settings=table(settings()),
    )


def files(root: Path) -> dict[str, str]:
    """The figures, and a card for each line."""
    texts: dict[str, str] = {}
    for made in found(root):
        cell = cell_of(made)
        texts |= drawn(made) | cards(made, cell.data, str(cell.threat.ball))
    return {f"{FILES}/{name}": text for name, text in texts.items()}


def drawn(made: League) -> dict[str, str]:
    """The figure of the score attack; `antiadv report` draws all columns."""
    return dict(list(pictures(made).items())[:1]) if SCORES in made.columns else {}


def found(root: Path) -> list[League]:
    """A league for each network whose weights are those of its card."""
    weights = {models.canonical(card.spec): card.weights for card in models.cards()}
    return [made for made in leagues(Store(root / "results")) if cell_of(made).weights == weights.get(made.network)]


def answer(made: Sequence[League]) -> str:
    """The first sentence: whether a defence that is no dearer than the layer does better against score attacks."""
    parts = []
    for name in LAYERS:
        if places := _met(made, name, SCORES):
            rivals = _rivals(places)
            which = "; ".join(f"{rival} on {join(networks)}" for rival, networks in rivals.items())
            parts.append(f"the {name} is beaten on {_share(rivals, places)}{f' ({which})' if which else ''}")
    return wrap(f"**In short.** Against attackers who compare scores, {join(parts)}. {BEATEN}") if parts else ""


def _met(made: Sequence[League], name: str, column: str) -> list[tuple[str, Place]]:
    """Where an entrant lies against one attacker, by network."""
    met = [(each, line) for each in made for line in each.lines if line.name == name]
    return [(each.network, place) for each, line in met if (place := each.place(line, column)) is not None]


def _rivals(places: Sequence[tuple[str, Place]]) -> dict[str, list[str]]:
    """The rivals that are surely better, and on which networks."""
    by: dict[str, list[str]] = {}
    for network, place in places:
        if place.settled and not place.on_front:
            flat = " (its gradient is zero)" if place.flat else ""
            by.setdefault(f"`{place.rival}`{flat}", []).append(f"`{network}`")
    return by


def _share(rivals: dict[str, list[str]], places: Sequence[tuple[str, Place]]) -> str:
    return f"{sum(map(len, rivals.values()))} of {count(len(places), 'network')}"


def few(made: Sequence[League]) -> str:
    """What was not attacked, or with fewer images than planned."""
    lines = [f"- {said}" for each in made for said in (_missing(each), _small(each)) if said]
    return "\n".join(wrap(line, "  ") for line in lines) or "- Nothing."


def _missing(made: League) -> str:
    plan = next(plan for plan in plans() if plan.network.name == made.network)
    lacking: dict[str, list[str]] = {}
    for column in COLUMNS:
        have = {line.name for line in made.lines if column in line.cells}
        if none := [name for name in plan.entrants if name not in have]:
            lacking.setdefault(join(none), []).append(column)
    parts = [f"{join(columns)} for {names}" for names, columns in lacking.items()]
    return f"On `{made.network}` these attacks are missing: {'; '.join(parts)}." if parts else ""


def _small(made: League) -> str:
    sizes_of: dict[int, list[str]] = {}
    for line in made.lines:
        if SCORES in line.cells:
            sizes_of.setdefault(len(line.cells[SCORES][1]), []).append(line.name)
    usual = max(sizes_of, key=lambda n: len(sizes_of[n]), default=SAMPLES)
    if usual >= SAMPLES:
        return ""
    others = [f"{n} for {join(names)}" for n, names in sizes_of.items() if n < usual]
    return f"On `{made.network}` the attacks had {usual} images{f' ({join(others)})' if others else ''}."


def _images(made: League) -> str:
    least, most = sizes(made)
    return f"{most}" if least == most else f"{least} to {most}"


def short(root: Path) -> str:
    """A part for README.md: what the layer gains against each attacker, gated or not, and where another is stronger."""
    rows = [row for column in COLUMNS if (row := _worth(found(root), column))]
    about = "**Other defences.** [The league](docs/league.md) says which defence to deploy."
    if not rows:
        return wrap(about) + "\n"
    about += (
        " The table has the smallest and the largest gain of the layer on its networks, in points. *Better* "
        "counts the networks on which another defence is surely more robust, needs no more passes, and loses at most "
        "one point of clean accuracy."
    )
    return wrap(about) + "\n\n" + table(rows)


def _worth(made: Sequence[League], column: str) -> dict[str, str]:
    """What the layer and the gated layer gain against one attacker. Empty if the layer did not meet it."""
    layer, gated = (_gains(made, name, column) for name in LAYERS)
    if not layer:
        return {}
    places = _met(made, LAYERS[0], column)
    rivals = _rivals(places)
    better = {"better": _share(rivals, places), "which": join(list(rivals)) if rivals else ""}
    return {"attacker": MEANS[column], "layer": layer, "gated layer": gated, **better}


def _gains(made: Sequence[League], name: str, column: str) -> str:
    """The range of gains of an entrant. Empty if it was not attacked."""
    runs = [each.gain(line, column) for each in made for line in each.lines if line.name == name]
    return _range([f"{100 * gain:+.1f}" for gain in sorted(run.value for run in runs if run is not None)])


def _range(numbers: Sequence[str]) -> str:
    """The first and the last one; nothing if there are none."""
    return " to ".join(dict.fromkeys([*numbers[:1], *numbers[-1:]]))


def section(made: League) -> str:
    clean = next((line.traffic.n for line in made.lines if line.traffic is not None), 0)
    about = (
        f"Settings for {made.settings} networks, `{cell_of(made).threat.ball}`. Attacked: {_images(made)} images. "
        f"Clean: {clean or 'no'} images."
    )
    fronts = [{"attacker": words, "front": front(made, c)} for c, words in made.columns.items()]
    parts = [f"### `{made.network}`\n", wrap(about) + "\n", table_as_markdown(made.table, trusted=True)]
    shown = [f"![Robust accuracy against passes, {made.network}](league/{name})\n" for name in drawn(made)]
    parts += [wrap(made.earlier) + "\n"] if made.earlier else []
    return "\n".join(
        [*parts, "The Pareto fronts of passes against robust accuracy, cheapest first:\n", table(fronts), *shown]
    )


def front(made: League, column: str) -> str:
    shown = [(line, line.robust(column)) for line in made.front(column)]
    return "; ".join(f"{line.name} ({line.passes:g} passes, {robust})" for line, robust in shown if robust) or "–"


def where(made: Sequence[League]) -> str:
    """Where the layer, gated or not, lies: in words, and for each network and attacker."""
    return "\n".join([*(wrap(_told(made, name)) + "\n" for name in LAYERS), table(_places(made))])


def _places(made: Sequence[League]) -> list[dict[str, str]]:
    rows = []
    for each in made:
        for column, words in each.columns.items():
            found = {line.name: place for line in each.lines if (place := each.place(line, column)) is not None}
            if set(LAYERS) & set(found):
                row = {"network": f"`{each.network}`", "attacker": words, "entrants": str(len(found))}
                rows.append(row | {name: str(found.get(name, "–")) for name in LAYERS})
    return rows


def _told(made: Sequence[League], name: str) -> str:
    """On which networks, against which attackers, an entrant is on the front, and where it is dominated."""
    lies: dict[str, list[str]] = {}
    for each in made:
        (line,) = (line for line in each.lines if line.name == name)
        by: dict[str, list[str]] = {}
        for column in each.columns:
            if (place := each.place(line, column)) is not None:
                kind = FRONT if place.on_front else SURELY if place.settled else PERHAPS
                by.setdefault(kind, []).append(column.replace(",", " of"))
        for kind, columns in by.items():
            lies.setdefault(kind, []).append(f"`{each.network}` against {join(columns)}")
    parts = [f"It is {kind} on {'; '.join(lies[kind])}." for kind in (FRONT, SURELY, PERHAPS) if kind in lies]
    return f"**The {name}.** {' '.join(parts)}"


def floor(folder: Path) -> str:
    """Certified accuracy of the networks in this folder, at each radius."""
    rows = []
    for identity, made in stored_runs(folder):
        who = {"network": f"`{identity['model']}`", "std": f"{made.setting.std:g}", "images": str(len(made.records))}
        shares = {f"{p.radius:g}": str(Share(p.certified, p.low, p.high, len(made.records))) for p in made.curve(RADII)}
        rows.append(who | shares | {"no certificate": str(made.abstained)})
    return table(rows) if rows else NOTHING + "\n"


def settings() -> Sequence[dict[str, str]]:
    known = {
        name: s for name, s in ENTRANTS.items() if s.robust.partition(":")[0] in {*defences.DEFENCES, defences.BARE}
    }
    return [
        {"entrant": name, "on standard networks": f"`{s.standard}`", "on robust networks": f"`{s.robust}`"}
        for name, s in known.items()
    ]
