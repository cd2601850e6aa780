"""`antiadv theory`: test the paper's statements by exact computation, and draw G(c)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from antiadv.cli import options, show


def command(
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Draw G(c) and the computed ratios of steps to this file, .png or .svg."),
    ] = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Test the paper's theorems by computation.

    Prints each statement, what was computed, and whether it holds.
    """
    from antiadv.paper import theory
    from antiadv.paper.theory import figure

    if out is not None:
        figure.draw(out)  # first, so that a bad file name is reported before the table
    experiments = list(theory.experiments())
    if json:
        show.print_json({"experiments": [e.json() for e in experiments], "figure": None if out is None else str(out)})
        return
    lines = [[e.result, e.says, f"{e.where[:1].upper()}{e.where[1:]}. {e.found}", e.verdict] for e in experiments]
    show.print_table(["result", "the paper says", "tested on, and found", "holds"], lines)
    inside = [e for e in experiments if e.within]
    show.out().print(
        f"{sum(e.holds for e in inside)} of {len(inside)} statements hold in cases that meet their assumptions.",
        soft_wrap=True,
    )
    if out is not None:
        show.out().print(f"G(c) is drawn in {out}.", soft_wrap=True)
