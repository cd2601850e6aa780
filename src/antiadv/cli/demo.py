"""`antiadv demo`: compare a robust network with and without the layer, in under a minute on two cores."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from antiadv.cli import options, show

if TYPE_CHECKING:
    from antiadv.evaluation import Cell, Resources

MODEL, DEFENCE = "compact:trades", "anti_adversary"
ATTACKS = (("square", "linf:8/255,queries=100"), ("pgd", "linf:8/255"), ("transfer", "linf:8/255"))
SAMPLES = range(64)


def cells(resources: Resources) -> list[Cell]:
    """Return the cells: a score-based, a gradient-based and a transfer attack, without and with the layer."""
    from antiadv.evaluation import make_cell

    return [
        make_cell(model=MODEL, defence=defence, attack=attack, threat=threat, samples=SAMPLES, resources=resources)
        for attack, threat in ATTACKS
        for defence in ("none", DEFENCE)
    ]


def command(
    store: options.StoreFolder = Path("store/demo"),
    device: options.Device = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show what the layer does, in under a minute.

    Attacks a robust network without and with the anti-adversary layer, and compares. Run it again to resume.
    """
    from antiadv.evaluation import Resources, Store, evaluate
    from antiadv.reporting import report_of
    from antiadv.reporting.rows import rows

    resources, facts = Resources(device), Store(store)
    todo = cells(resources)
    with show.progress(quiet=json) as tell:
        evaluate(todo, facts, shard=len(SAMPLES), resources=resources, progress=tell)
    made = report_of(rows(facts, todo))
    if json:
        show.print_json({"store": str(store), **made.json()})
    else:
        where = f"Results are in {store}; antiadv report --store {shlex.quote(str(store))} shows them again."
        show.print_rows(made.rows, [*made.sentences, where])
