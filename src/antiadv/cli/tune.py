"""`antiadv tune`: choose the settings of the layer for a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from antiadv.cli import options, show
from antiadv.core.errors import BadInput

FEW, QUERIES = 256, 100  # images, and queries for each attacked one


def command(
    model: options.Model,
    data: options.Data = "cifar10",
    samples: Annotated[str | None, options.few(FEW)] = None,
    keep: Annotated[float, typer.Option("--keep", help="Share of the network's labels that must be kept.")] = 0.995,
    latency_ms: Annotated[
        float | None, typer.Option("--latency-ms", help="Longest time for one image, in ms.", show_default="any")
    ] = None,
    threat: options.Threat = f"linf:8/255,queries={QUERIES}",
    attacked: Annotated[int, typer.Option("--attacked", help="Images of each half that are attacked.")] = 64,
    batch: options.Batch = None,
    seed: options.Seed = 0,
    device: options.Device = None,
    out: Annotated[Path | None, typer.Option("--out", help="Also write tune.json, tune.csv and drawings here.")] = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Choose the settings of the layer for a network.

    Compares numbers of steps, step sizes and gates on half of the images. Shows their numbers on the other half:
    labels kept, gain under a score attack, gain against an attacker who knows the layer, and measured times. The
    last line is the setting, as --defence takes it.
    """
    from antiadv.core.threat import Access, parse_threat
    from antiadv.evaluation import Resources
    from antiadv.reporting.render.terminal import table_for_terminal
    from antiadv.reporting.tune import tune

    resources, limits = Resources(device), parse_threat(threat, Access.SCORES)
    if limits.targeted:
        raise BadInput("the layer is tuned with untargeted attacks; leave targeted out.")
    dataset = resources.data(data)
    ids = options.chosen(dataset, samples, FEW)
    options.check_out(out)
    x, y = dataset.images(ids).to(resources.device), dataset.labels(ids)
    found = tune(
        resources.model(model), x, y, keep=keep, latency_ms=latency_ms, ball=limits.ball,
        queries=limits.queries or QUERIES, attacked=attacked, seed=seed, batch=batch, tell=_silent if json else _tell,
    )  # fmt: skip
    if not json:
        show.out().print(table_for_terminal(found.table))
        show.print_lines(found.sentences)
    files = [] if out is None else found.write(out)
    if json:
        show.print_json({"model": model, "files": [str(path) for path in files], **found.json()})
        return
    show.print_lines([f"Written: {path}" for path in files])
    if found.spec is not None:
        show.print_lines([f"--defence {found.spec}"])


def _tell(line: str) -> None:
    typer.echo(line, err=True)


def _silent(line: str) -> None:
    """JSON holds the numbers."""
