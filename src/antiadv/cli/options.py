"""Options that several verbs share, each said once, and what is checked of them at the door.

`PRECISIONS`, `SPEEDS`, `LOOKS` and `DATA` repeat what the library has, so that help needs no torch; a test compares.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from antiadv.evaluation import Resources

PRECISIONS = ("float32", "tf32", "half", "mixed")
SPEEDS = ("auto", "compiled graph", "graph", "compiled", "eager")
LOOKS = 10
DATA = Path("~/.antiadv/data")

Model = Annotated[
    str, typer.Option("--model", help="A network: compact:trades, wrn28-10:mart,path=FILE, my.module:make.")
]
Defence = Annotated[
    str, typer.Option("--defence", help="A defence, such as anti_adversary:steps=2; none leaves it bare.")
]
Attack = Annotated[str, typer.Option("--attack", help="An attack, such as square or pgd:steps=40.")]
Threat = Annotated[str, typer.Option("--threat", help="Radius and budget: linf:8/255,queries=1000 or l2:0.5.")]
Data = Annotated[
    str, typer.Option("--data", help="cifar10, cifar100, imagenet or nips2017, each with dir=FOLDER; or arrays:FILE.")
]
Samples = Annotated[
    str | None, typer.Option("--samples", help="Which samples, START:STOP.", show_default="the first 1000, or all")
]
Shard = Annotated[
    int, typer.Option("--shard", help="Samples stored at once; at most so many are lost if it is killed.")
]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Images that pass through the network at once.")]
Seed = Annotated[int, typer.Option("--seed", help="The seed of all dice.")]
Precision = Annotated[
    str, typer.Option("--precision", help=f"What attacks search in: {', '.join(PRECISIONS)}. The judge: float32.")
]
Looks = Annotated[int, typer.Option("--looks", help="How often a randomised defence is judged; the majority counts.")]
Networks = Annotated[
    str, typer.Option("--networks", help="zoo, or official:DIR where DIR holds the authors' checkpoints.")
]
Compiled = Annotated[
    bool,
    typer.Option("--compile", help="Compile first: half a minute or so each network, and faster on long runs."),
]
Runner = Annotated[
    str, typer.Option("--runner", help="Where the work is done: local, processes:4, ray, or ray:ADDRESS of a cluster.")
]
Device = Annotated[str | None, typer.Option("--device", help="cpu or cuda; by default a GPU where there is one.")]
StoreFolder = Annotated[Path, typer.Option("--store", help="The folder of results; made when it is missing.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def check_here(resources: Resources, precision: str, runner: str) -> None:
    """What this machine cannot search in is refused before any work; what a cluster can, its workers know."""
    if runner.partition(":")[0] != "ray":
        resources.engine(precision)
