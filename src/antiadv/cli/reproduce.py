"""`antiadv reproduce`: run what is missing of a table or figure of the paper, and show ours beside the paper's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiadv.cli import options, show
from antiadv.core.errors import BadInput

if TYPE_CHECKING:
    from antiadv.evaluation import Cell, Store
    from antiadv.paper.fill import Filled
    from antiadv.paper.todo import Missing

KEY = "ours [95 % interval] (the paper's); gains against the bare network, on the same samples"


def command(
    names: Annotated[list[str], typer.Argument(help="table-1 … table-6, figure-3, figure-4, figure-5, text; or all.")],
    samples: Annotated[
        int | None, typer.Option("--samples", min=1, help="So many for each cell, in place of the table's own number.")
    ] = None,
    networks: options.Networks = "zoo",
    directory: Annotated[
        Path | None,
        typer.Option("--dir", "--data", help="Where imported data sets are kept, and resnet50.pt or resnet50-v1.pt."),
    ] = None,
    compiled: options.Compiled = False,
    precision: options.Precision = "float32",
    shard: options.Shard = 250,
    batch: options.Batch = 256,
    runner: options.Runner = "local",
    store: options.StoreFolder = Path("results"),
    device: options.Device = None,
    listed: Annotated[
        bool, typer.Option("--list", help="Show the cells and what is stored of them; run none.")
    ] = False,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Run what is missing of the paper's tables and figures, and show our numbers beside the paper's.

    It resumes, and what is whole in any precision is not run again in another.
    """
    from antiadv import paper
    from antiadv.evaluation import Resources, Store, evaluate, parse_runner
    from antiadv.paper.fill import words
    from antiadv.paper.networks import Source
    from antiadv.paper.todo import as_stored, in_order, passes, resolve
    from antiadv.reporting.wording import count

    asked = list(paper.EXPERIMENTS) if names == ["all"] else list(dict.fromkeys(names))
    source = Source(networks, None if directory is None else str(directory))
    layouts = {name: paper.find(name).layout(source, samples) for name in asked}
    carry_out, resources, facts = parse_runner(runner), Resources(device, compiled=compiled), Store(store)
    asks = in_order(layouts)
    asked_for, missing = resolve(asks, precision, resources)
    cells = [as_stored(cell, facts) for cell in asked_for]
    if listed:
        cost = {ask.words: ask.samples * passes(ask) for ask in asks}
        _list(cells, missing, facts, [cost[words(cell)] for cell in cells], json)
        return
    if not cells:
        raise BadInput(f"none of the {count(len(missing), 'cell')} can be run here: {missing[0].why}")
    if any(set(cell.samples) - facts.done(cell) for cell in cells):
        options.check_here(resources, precision, runner)
    with show.progress(quiet=json) as tell:
        evaluate(cells, facts, shard=shard, batch=batch, runner=carry_out, resources=resources, progress=tell)
    found = {name: paper.filled(name, facts, samples, networks, source.directory) for name in asked}
    if json:
        show.print_json({"store": str(store), "experiments": values(found), "missing": _reasons(missing)})
    else:
        print_filled(found)
        _say_missing(missing)


def print_filled(found: dict[str, Filled]) -> None:
    """Each table with its title, and below it what must be said of it, with every cell that is not stored."""
    from antiadv.reporting.render.terminal import table_for_terminal

    console = show.out()
    for filled in found.values():
        table = filled.table()
        console.print(f"{table.title}: {KEY}", soft_wrap=True)
        console.print(table_for_terminal(table, folded=True))
        for sentence in table.sentences:
            console.print(sentence, soft_wrap=True)
        for what, asks in (("not stored", filled.missing), ("fewer samples than asked for", filled.short)):
            for ask in asks:
                console.print(f"{what}: {ask}", soft_wrap=True)
        console.print()


def values(found: dict[str, Filled]) -> dict[str, Any]:
    """The same as plain values."""
    return {
        name: {**filled.json(), "missing": list(map(str, filled.missing)), "short": list(map(str, filled.short))}
        for name, filled in found.items()
    }


def _list(cells: Sequence[Cell], missing: Sequence[Missing], facts: Store, costs: Sequence[float], json: bool) -> None:
    """A line per cell: what is stored of it, about what it costs, and the command that makes it alone."""
    lines = [
        {
            "stored": len(facts.done(cell) & set(cell.samples)),
            "samples": len(cell.samples),
            "passes": round(cost),
            "command": cell.command,
        }
        for cell, cost in zip(cells, costs, strict=True)
    ]
    if json:
        show.print_json({"cells": lines, "missing": _reasons(missing)})
        return
    head = ("stored", "passes at most", "command")
    texts = [(f"{c['stored']} of {c['samples']}", f"{c['passes']:.1e}", str(c["command"])) for c in lines]
    show.print_table(head, texts)
    _say_missing(missing)


def _reasons(missing: Sequence[Missing]) -> list[dict[str, str]]:
    return [{"cell": str(m.ask), "why": m.why} for m in missing]


def _say_missing(missing: Sequence[Missing]) -> None:

    from antiadv.reporting.wording import count

    for why, n in Counter(m.why for m in missing).items():
        show.out().print(f"{count(n, 'cell')} cannot be run here: {why}", soft_wrap=True)
