"""`antiadv train RECIPE`: train a network or resume training, and write its weights and card."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiadv.cli import options, show
from antiadv.core.errors import BadSpec

if TYPE_CHECKING:
    from antiadv.train import Progress


def command(
    recipe: Annotated[
        str, typer.Argument(help="standard, pgd, trades, mart, awp, hydra, pretraining, self_ensemble or gaussian.")
    ],
    model: Annotated[str, typer.Option("--model", help="Architecture: preact18:width=16 or wrn:depth=16,widen=4.")],
    out: Annotated[Path, typer.Option("--out", help="File for the weights; the card is written next to it.")],
    epochs: Annotated[int, typer.Option("--epochs", help="Passes over the data, in all phases together.")],
    data: Annotated[
        str, typer.Option("--data", help="Data set: cifar10 or cifar100, such as cifar10:dir=FOLDER.")
    ] = "cifar10",
    batch: Annotated[int, typer.Option("--batch", help="Images in each step.")] = 512,
    learning_rate: Annotated[float, typer.Option("--learning-rate", help="Peak learning rate.")] = 0.4,
    weight_decay: Annotated[float, typer.Option("--weight-decay", help="Weight decay.")] = 5e-4,
    seed: options.Seed = 0,
    start: Annotated[Path | None, typer.Option("--start", help="Weights that replace the first phase.")] = None,
    device: options.Device = None,
    speed: Annotated[
        str, typer.Option("--speed", help=f"How steps run: {', '.join(options.SPEEDS)}. On a CPU only mixed differs.")
    ] = "auto",
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Train a network by a recipe.

    If training was stopped, the same command continues from the last checkpoint.
    """
    from antiadv.evaluation.resources import find_device
    from antiadv.train import SPEEDS, Settings, parse, train

    if speed not in SPEEDS:
        raise BadSpec(f"--speed is one of {', '.join(SPEEDS)}; found {speed!r}.")
    find_device(device)  # raises if it cannot be used
    tell, say = _lines(quiet=json)
    settings = Settings(epochs, batch, learning_rate, weight_decay, seed=seed)
    line = shlex.join(["antiadv", *sys.argv[1:]])
    how: dict[str, Any] = {"device": device, "speed": speed, "progress": tell, "say": say}
    card = train(parse(recipe), model, data, out, settings, start=start, command=line, **how)
    if json:
        shares = {"clean": card.clean.share, "pgd20": card.pgd20.share}
        show.print_json({"file": str(out), **shares, "weights": card.weights})
    else:
        show.out().print(
            f"{out}: {card.clean.share:.2%} clean, {card.pgd20.share:.2%} under PGD-20, on {card.clean.total} images\n"
            f"load it with --model file:{out}",
            soft_wrap=True,
        )


def _lines(quiet: bool) -> tuple[Callable[[Progress], None], Callable[[str], None]]:
    from rich.console import Console

    console = Console(stderr=True, highlight=False, quiet=quiet)

    def tell(p: Progress) -> None:
        console.print(
            f"{p.phase} {p.epoch}/{p.epochs}: loss {p.loss:.4f}, accuracy {p.accuracy:.1%}, "
            f"{p.images_per_second:,.0f} images/s, {p.left:,.0f} s left",
            soft_wrap=True,
        )

    return tell, lambda text: console.print(text, soft_wrap=True)
