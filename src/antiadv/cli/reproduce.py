"""`antiadv reproduce`: run the missing cells of the paper's tables, and show our numbers next to the paper's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiadv.cli import options, show
from antiadv.core.errors import BadInput

if TYPE_CHECKING:
    from antiadv.evaluation import Cell, Resources, Store
    from antiadv.paper.filled_table import FilledTable
    from antiadv.paper.missing_cells import Missing
    from antiadv.paper.table_layout import CellRequest

KEY = "ours [95 % interval] (the paper's); gains against the bare network, on the same samples"


def command(
    names: Annotated[list[str], typer.Argument(help="table-1 … table-6, figure-3, figure-4, figure-5, text; or all.")],
    samples: Annotated[
        int | None, typer.Option("--samples", min=1, help="Samples of each cell, instead of the table's own number.")
    ] = None,
    networks: options.Networks = "zoo",
    directory: Annotated[
        Path | None,
        typer.Option("--dir", "--data", help="The folder of imported data sets, and of resnet50.pt or resnet50-v1.pt."),
    ] = None,
    compiled: options.Compiled = options.AUTO,
    precision: options.Precision = options.AUTO,
    shard: options.Shard = None,
    batch: options.Batch = None,
    runner: options.Runner = "local",
    store: options.StoreFolder = Path("results"),
    device: options.Device = None,
    listed: Annotated[
        bool, typer.Option("--list", help="Run nothing. Show the cells and how much of each is stored.")
    ] = False,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Run the paper's tables, and compare the numbers.

    Runs what is missing of these tables and figures, and prints our numbers next to the paper's. Run the same command
    again to resume. A cell that is complete in one precision is not run again in another.
    """
    from antiadv import paper
    from antiadv.evaluation import Resources, Store, evaluate, parse_runner
    from antiadv.paper.missing_cells import as_stored, in_order, resolve

    experiments = list(paper.EXPERIMENTS) if names == ["all"] else list(dict.fromkeys(names))
    source = paper.Source(networks, None if directory is None else str(directory))
    requests = in_order({name: paper.find(name).layout(source, samples) for name in experiments})
    parse_runner(runner)  # its errors come first
    resources, facts = Resources(device, compiled=options.compiled(compiled)), Store(store)
    possible, missing = resolve(requests, precision, resources)
    cells = [as_stored(cell, facts) for cell in possible]
    if listed:
        _list(cells, missing, facts, requests, json)
        return
    _check(cells, missing, facts, resources, precision, runner)
    with show.progress(quiet=json) as tell:
        evaluate(cells, facts, shard=shard, batch=batch, runner=runner, resources=resources, progress=tell)
    tables = {name: paper.filled(name, facts, samples, networks, source.directory) for name in experiments}
    if json:
        show.print_json({"store": str(store), "experiments": values(tables), "missing": _reasons(missing)})
    else:
        print_filled(tables)
        _print_missing(missing)


def _check(
    cells: Sequence[Cell], missing: Sequence[Missing], facts: Store, resources: Resources, precision: str, runner: str
) -> None:
    """Stop before anything is run if no cell can be run, or not in this precision on this device."""
    from antiadv.reporting.wording import count

    if not cells:
        raise BadInput(f"none of the {count(len(missing), 'cell')} can be run here: {missing[0].why}")
    if any(set(cell.samples) - facts.done(cell) for cell in cells):
        options.check_here(resources, precision, runner)


def print_filled(tables: dict[str, FilledTable]) -> None:
    """Print each table with its title and notes, and name every cell that is not stored."""
    from antiadv.reporting.render.terminal import table_for_terminal

    console = show.out()
    for filled in tables.values():
        table = filled.table()
        console.print(f"{table.title}: {KEY}", soft_wrap=True)
        console.print(table_for_terminal(table, folded=True))
        for sentence in table.sentences:
            console.print(sentence, soft_wrap=True)
        for text, requests in (("not stored", filled.missing), ("fewer samples than needed", filled.short)):
            for request in requests:
                console.print(f"{text}: {request}", soft_wrap=True)
        console.print()


def values(tables: dict[str, FilledTable]) -> dict[str, Any]:
    """The tables as plain values, for JSON."""
    return {
        name: {**filled.json(), "missing": list(map(str, filled.missing)), "short": list(map(str, filled.short))}
        for name, filled in tables.items()
    }


def _list(
    cells: Sequence[Cell], missing: Sequence[Missing], facts: Store, requests: Sequence[CellRequest], json: bool
) -> None:
    """Print a line per cell: how much is stored, what it costs at most, and the command that runs it alone."""
    from antiadv.paper.cost import passes
    from antiadv.paper.store_index import names_of

    costs = {request.names: request.samples * passes(request) for request in requests}
    lines = [
        {
            "stored": len(facts.done(cell) & set(cell.samples)),
            "samples": len(cell.samples),
            "passes": round(costs[names_of(cell)]),
            "command": cell.command,
        }
        for cell in cells
    ]
    if json:
        show.print_json({"cells": lines, "missing": _reasons(missing)})
        return
    head = ("stored", "passes at most", "command")
    texts = [(f"{c['stored']} of {c['samples']}", f"{c['passes']:.1e}", str(c["command"])) for c in lines]
    show.print_table(head, texts)
    _print_missing(missing)


def _reasons(missing: Sequence[Missing]) -> list[dict[str, str]]:
    return [{"cell": str(m.request), "why": m.why} for m in missing]


def _print_missing(missing: Sequence[Missing]) -> None:
    from antiadv.reporting.wording import count

    for why, n in Counter(m.why for m in missing).items():
        show.out().print(f"{count(n, 'cell')} cannot be run here: {why}", soft_wrap=True)
