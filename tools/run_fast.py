"""Run `fast` on the robust networks of the zoo for a number of minutes, and store the records. Every call resumes.

    python -m tools.run_fast --store results/fast --minutes 20 --device cuda --precision half
    python -m tools.run_fast --store results/fast --minutes 60 --shard 250 --batch 250 --only 'fast on'     on a CPU
    python -m tools.run_fast --short-step               only the check of the gradient by a short step, for all images
    python -m tools.run_fast --list                     what would be run, and how much of it is stored

It runs `fast` on each bare network, `fast` on one network behind the layer as if nothing were known about it, and
`adaptive` on each network behind the layer. Behind the layer, `fast` meets the samples first that the stored AutoAttack
breaks: they are cheap, and they bound how much more `fast` leaves standing. The others cost AutoAttack each, so they
come last and are for a GPU. It needs torch, numpy, scipy, safetensors and Pillow, but none of the packages of the
command line. docs/fast.md is made from the store.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any  # what a JSON file holds

import torch
from torch import Tensor

from antiadv.attacks.white_box.fast import step_ratio
from antiadv.core.errors import AntiadvError
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.engine.meter import revision, versions
from antiadv.evaluation import Cell, Resources, Store, evaluate
from antiadv.evaluation.cell import Job
from antiadv.evaluation.plan import make_cell
from antiadv.evaluation.runners.work import Done, Runner, Work
from antiadv.paper.networks import Source
from benchmarks.files import put
from tools.docs.fast import SHORT_STEP, broken_by_autoattack

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
    if a.short_step:
        measure_short_step(a, resources, store.root / SHORT_STEP)
        return 0
    for cell, ids in parts(a, resources, Store(a.stored)):
        if any(word not in title(cell) for word in a.only):
            continue
        done = store.done(cell) if store.root.is_dir() else set()
        print(f"{len(done.intersection(ids)):5d}/{len(ids)} {title(cell)}", flush=True)
        while not a.list and time.monotonic() < end and (todo := [i for i in ids if i not in store.done(cell)]):
            part, start = todo[: a.shard], time.monotonic()
            evaluate([cell], store, batch=a.batch, runner=only(part), resources=resources)
            print(f"      {len(part)} samples in {time.monotonic() - start:.1f} s", flush=True)
    return 0


def only(ids: Sequence[int]) -> Runner:
    """A runner that attacks these samples of a cell, and no others."""

    def run(work: Work, jobs: Iterable[Job]) -> Iterator[Done]:
        yield work(Job(next(iter(jobs)).cell, tuple(ids)))

    return run


def parts(a: argparse.Namespace, resources: Resources, stored: Store) -> Iterator[tuple[Cell, Sequence[int]]]:
    """Cells and their samples, in the order to run them. A network without data or weights is named and left out."""
    names = [(m, "none", "fast") for m in NETWORKS] + [(LUMP, LAYER, "fast")]
    names += [(m, LAYER, "adaptive") for m in NETWORKS]
    last = []
    for model, defence, attack in names:
        try:
            cell = make_cell(
                model=model,
                data=Source(directory=a.data).data("cifar100" if "cifar100" in model else "cifar10"),
                defence=defence,
                attack=attack,
                threat=THREAT,
                samples=range(a.samples),
                precision=a.precision,
                resources=resources,
            )
        except AntiadvError as error:
            print(f"left out: {model} {defence} {attack}: {error}", flush=True)
            continue
        first: Sequence[int] = cell.samples
        if (defence, attack) == (LAYER, "fast"):
            first = sorted(broken_by_autoattack(cell, stored).intersection(cell.samples))
            last.append((cell, [i for i in cell.samples if i not in first]))
        yield cell, first
    yield from last


def measure_short_step(a: argparse.Namespace, resources: Resources, path: Path) -> None:
    """Store how far the ratio that raises the alarm lies from 1, for images that a network classifies right."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for cell, _ in parts(a, resources, Store(a.stored)):
        what = {"model": cell.model, "weights": cell.weights, "images": cell.images, "defence": cell.defence}
        asked = {**what, "threat": str(cell.threat), "n": a.samples}
        name = f"{cell.model} {cell.defence}"
        known = asked.items() <= found.get(name, {}).items()
        if cell.attack != "fast" or known or any(word not in title(cell) for word in a.only):
            continue
        ratios = short_step(cell, resources)
        inside = ratios.isfinite()
        seen = {
            "right": len(ratios),
            "alarms": int((~((ratios >= 0.5) & (ratios <= 1.5))).sum()),
            "least": round(ratios[inside].min().item(), 3),
            "most": round(ratios[inside].max().item(), 3),
        }
        how = {"device": resources.device.type, "versions": versions(), "revision": revision()}
        found[name] = {**asked, **seen, **how}
        put(found, path)
        print(f"{name}: {seen}", flush=True)


def short_step(cell: Cell, resources: Resources) -> Tensor:
    net, dataset = resources.defended(cell.model, cell.defence), resources.data(cell.data)
    ratios = []
    for first in range(0, len(cell.samples), 100):
        ids = cell.samples[first : first + 100]
        x, y = (part.to(resources.device) for part in (dataset.images(ids), dataset.labels(ids)))
        oracle = Oracle(net, cell.threat, Ledger(len(x)))
        right = (oracle.scores(x).argmax(1) == y).nonzero().squeeze(1)
        ratios.append(step_ratio(oracle[right], x[right], y[right], cell.threat.ball).cpu())
    return torch.cat(ratios)


def title(cell: Cell) -> str:
    return f"{cell.attack} on {cell.model}, defence {cell.defence}, {cell.threat}, searched in {cell.precision}"


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--store", default="results/fast")
    p.add_argument("--stored", default="results", help="the store with the records of AutoAttack")
    p.add_argument("--data", help="the folder of imported data sets")
    p.add_argument("--only", action="append", default=[], help="cells whose line holds this; may be repeated")
    p.add_argument("--samples", type=int, default=1000)
    p.add_argument("--precision", default="float32", help="float32, tf32, half or mixed; half on a GPU")
    p.add_argument("--minutes", type=float, default=10.0, help="no shard is begun after that")
    p.add_argument("--shard", type=int, default=500)
    p.add_argument("--batch", type=int, default=1024)
    p.add_argument("--device")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--short-step", action="store_true")
    p.add_argument("--list", action="store_true")
    return p.parse_args()


if __name__ == "__main__":
    sys.exit(main())
