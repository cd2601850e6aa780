"""Run the cells of the paper's tables on a GPU, the telling ones first, for so many minutes; every call resumes.

    run_paper.py --experiments table-3,table-2 --store DIR --precision tf32 --minutes 20 --data DIR
    run_paper.py --list                                     what would be run, in which order, and what is stored
    for i in 1 2 3 4; do run_paper.py --processes 4 … & done; wait      four at once into one store

Needs torch, numpy, scipy, safetensors and Pillow, and nothing of the command line. The order is that of
`experiments.todo`. Processes on one machine that share a store take the cells in turn: who works on one holds a lock
of its name, which ends with the process however that ends. A cell is stored shard by shard, and a shard is not begun
that is not expected to end in time. What is whole in any precision is not run again in another.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import hashlib
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # the package need not be installed here

from antiadv import experiments
from antiadv.evaluate import Cell, Store, World, evaluate
from antiadv.experiments.layout import Ask
from antiadv.experiments.networks import Source
from antiadv.experiments.todo import Pace, as_stored, cost, in_order, resolve
from antiadv.report.measures import clean_accuracy, robust_accuracy

SLACK = 1.2  # a shard is taken to last so much longer than guessed
RATES = {"cuda": 30_000.0, "cpu": 15.0}  # cost a second of all processes together, before anything was measured


def main() -> int:
    a = arguments()
    end = time.monotonic() + 60 * a.minutes
    world, store = World(a.device, compiled=a.compile), Store(a.store)
    names = list(experiments.EXPERIMENTS) if a.experiments == "all" else a.experiments.split(",")
    layouts = {n: experiments.find(n).layout(Source(a.networks, a.data), a.samples) for n in names}
    asks = [ask for ask in in_order(layouts) if all(word in str(ask) for word in a.only)]
    asks = [ask for ask in asks if not any(word in str(ask) for word in a.without)]
    cells, missing = resolve(asks, a.precision, world)
    for why in dict.fromkeys(m.why for m in missing):
        print(f"missing: {sum(m.why == why for m in missing)} cells: {why}", flush=True)
    lost = {m.ask.words for m in missing}
    found = zip([ask for ask in asks if ask.words not in lost], cells, strict=True)
    todo = [(ask, as_stored(cell, store)) for ask, cell in found]
    if a.list:
        for ask, cell in todo:
            print(f"{len(store.done(cell)):5d}/{ask.samples} {cost(ask):12.0f} {ask}")
        return 0
    return run(todo, store, world, end, a)


@contextlib.contextmanager
def alone(cell: Cell, store: Store) -> Iterator[bool]:
    """Whether no other process here works on this cell of this store; none does while this lasts."""
    name = hashlib.sha256(str(store.root.resolve()).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir(), f"antiadv-paper-{name}")
    folder.mkdir(exist_ok=True)
    with open(folder / cell.key, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def run(todo: list[tuple[Ask, Cell]], store: Store, world: World, end: float, a: argparse.Namespace) -> int:
    pace, start, failed = Pace(RATES[world.device.type] / a.processes), time.monotonic(), 0
    for ask, cell in todo:
        try:
            with alone(cell, store) as mine:
                done, seconds = work(ask, cell, store, world, end, pace, a) if mine else (0, 0.0)
        except Exception:
            failed += 1
            print(f"FAILED {ask}\n{traceback.format_exc()}", flush=True)
            continue
        if done:
            print(f"{time.monotonic() - start:6.0f} s: {summary(cell, store)} in {seconds:.1f} s, {ask}", flush=True)
    left = sum(bool(set(cell.samples) - store.done(cell)) for _, cell in todo)
    whole = f"{len(todo) - left} of {len(todo)} cells are whole, {failed} failed"
    print(f"{time.monotonic() - start:6.0f} s: {whole}; run it again to go on", flush=True)
    return 1 if failed else 0


def work(
    ask: Ask, cell: Cell, store: Store, world: World, end: float, pace: Pace, a: argparse.Namespace
) -> tuple[int, float]:
    """As much of a cell as fits: how many samples were done, and in how many seconds."""
    kind = (cell.attack, cell.defence, cell.model)
    each, done, began = cost(ask) / ask.samples, 0, time.monotonic()
    while todo := sorted(set(cell.samples) - store.done(cell)):
        part = todo[: a.shard]
        guess = SLACK * pace.guess(kind, each * len(part))
        if time.monotonic() + guess > end:
            break
        start = time.monotonic()
        some = dataclasses.replace(cell, samples=range(part[0], part[-1] + 1))
        evaluate([some], store, shard=a.shard, batch=a.batch, world=world)
        pace.tell(kind, each * len(part), time.monotonic() - start)
        done += len(part)
    return done, time.monotonic() - began


def summary(cell: Cell, store: Store) -> str:
    records = store.read(cell)
    robust = robust_accuracy(records, cell.threat.ball)
    return f"{len(records)} samples, clean {100 * clean_accuracy(records).value:.1f}, robust {robust}"


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--experiments", default="all", help="names with commas between; all of them by default")
    p.add_argument("--store", default="results")
    p.add_argument("--samples", type=int, help="so many for every cell, in place of each table's own number")
    p.add_argument("--precision", default="float32", help="float32, tf32, half or mixed")
    p.add_argument("--minutes", type=float, default=10.0, help="from the start of this process")
    p.add_argument(
        "--processes", type=int, default=1, help="how many share the machine: for the first guess at the pace"
    )
    p.add_argument("--networks", default="zoo", help="zoo, or official:DIR")
    p.add_argument("--data", help="the folder of imported data sets, and of resnet50.pt or resnet50-v1.pt")
    p.add_argument("--only", action="append", default=[], help="cells whose text holds this; may be repeated")
    p.add_argument("--without", action="append", default=[], help="cells whose text does not hold this")
    p.add_argument("--shard", type=int, default=500)
    p.add_argument("--batch", type=int, default=1024)
    p.add_argument("--device")
    p.add_argument("--compile", action="store_true", help="first: half a minute or so each network, faster afterwards")
    p.add_argument("--list", action="store_true")
    return p.parse_args()


if __name__ == "__main__":
    sys.exit(main())
