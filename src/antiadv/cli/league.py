"""`antiadv league`: which defence to deploy, what it costs, and what is left when the attacker knows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from antiadv.cli import options, show
from antiadv.core.errors import BadInput


def command(
    model: options.Model = "compact:trades",
    data: options.Data = "cifar10",
    samples: Annotated[str | None, options.few(500)] = None,
    minutes: Annotated[float, typer.Option("--minutes", help="Take as many of the samples as fit into this.")] = 30.0,
    threat: options.Threat = "linf:8/255,queries=1000",
    entrants: Annotated[
        list[str] | None,
        typer.Option("--entrants", help="A defence that takes part; may be repeated.", show_default="all"),
    ] = None,
    settings: Annotated[
        str,
        typer.Option("--settings", help="standard or robust; auto: standard above a median confidence of 0.9."),
    ] = options.AUTO,
    batch: options.Batch = None,
    seed: options.Seed = 0,
    precision: options.Precision = options.AUTO,
    compiled: options.Compiled = options.AUTO,
    store: options.StoreFolder = Path("store/league"),
    device: options.Device = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Also write league.json, a card for each line, and figures here.")
    ] = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Compare all defences, and say which to deploy.

    Measures the cost of each defence, and robust accuracy against four attackers. Run the same command again to add
    samples.
    """
    from antiadv.core.threat import Access, parse_threat
    from antiadv.evaluation import Resources
    from antiadv.reporting.league import league
    from antiadv.reporting.league_card import write
    from antiadv.reporting.league_entrants import QUERIES
    from antiadv.reporting.render.terminal import table_for_terminal

    limits = parse_threat(threat, Access.SCORES)
    if limits.targeted:
        raise BadInput("a league runs untargeted attacks; leave targeted out.")
    options.check_out(out)
    resources = Resources(device, compiled=options.compiled(compiled))
    with show.progress(quiet=json) as tell:
        made = league(
            model, data, store, minutes=minutes, samples=samples, ball=limits.ball, queries=limits.queries or QUERIES,
            settings=settings, only=entrants or (), seed=seed, batch=batch, precision=precision, resources=resources,
            progress=tell,
        )  # fmt: skip
    if not json:
        show.out().print(table_for_terminal(made.table))
        show.print_lines([*made.notes, *made.sentences])
    files = [] if out is None else write(made, out, data, str(limits.ball))
    if json:
        show.print_json({"store": str(store), "files": [str(path) for path in files], **made.json()})
    else:
        show.print_lines([f"Written: {path}" for path in files])
