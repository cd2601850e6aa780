"""Options that several commands share.

`AUTO`, `PRECISIONS`, `SPEEDS`, `LOOKS` and `DATA` repeat values of the library, so that help does not import torch. A
test compares them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiadv.core.errors import BadInput

if TYPE_CHECKING:
    from antiadv.data import Dataset
    from antiadv.evaluation import Resources

AUTO = "auto"
PRECISIONS = ("float32", "tf32", "half", "mixed")
COMPILE: dict[str, bool | str] = {AUTO: AUTO, "yes": True, "no": False}
SPEEDS = ("auto", "compiled graph", "graph", "compiled", "eager", "mixed")
LOOKS = 10
DATA = Path("~/.antiadv/data")

Model = Annotated[
    str,
    typer.Option(
        "--model", help="Network: compact:trades, wrn28-10:mart,path=FILE, my.module:make, or http://ADDRESS."
    ),
]
Authorised = Annotated[
    bool, typer.Option("--authorised", help="The owner of the endpoint on another machine permits this attack.")
]
Defence = Annotated[
    str, typer.Option("--defence", help="Defence, such as anti_adversary:steps=2; none: the bare network.")
]
Attack = Annotated[str, typer.Option("--attack", help="Attack, such as square or pgd:steps=40.")]
Threat = Annotated[str, typer.Option("--threat", help="Ball and query budget: linf:8/255,queries=1000 or l2:0.5.")]
Data = Annotated[
    str,
    typer.Option(
        "--data", help="Data set: cifar10, cifar100, imagenet or nips2017, such as cifar10:dir=FOLDER; or arrays:FILE."
    ),
]
Samples = Annotated[
    str | None, typer.Option("--samples", help="Samples, as START:STOP.", show_default="the first 1000, or all")
]


def few(n: int) -> Any:
    """`--samples` of a command that takes the first n by default."""
    return typer.Option("--samples", help="Which samples, START:STOP.", show_default=f"the first {n}, or all")


Shard = Annotated[
    int | None,
    typer.Option(
        "--shard",
        help="Samples in a shard. If the run is killed, unfinished shards are lost.",
        show_default="250; 1000 on a GPU",
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch", min=1, help="Largest number of images in one network pass.", show_default="128; 1024 on a GPU"
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of all random numbers.")]
Precision = Annotated[
    str,
    typer.Option(
        "--precision",
        help=f"Precision of the search: {', '.join(PRECISIONS)}; auto: the fastest that loses nothing with the attack. "
        "The judge always uses float32.",
    ),
]
Looks = Annotated[
    int, typer.Option("--looks", help="Predictions for each judged image of a randomised defence; the majority counts.")
]
Networks = Annotated[
    str, typer.Option("--networks", help="zoo, or official:DIR for a folder DIR with the authors' checkpoints.")
]
Compiled = Annotated[
    str,
    typer.Option(
        "--compile",
        help="yes, or --compile alone: compile each network first, which takes about half a minute. no: never. "
        "auto: start at once; long runs on a GPU change to the compiled network when it is ready.",
    ),
]
Runner = Annotated[
    str, typer.Option("--runner", help="Where to run: local, processes:4, ray, or ray:ADDRESS for a cluster.")
]
Device = Annotated[str | None, typer.Option("--device", help="cpu or cuda. Default: a GPU if there is one.")]
StoreFolder = Annotated[Path, typer.Option("--store", help="Folder for results; created if missing.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def compiled(text: str) -> bool | str:
    """The value of --compile."""
    if text not in COMPILE:
        raise BadInput(f"--compile is one of {', '.join(COMPILE)}; found {text!r}.")
    return COMPILE[text]


def spelled_out(args: Sequence[str]) -> list[str]:
    """The words of a command line, with `--compile` alone written as `--compile yes`.

    >>> spelled_out(["reproduce", "--compile", "all"])
    ['reproduce', '--compile', 'yes', 'all']
    """
    alone = [
        word == "--compile" and (not more or more[0] not in COMPILE)
        for word, *more in (args[i : i + 2] for i in range(len(args)))
    ]
    return [part for word, yes in zip(args, alone, strict=True) for part in ((word, "yes") if yes else (word,))]


def chosen(dataset: Dataset, samples: str | None, few: int) -> range:
    """The samples that were asked for, by default the first few."""
    from antiadv.evaluation.cell import parse_samples

    return dataset.ids[:few] if samples is None else parse_samples(samples)


def check_out(folder: Path | None) -> None:
    """Make the folder of `--out` and refuse it before the work, not after, if files cannot be written to it."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BadInput(f"{folder} cannot be written ({error.strerror or error}); name another with --out.") from None


def check_here(resources: Resources, precision: str, runner: str) -> None:
    """Refuse a precision that this machine does not support. The workers of a Ray cluster check their own."""
    if precision != AUTO and runner.partition(":")[0] != "ray":
        resources.engine(precision)


def authorised(model: str, permitted: bool) -> str:
    """The model with the owner's permission, if the user has it. It is not part of a name that is stored."""
    return f"{model},authorised=true" if permitted and model.startswith(("http:", "https:")) else model
