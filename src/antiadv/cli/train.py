"""`antiadv train RECIPE`: train a network, resume it, and write its weights and card."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiadv.cli import options, show
from antiadv.core.errors import BadSpec

if TYPE_CHECKING:
    from antiadv.train import Progress


def command(
    recipe: Annotated[str, typer.Argument(help="standard, pgd, trades, mart, awp, hydra, pretraining, self_ensemble.")],
    model: Annotated[str, typer.Option("--model", help="An architecture: preact18:width=16, wrn:depth=16,widen=4.")],
    out: Annotated[Path, typer.Option("--out", help="The file of weights; its card is written beside it.")],
    epochs: Annotated[int, typer.Option("--epochs", help="Passes over the data, all phases together.")],
    data: Annotated[str, typer.Option("--data", help="cifar10 or cifar100, with dir=FOLDER.")] = "cifar10",
    batch: Annotated[int, typer.Option("--batch", help="Images per step.")] = 512,
    learning_rate: Annotated[float, typer.Option("--learning-rate")] = 0.4,
    weight_decay: Annotated[float, typer.Option("--weight-decay")] = 5e-4,
    seed: options.Seed = 0,
    start: Annotated[
        Path | None, typer.Option("--start", help="Weights in place of the first of several phases.")
    ] = None,
    device: options.Device = None,
    speed: Annotated[str, typer.Option("--speed", help=f"One of: {', '.join(options.SPEEDS)}.")] = "auto",
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Train a network by a recipe. Killed and run again, it goes on from the last checkpoint."""
    from antiadv.evaluation.resources import find_device
    from antiadv.train import SPEEDS, Settings, parse, train

    if speed not in SPEEDS:
        raise BadSpec(f"speed is one of {', '.join(SPEEDS)}; found {speed!r}")
    find_device(device)  # refuses what cannot be used
    tell, say = _lines(quiet=json)
    card = train(
        parse(recipe),
        model,
        data,
        out,
        Settings(epochs, batch, learning_rate, weight_decay, seed=seed),
        start=start,
        device=device,
        speed=speed,
        progress=tell,
        say=say,
        command=shlex.join(["antiadv", *sys.argv[1:]]),
    )
    said = {"file": str(out), "clean": card.clean.share, "pgd20": card.pgd20.share, "weights": card.weights}
    if json:
        show.print_json(said)
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
