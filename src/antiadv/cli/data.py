"""`antiadv data import SOURCE`: any published form of a data set, checked, to the one form we read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from antiadv.cli import options, show, start

app = typer.Typer(no_args_is_help=True, help="Bring data sets in.")


@app.callback()
def _data() -> None:
    """Bring data sets in."""


@app.command("import")
@start.verb
def command(
    source: Annotated[
        Path, typer.Argument(help="An archive or a folder: CIFAR's, an .npz, ImageNet's validation set.")
    ],
    name: Annotated[
        str | None, typer.Option("--name", help="cifar10, cifar100, imagenet or nips2017, where it is not plain.")
    ] = None,
    directory: Annotated[Path, typer.Option("--dir", help="Where data sets are kept.")] = options.DATA,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Recognise a data set, check it, and copy it to where `--data` looks for it."""
    from antiadv import data

    written = data.import_source(source, directory, name)
    if json:
        show.print_json([str(path) for path in written])
    else:
        for path in written:
            show.out().print(f"imported {path}", soft_wrap=True)
