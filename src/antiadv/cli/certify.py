"""`antiadv certify`: the radius within which no attack can change the vote of a smoothed network."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiadv.cli import options, show

if TYPE_CHECKING:
    from antiadv.evaluation.certify import Point

FEW = 100  # samples


def command(
    model: options.Model,
    data: options.Data = "cifar10",
    samples: Annotated[str | None, options.few(FEW)] = None,
    std: Annotated[float, typer.Option("--std", help="Standard deviation of the noise, in pixels of [0, 1].")] = 0.25,
    n0: Annotated[int, typer.Option("--n0", help="Noisy copies that choose the class.")] = 100,
    n: Annotated[int, typer.Option("--n", help="Other noisy copies, whose votes are counted.")] = 10_000,
    alpha: Annotated[float, typer.Option("--alpha", help="Probability that a certificate is wrong, at most.")] = 0.001,
    batch: options.Batch = None,
    seed: options.Seed = 0,
    store: options.StoreFolder = Path("store/certify"),
    csv: Annotated[Path | None, typer.Option("--csv", help="Also write the curve to this file.")] = None,
    device: options.Device = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Find L2 radii that no attack can break.

    Certifies the vote of a network over Gaussian noise, and stores a certificate for each sample. Run the same command
    again to resume.
    """
    from antiadv.evaluation.certify import Setting
    from antiadv.evaluation.certify_stored import certify_stored
    from antiadv.evaluation.resources import Resources

    setting = Setting(std, n0, n, alpha, seed)
    resources = Resources(device)
    asked = options.chosen(resources.data(data), samples, FEW)
    tell = None if json else _lines()
    names = {"model": model, "data": data}
    made = certify_stored(resources, **names, samples=asked, setting=setting, store=store, batch=batch, progress=tell)
    curve, abstained = made.certified.curve(), made.certified.abstained
    if csv is not None:
        _write_csv(csv, curve)
    if json:
        show.print_json(
            {
                "folder": str(made.folder),
                "samples": len(asked),
                "abstained": abstained,
                "largest_radius": setting.largest_radius,
                "curve": [asdict(point) for point in curve],
            }
        )
        return
    show.print_table(["L2 radius", "certified % [95 %]"], [[f"{p.radius:g}", _percent(p)] for p in curve])
    show.out().print(
        f"{len(asked)} samples, {abstained} without a certificate. No radius can exceed {setting.largest_radius:.3f} "
        f"with std {std:g}, n {n:,} and alpha {alpha:g}. The certificates are in {made.folder}.",
        soft_wrap=True,
    )


def _percent(p: Point) -> str:
    return f"{100 * p.certified:.1f} [{100 * p.low:.1f}, {100 * p.high:.1f}]"


def _write_csv(path: Path, curve: Sequence[Point]) -> None:
    from antiadv.core.errors import BadInput
    from antiadv.core.files import write_text

    lines = ["radius,certified,low,high", *(",".join(map(repr, asdict(point).values())) for point in curve)]
    try:
        write_text(path, "\n".join(lines) + "\n")
    except OSError as error:
        raise BadInput(f"{path} cannot be written ({error.strerror or error}). Name another file with --csv.") from None


def _lines() -> Callable[[int, int], None]:
    """Progress on stderr, a line every ten seconds."""
    start = last = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= show.EVERY:
            last = now
            typer.echo(f"{done} of {total} samples certified, {now - start:.0f} s so far", err=True)

    return tell
