"""`antiadv export`: write a defended network to a file for ONNX Runtime or PyTorch, with its card, in one folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from antiadv.cli import options, show
from antiadv.core.errors import BadInput

CHECKED = 256  # images by default
LONGEST = 2**16  # characters of a verdict or a card


def command(
    out: Annotated[Path, typer.Option("--out", help="Folder for the bundle; it must not exist yet.")],
    model: options.Model = "compact:trades",
    defence: options.Defence = "anti_adversary",
    data: options.Data = "cifar10",
    format: Annotated[
        str, typer.Option("--format", help="onnx, pt2 (PyTorch), or aoti (native code; takes minutes).")
    ] = "onnx",
    images: Annotated[
        int, typer.Option("--images", min=2, help="Images on which the file is compared with PyTorch.")
    ] = CHECKED,
    verdict: Annotated[
        Path | None, typer.Option("--verdict", help="Text file to keep in the card, such as the output of verdict.")
    ] = None,
    league: Annotated[
        Path | None, typer.Option("--league", help="Card of this defence to keep, as antiadv league --out writes it.")
    ] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Write a defended network to a file.

    The file is compared with PyTorch. The bundle is a folder with the file and a card that describes it.
    """
    from antiadv import models
    from antiadv.evaluation import Resources
    from antiadv.serving.check import Check
    from antiadv.serving.export import export

    verdict_text = None if verdict is None else _read(verdict)
    row = None if league is None else _row(league)
    resources = Resources("cpu")
    dataset = resources.data(data)
    made = export(
        resources.defended(model, defence),
        dataset.images(dataset.ids[:images]),
        out,
        format,
        name=models.label(model),
        class_names=dataset.classes,
        verdict=verdict_text,
        league=row,
    )
    if as_json:
        show.print_json({"bundle": str(out), **made.card})
        return
    show.out().print(
        f"{made.card['model']} with {made.card['defence']} is in {out}, as {format}. It costs {made.card['cost']}.\n"
        f"Compared with PyTorch: {Check(**made.card['check'])}."
    )


def _read(path: Path) -> str:
    try:
        with path.open() as file:
            text = file.read(LONGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as text; give a text file.") from error
    if len(text) > LONGEST:
        raise BadInput(f"a verdict or a card has at most {LONGEST:,} characters; {path} has more. Shorten it.")
    return text


def _row(path: Path) -> dict[str, str]:
    """A card of a league: texts by name."""
    try:
        found = json.loads(_read(path))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise BadInput(f"{path} is no card of a league; give one of the files that antiadv league --out writes.")
    return found
