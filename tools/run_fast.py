"""Run `fast` on the robust networks of the zoo for a number of minutes, and store the records. Every call resumes.

    python -m tools.run_fast --store results/fast --minutes 20 --device cuda --precision half
    python -m tools.run_fast --list                     what would be run, and how much of it is stored

It runs `fast` on each bare network, `fast` on one network behind the layer as if nothing were known about it, and
`adaptive` on each network behind the layer. It needs torch, numpy, scipy, safetensors and Pillow, but none of the
packages of the command line. docs/fast.md is made from the store.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Iterator

from antiadv.core.errors import AntiadvError
from antiadv.evaluation import Cell, Resources, Store, evaluate
from antiadv.evaluation.plan import make_cell

THREAT = "linf:8/255"
LAYER = "anti_adversary"
LUMP = "compact:trades"  # the network that `fast` meets behind the layer
NETWORKS = (
    *("compact:trades", "compact:awp", "compact:mart", "compact:hydra", "compact:pretraining"),
    *("compact:awp,data=cifar100", "compact:pretraining,data=cifar100", "wrn16-4:trades", "wrn16-4:awp"),
)


def main() -> int:
    a = arguments()
    end = time.monotonic() + 60 * a.minutes
    resources, store = Resources(a.device, compiled=a.compile), Store(a.store)
    for cell in cells(a.samples, a.precision, resources):
        print(f"{len(store.done(cell)) if store.root.is_dir() else 0:5d}/{a.samples} {title(cell)}", flush=True)
        while not a.list and time.monotonic() < end and (todo := sorted(set(cell.samples) - store.done(cell))):
            part, start = todo[: a.shard], time.monotonic()
            some = dataclasses.replace(cell, samples=range(part[0], part[-1] + 1))
            evaluate([some], store, shard=a.shard, batch=a.batch, resources=resources)
            print(f"      {len(part)} samples in {time.monotonic() - start:.1f} s", flush=True)
    return 0


def cells(samples: int, precision: str, resources: Resources) -> Iterator[Cell]:
    """The cells in the order to run them. A network whose data or weights are missing is named and left out."""
    names = [(m, "none", "fast") for m in NETWORKS] + [(LUMP, LAYER, "fast")]
    names += [(m, LAYER, "adaptive") for m in NETWORKS]
    for model, defence, attack in names:
        try:
            yield make_cell(
                model=model,
                data=f"{data_of(model)}:test",
                defence=defence,
                attack=attack,
                threat=THREAT,
                samples=range(samples),
                precision=precision,
                resources=resources,
            )
        except AntiadvError as error:
            print(f"left out: {model} {defence} {attack}: {error}", flush=True)


def data_of(model: str) -> str:
    return "cifar100" if "cifar100" in model else "cifar10"


def title(cell: Cell) -> str:
    return f"{cell.attack} on {cell.model}, defence {cell.defence}, {cell.threat}, searched in {cell.precision}"


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--store", default="results/fast")
    p.add_argument("--samples", type=int, default=1000)
    p.add_argument("--precision", default="float32", help="float32, tf32, half or mixed; half on a GPU")
    p.add_argument("--minutes", type=float, default=10.0, help="no shard is begun after that")
    p.add_argument("--shard", type=int, default=500)
    p.add_argument("--batch", type=int, default=1024)
    p.add_argument("--device")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--list", action="store_true")
    return p.parse_args()


if __name__ == "__main__":
    sys.exit(main())
