"""`antiadv verdict`: judge a defence on a model, in one command and with short searches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from antiadv.cli import options, show
from antiadv.core.errors import BadInput

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from antiadv.core.defence import Defence
    from antiadv.core.threat import Threat
    from antiadv.data import Dataset
    from antiadv.evaluation import Cell, Resources, Store
    from antiadv.models.remote import Remote
    from antiadv.reporting.endpoint import EndpointVerdict
    from antiadv.reporting.flags import Flag
    from antiadv.reporting.rows import Row
    from antiadv.reporting.trial import Verdict

FEW = 64  # samples


def command(
    model: options.Model = "compact:trades",
    defence: Annotated[
        str | None,
        typer.Option(
            "--defence",
            help="Defence, such as anti_adversary:steps=2; an endpoint has its own.",
            show_default="anti_adversary",
        ),
    ] = None,
    data: options.Data = "cifar10",
    samples: Annotated[str | None, options.few(FEW)] = None,
    minutes: Annotated[float, typer.Option("--minutes", help="Take as many of the samples as fit into this.")] = 5.0,
    threat: options.Threat = "linf:8/255",
    batch: options.Batch = None,
    seed: options.Seed = 0,
    precision: options.Precision = options.AUTO,
    compiled: options.Compiled = options.AUTO,
    store: options.StoreFolder = Path("store/verdict"),
    device: options.Device = None,
    authorised: options.Authorised = False,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Say in a sentence what a defence is worth.

    Attacks the network without and with the defence, through labels, scores and gradients, and with knowledge of the
    defence. Prints gains, flags and the verdict. An endpoint (http://ADDRESS) is attacked as it is, through
    its scores and labels.
    """
    from antiadv import models
    from antiadv.core.threat import Access, parse_threat
    from antiadv.evaluation import Resources, Store, evaluate, make_cell
    from antiadv.reporting.endpoint import judge_endpoint
    from antiadv.reporting.rounds import check_minutes
    from antiadv.reporting.trial import Trial, asks, run_trial, with_gradients

    check_minutes(minutes)
    model, remote = options.authorised(model, authorised), models.is_remote(model)
    if remote and defence is not None:
        raise BadInput("an endpoint is attacked with the defence that it has; leave --defence out.")
    defence = defence or "anti_adversary"
    resources, facts = Resources(device, compiled=options.compiled(compiled)), Store(store)
    dataset = resources.data(data)
    asked = options.chosen(dataset, samples, FEW)
    defended = None if remote else _defended(resources, model, defence)
    limits = parse_threat(threat, Access.SCORES)
    if limits.targeted:
        raise BadInput("a verdict is on untargeted attacks; leave targeted out, or use antiadv.attack instead.")
    make = partial(
        make_cell, model=model, samples=asked, data=data, seed=seed, precision=precision, resources=resources
    )
    net = resources.model(model)
    images = partial(_images, dataset, resources.device)
    cells = (
        _endpoint_cells(make, cast("Remote", net), limits)
        if defended is None
        else _cells(make, defence, defended, limits, with_gradients(net, defended, *images(asked[:1])))
    )
    done = set.intersection(*(facts.done(cell) for cell in cells))
    stored = next((n for n, i in enumerate(asked) if i not in done), len(asked))
    # Runs no attack: it checks that the network still predicts as it did when these were stored.
    evaluate(_with(cells, asked[:stored]), facts, resources=resources)
    with show.progress(quiet=json) as tell:

        def run(ids: Sequence[int]) -> None:
            evaluate(_with(cells, ids), facts, shard=len(ids), batch=batch, resources=resources, progress=tell)

        read = partial(_rows, cells, facts)
        found: Verdict | EndpointVerdict
        if defended is None:
            found = judge_endpoint(run, read, cast("Remote", net), asked, minutes, stored)
        else:
            needed = asks((cell.attack, cell.threat) for cell in cells[::2])  # of one side
            trial = Trial(net, defended, images, run, read, needed)
            found = run_trial(trial, asked, minutes, _silent if json else _warn, stored, batch)
    if json:
        show.print_json({"store": str(store), **found.json()})
    else:
        _print(found, store, len(asked), len(dataset))


def _print(found: Verdict | EndpointVerdict, store: Path, asked: int, total: int) -> None:
    todo = "name more --samples to add to them"
    if found.samples == total:
        todo = "these are all the samples there are"
    elif found.samples < asked:
        todo = "run again to add samples"
    *others, last = found.sentences
    show.print_rows(found.rows, [*others, f"The results are in {store}; {todo}.", last])


def _warn(flag: Flag) -> None:
    typer.echo(f"Flag {flag}", err=True)


def _silent(flag: Flag) -> None:
    """JSON holds the flags."""


def _defended(resources: Resources, model: str, defence: str) -> Defence:
    from antiadv.core.defence import Defence

    defended = resources.defended(model, defence)
    if not isinstance(defended, Defence):
        raise BadInput("a verdict compares a defence with the bare classifier; name one, for example anti_adversary.")
    return defended


def _cells(make: Callable[..., Cell], defence: str, defended: Defence, limits: Threat, gradients: bool) -> list[Cell]:
    """The cells of the battery, each bare and with the defence."""
    from antiadv import defences
    from antiadv.reporting.trial import battery

    return [
        make(defence=side, attack=attack, threat=threat)
        for attack, threat in battery(limits.ball, defended, limits.queries, gradients)
        for side in (defences.BARE, defence)
    ]


def _endpoint_cells(make: Callable[..., Cell], net: Remote, limits: Threat) -> list[Cell]:
    """The cells of an endpoint: attacks on scores, where it gives them, and on labels."""
    from antiadv.reporting.endpoint import endpoint_battery

    battery = endpoint_battery(limits.ball, net.grants, limits.queries)
    return [make(attack=attack, threat=threat) for attack, threat in battery]


def _images(dataset: Dataset, device: torch.device, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    return dataset.images(tuple(ids)).to(device), dataset.labels(tuple(ids))


def _rows(cells: Sequence[Cell], facts: Store, ids: Sequence[int]) -> list[Row]:
    from antiadv.reporting.rows import rows

    return rows(facts, _with(cells, ids))


def _with(cells: Sequence[Cell], ids: Sequence[int]) -> list[Cell]:
    """The same cells with these samples, which are consecutive."""
    samples = range(ids[0], ids[-1] + 1) if ids else range(0)
    return [dataclasses.replace(cell, samples=samples) for cell in cells]
