"""docs/league.md: which defence to deploy, from the cells and `traffic.json` in `results/league`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from antiadv import defences, models
from antiadv.evaluation import Store
from antiadv.reporting.league_card import cards, pictures
from antiadv.reporting.league_entrants import ENTRANTS, SCORES
from antiadv.reporting.league_stored import TRAFFIC, Facts, cell_of, leagues, read_traffic, sizes
from antiadv.reporting.league_table import League
from antiadv.reporting.render.markdown import table_as_markdown
from antiadv.reporting.wording import count, join
from tools.docs.markdown import render, table, wrap
from tools.run_gate import read_traffic as gate_traffic
from tools.run_league import SAMPLES, Plan, plans

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
        texts |= drawn(made) | cards(made, cell.data, str(cell.threat.ball))
    return {f"{FILES}/{name}": text for name, text in texts.items()}


def drawn(made: League) -> dict[str, str]:
    """The figure of the score attack; `antiadv report` draws all columns."""
    return dict(list(pictures(made).items())[:1]) if SCORES in made.columns else {}


def found(folder: Path) -> list[League]:
    """A league for each network whose weights are those of its card."""
    weights = {models.canonical(card.spec): card.weights for card in models.cards()}
    gate = folder.with_name("gate")
    others = [Store(each) for each in (gate, folder.parent) if each.is_dir()]
    made = leagues(
        Store(folder), *others, traffic=traffic(read_traffic(folder / TRAFFIC), gate_traffic(gate / TRAFFIC))
    )
    return [each for each in made if cell_of(each).weights == weights.get(each.network)]


def traffic(own: Mapping[str, Facts], gate: Mapping[str, Facts]) -> dict[str, Facts]:
    """The clean traffic of both, by network. What the league measured counts before what the gate's runs did."""
    both: dict[str, Facts] = {}
    for plan in plans():
        name = plan.network.name
        mine, other = own.get(name, {}), _entrants(plan, gate.get(name, {}))
        if not mine and not other:
            continue
        both[name] = {
            "weights": mine.get("weights") or gate[name]["weights"],
            "settings": plan.kind,
            "found": {**other, **mine.get("found", {})},
            "refused": mine.get("refused", {}),
            "defences": {entrant: defences.full_text(text) for entrant, text in plan.entrants.items()},
        }
    return both


def _entrants(plan: Plan, facts: Facts) -> dict[str, Facts]:
    """What the runs of docs/gate.md measured of the bare network, the layer and the gated layer."""
    found = {}
    texts = {defences.full_text(text.partition("@")[0]): row for row, text in facts.get("defences", {}).items()}
    for entrant, text in plan.entrants.items():
        seen = facts["found"].get(texts.get(defences.full_text(text), "")) if facts else None
        if seen is not None:
            found[entrant] = _traffic(seen["n"], seen["right"], seen["changed"], seen["alone"])
            found["bare"] = {**_traffic(seen["n"], seen["right_bare"], 0, 1.0), "time": 1.0, "shift": 0.0}
    return found


def _traffic(n: int, right: int, changed: int, passes: float) -> Facts:
    return {"n": n, "right": right, "changed": changed, "passes": passes, "error": None, "shift": None, "time": None}


def few(made: Sequence[League]) -> str:
    """A warning while entrants were not attacked, or with fewer images than planned."""
    told = [f"On `{each.network}`, {said}" for each in made if (said := _missing(each))]
    if not told:
        return ""
    return (
        f"**The league is not complete.** {' '.join(told)} So read what follows as a comparison of the entrants in the "
        "tables, and not as the league's answer. The command at the end of this page runs what is missing, on a GPU."
    )


def _missing(made: League) -> str:
    plan = next(plan for plan in plans() if plan.network.name == made.network)
    sizes_of = {line.name: len(line.cells[SCORES][1]) for line in made.lines if SCORES in line.cells}
    none = [name for name in plan.entrants if name not in sizes_of]
    some = [f"{name} on {n} images only" for name, n in sizes_of.items() if n < SAMPLES]
    parts = [f"the score attack was not run on {join(none)}"] if none else []
    parts += [f"it was run on {join(some)} (on a CPU)"] if some else []
    return f"{' and '.join(parts)}." if parts else ""


def _images(made: League) -> str:
    least, most = sizes(made)
    return f"{most}" if least == most else f"{least} to {most}"


def short(root: Path) -> str:
    """A paragraph for README.md: what the layer gains against score attacks, gated or not, and what it costs."""
    made = [each for each in found(root / "results" / "league") if SCORES in each.bare.cells]
    parts = [part for name in LAYERS if (part := _gains(made, name))]
    attack = made[0].columns[SCORES] if made else ""
    about = f"**Against attackers who compare scores** ({attack}), {'; '.join(parts)}." if parts else ""
    return f"{wrap(f'{about} [The league](docs/league.md) says which defence to deploy.'.lstrip())}\n"


def _gains(made: Sequence[League], name: str) -> str:
    """The range of gains and passes of an entrant. Empty without an attacked one."""
    runs = [(each.gain(line, SCORES), line.passes) for each in made for line in each.lines if line.name == name]
    measured = [(gain.value, passes) for gain, passes in runs if gain is not None and passes is not None]
    if not measured:
        return ""
    gained = _range([f"{100 * value:.1f}" for value, _ in sorted(measured)])
    passes = _range([f"{value:.3g}" for value in sorted(passes for _, passes in measured)])
    return f"the {name} gains {gained} points on {count(len(measured), 'network')}, for {passes} passes per prediction"


def _range(numbers: Sequence[str]) -> str:
    """The first and the last one."""
    return numbers[0] if numbers[0] == numbers[-1] else f"{numbers[0]} to {numbers[-1]}"


def section(made: League) -> str:
    clean = next((line.traffic.n for line in made.lines if line.traffic is not None), 0)
    about = (
        f"Settings for {made.settings} networks, `{cell_of(made).threat.ball}`. Attacked: {_images(made)} images. "
        f"Clean: {clean or 'no'} images."
    )
    fronts = [{"attacker": words, "front": front(made, c)} for c, words in made.columns.items()]
    parts = [f"### `{made.network}`\n", wrap(about) + "\n", table_as_markdown(made.table, trusted=True)]
    shown = [f"![Robust accuracy against passes, {made.network}](league/{name})\n" for name in drawn(made)]
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
