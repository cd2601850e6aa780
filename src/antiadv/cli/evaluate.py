"""`antiadv evaluate`: run or resume one cell, and print its row."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from antiadv.cli import options, show


def command(
    model: options.Model,
    attack: options.Attack,
    threat: options.Threat,
    defence: options.Defence = "none",
    data: options.Data = "cifar10",
    samples: options.Samples = None,
    shard: options.Shard = None,
    batch: options.Batch = None,
    seed: options.Seed = 0,
    precision: options.Precision = options.AUTO,
    looks: options.Looks = options.LOOKS,
    compiled: options.Compiled = options.AUTO,
    runner: options.Runner = "local",
    store: options.StoreFolder = Path("results"),
    device: options.Device = None,
    authorised: options.Authorised = False,
    keep_images: Annotated[bool, typer.Option("--keep-images", help="Also store the attacked images.")] = False,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Attack a classifier on a data set.

    Stores a record for each sample. Run the same command again to resume.
    """
    from antiadv.evaluation import Resources, Store, evaluate, make_cell, parse_runner
    from antiadv.evaluation.early import told
    from antiadv.reporting import report_of
    from antiadv.reporting.build import judge_sentence
    from antiadv.reporting.rows import bare_cell, rows

    model = options.authorised(model, authorised)
    parse_runner(runner)  # its errors come first
    resources, facts = Resources(device, compiled=options.compiled(compiled)), Store(store)
    options.check_here(resources, precision, runner)
    names = {"model": model, "attack": attack, "threat": threat, "defence": defence, "data": data}
    cell = make_cell(**names, samples=samples, seed=seed, precision=precision, looks=looks, resources=resources)
    bare = bare_cell(cell)
    checked = dataclasses.replace(bare, samples=range(0))  # its row is shown, so its network is checked; nothing is run
    silent = told() if json else contextlib.nullcontext()  # JSON holds the flags
    with silent, show.progress(quiet=json) as tell:
        how: dict[str, Any] = {"resources": resources, "keep_images": keep_images, "progress": tell}
        evaluate([checked, cell], facts, shard=shard, batch=batch, runner=runner, **how)
    made = report_of(rows(facts, dict.fromkeys([bare, cell])))
    if json:
        show.print_json({"store": str(store), **made.json()})
    else:
        sent = getattr(resources.model(model), "sent", None)
        cost = [] if sent is None else [f"This run sent {sent:,} images to the endpoint, checks and repeats included."]
        judge = judge_sentence(facts, made.rows)
        show.print_rows(made.rows, [judge, *cost, *made.sentences, f"Results are in {facts.folder(cell)}"])
