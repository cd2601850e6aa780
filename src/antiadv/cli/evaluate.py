"""`antiadv evaluate`: run one cell, resume it, and show its row."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from antiadv.cli import options, show


def command(
    model: options.Model,
    attack: options.Attack,
    threat: options.Threat,
    defence: options.Defence = "none",
    data: options.Data = "cifar10",
    samples: options.Samples = None,
    shard: options.Shard = 250,
    batch: options.Batch = 256,
    seed: options.Seed = 0,
    precision: options.Precision = "float32",
    looks: options.Looks = options.LOOKS,
    compiled: options.Compiled = False,
    runner: options.Runner = "local",
    store: options.StoreFolder = Path("results"),
    device: options.Device = None,
    keep_images: Annotated[bool, typer.Option("--keep-images", help="Keep the attacked images too.")] = False,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Attack a classifier on a data set and store what happened to each sample. Run again to resume."""
    from antiadv.evaluation import Resources, Store, evaluate, make_cell, parse_runner
    from antiadv.reporting import report_of
    from antiadv.reporting.rows import bare_cell, rows

    carry_out = parse_runner(runner)
    resources = Resources(device, compiled=compiled)
    options.check_here(resources, precision, runner)
    cell = make_cell(
        model=model,
        attack=attack,
        threat=threat,
        defence=defence,
        samples=samples,
        data=data,
        seed=seed,
        precision=precision,
        looks=looks,
        resources=resources,
    )
    facts = Store(store)
    shown = dataclasses.replace(bare_cell(cell), samples=range(0))  # not run, but its row is shown: it must be as fresh
    with show.progress(quiet=json) as tell:
        evaluate(
            [shown, cell],
            facts,
            shard=shard,
            batch=batch,
            runner=carry_out,
            resources=resources,
            keep_images=keep_images,
            progress=tell,
        )
    made = report_of(rows(facts, dict.fromkeys([bare_cell(cell), cell])))
    if json:
        show.print_json({"store": str(store), **made.json()})
    else:
        show.print_rows(made.rows, [*made.sentences, f"Results lie in {facts.folder(cell)}"])
