"""`antiadv data import SOURCE`: check a data set in any published form, and convert it to our form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from antiadv.cli import options, show, start

app = typer.Typer(no_args_is_help=True, help="Import data sets.")


@app.callback()
def _data() -> None:
    """Import data sets."""


@app.command("import")
@start.verb
def command(
    source: Annotated[
        Path, typer.Argument(help="Archive or folder: CIFAR as published, an .npz, or ImageNet's validation set.")
    ],
    name: Annotated[
        str | None,
        typer.Option("--name", help="cifar10, cifar100, imagenet or nips2017, if the source does not show it."),
    ] = None,
    directory: Annotated[Path, typer.Option("--dir", help="Folder for imported data sets.")] = options.DATA,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Check a data set and copy it to the data folder.

    The option --data of other commands finds it there.
    """
    from antiadv import data

    written = data.import_source(source, directory, name)
    if json:
        show.print_json([str(path) for path in written])
    else:
        for path in written:
            show.out().print(f"imported {path}", soft_wrap=True)
