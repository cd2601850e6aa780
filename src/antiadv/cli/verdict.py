"""`antiadv verdict`: what a defence is worth on a model, in one command and a few minutes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiadv.cli import options, show
from antiadv.core.errors import BadInput

if TYPE_CHECKING:
    from antiadv.evaluation import Cell

FEW = 64  # samples


def command(
    model: options.Model = "compact:trades",
    defence: options.Defence = "anti_adversary",
    data: options.Data = "cifar10",
    samples: Annotated[
        str | None,
        typer.Option("--samples", help="Which samples, START:STOP.", show_default=f"the first {FEW}, or all"),
    ] = None,
    minutes: Annotated[float, typer.Option("--minutes", help="Take as many of the samples as fit into this.")] = 5.0,
    threat: options.Threat = "linf:8/255",
    batch: options.Batch = 256,
    seed: options.Seed = 0,
    store: options.StoreFolder = Path("store/verdict"),
    device: options.Device = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Attack a model, bare and behind a defence, at three levels of access; show gains, warning signs, the verdict."""
    from antiadv import defences
    from antiadv.core.defence import Defence
    from antiadv.core.threat import Access, parse_threat
    from antiadv.evaluation import Resources, Store, evaluate, make_cell
    from antiadv.evaluation.cell import parse_samples
    from antiadv.reporting import report_of
    from antiadv.reporting.rows import rows
    from antiadv.reporting.trial import (
        LOOKED_AT,
        Verdict,
        battery,
        check_minutes,
        cost,
        doubts,
        flagged,
        rounds,
        scaled,
    )

    start = time.monotonic()
    check_minutes(minutes)
    resources, facts = Resources(device), Store(store)
    asked = resources.data(data).ids[:FEW] if samples is None else parse_samples(samples)
    defended = resources.defended(model, defence)
    if not isinstance(defended, Defence):
        raise BadInput("a verdict compares a defence with the bare classifier; name one, for example anti_adversary.")
    limits = parse_threat(threat, Access.SCORES)
    if limits.targeted:
        raise BadInput("a verdict is on untargeted attacks; leave targeted out, or use antiadv.attack instead.")
    whole = [
        make_cell(model=model, defence=d, attack=a, threat=t, samples=asked, data=data, seed=seed, resources=resources)
        for a, t in battery(limits.ball, defended, limits.queries)
        for d in (defences.BARE, defence)
    ]
    stored = set.intersection(*(facts.done(cell) for cell in whole))
    first = next((i for i in asked if i not in stored), asked.stop)  # all before it is there from an earlier trial
    # runs nothing: it asks the network whether it still answers as it did when these were stored
    evaluate([_of(cell, range(asked.start, first)) for cell in whole], facts, resources=resources)
    seen = tuple(asked[:LOOKED_AT])
    dataset, bare = resources.data(data), resources.model(model)
    first_signs = doubts(bare, dataset.images(seen).to(resources.device), dataset.labels(seen), batch)
    for flag in () if json else first_signs:  # JSON holds them
        typer.echo(f"Flag {flag}", err=True)
    with show.progress(quiet=json) as tell:

        def run(ids: Sequence[int]) -> None:
            part = [_of(cell, range(ids[0], ids[-1] + 1)) for cell in whole]
            evaluate(part, facts, shard=len(ids), batch=batch, resources=resources, progress=tell)

        done = rounds(range(first, asked.stop), 60 * minutes, run)
    taken = range(asked.start, first + done)
    made = flagged(report_of(rows(facts, [_of(cell, taken) for cell in whole])), first_signs)
    ids = tuple(taken)
    x, y = dataset.images(ids).to(resources.device), dataset.labels(ids)
    spent = cost(bare, defended, x[:64])
    found = Verdict(made, spent, scaled(bare, x, y, batch), len(taken), time.monotonic() - start)
    if json:
        show.print_json({"store": str(store), **found.json()})
    else:
        *others, last = found.sentences
        todo = "name more --samples to add to them"
        if len(taken) == len(dataset):
            todo = "these are all the samples there are"
        elif taken.stop < asked.stop:
            todo = "run again to add samples"
        show.print_rows(found.rows, [*others, f"Results lie in {store}; {todo}.", last])


def _of(cell: Cell, samples: range) -> Cell:
    return dataclasses.replace(cell, samples=samples)
