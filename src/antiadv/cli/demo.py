"""`antiadv demo`: the main job on what comes with the package, in under three minutes on two cores."""

from __future__ import annotations

from pathlib import Path

from antiadv.cli import options, show
from antiadv.evaluate import Cell, Store, World, evaluate, make_cell
from antiadv.report.table import rows
from antiadv.report.verdict import verdict

MODEL, DEFENCE = "compact:trades", "anti_adversary"
ATTACKS = (("square", "linf:8/255,queries=100"), ("pgd", "linf:8/255"), ("transfer", "linf:8/255"))
SAMPLES = range(64)


def cells(world: World) -> list[Cell]:
    """A robust network, bare and behind the layer, under an attacker who asks, one with gradients, one with it all."""
    return [
        make_cell(model=MODEL, defence=defence, attack=attack, threat=threat, samples=SAMPLES, world=world)
        for attack, threat in ATTACKS
        for defence in ("none", DEFENCE)
    ]


def command(
    store: options.StoreFolder = Path("store/demo"),
    device: options.Device = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Attack a robust network, bare and behind the anti-adversary layer, and compare. Run again: it resumes."""
    world, facts = World(device), Store(store)
    todo = cells(world)
    with show.progress(quiet=json) as tell:
        evaluate(todo, facts, shard=32, world=world, progress=tell)
    found = rows(facts, todo)
    if json:
        show.print_json({"store": str(store), "rows": [r.json() for r in found], "verdict": verdict(found)})
    else:
        show.print_rows(
            found, [*verdict(found), f"Results lie in {store}; antiadv report --store {store} shows them again."]
        )
