"""`antiadv check`: what is wrong with a model or its images, on one screen, with the line to write."""

from __future__ import annotations

from typing import Annotated

import typer

from antiadv.cli import options, show

FEW = 100  # samples
MARKS = {True: "fine", False: "WRONG", None: "note"}


def command(
    model: options.Model,
    data: options.Data = "cifar10",
    samples: Annotated[str | None, options.few(FEW)] = None,
    device: options.Device = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Check a network and its images for mistakes.

    Looks at range, normalisation, evaluation mode, scores and gradients, and prints the line to write. Exits with 1 if
    something is wrong.
    """
    from antiadv import models
    from antiadv.evaluation.preflight import as_returned, preflight
    from antiadv.evaluation.resources import Resources

    net = models.returned(model)
    returned = [] if models.is_registered(model) else as_returned(net)  # a loader of ours leaves nothing to find
    resources = Resources(device, {model: models.ready(net)})
    images = resources.data(data)
    ids = options.chosen(images, samples, FEW)
    x, y = images.images(ids).to(resources.device), images.labels(ids).to(resources.device)
    findings = preflight(resources.model(model), x, y)
    findings = returned + [f for f in findings if f.name not in ("mode", "dtype")]
    if json:
        show.print_json([vars(f) for f in findings])
    else:
        for f in findings:
            show.out().print(f"{MARKS[f.fine]:6} {f.name:14} {f.found}" + (f"\n{'':22}{f.todo}" if f.todo else ""))
    if any(f.fine is False for f in findings):
        raise typer.Exit(1)
