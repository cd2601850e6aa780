"""Run the cells of the paper's tables for a number of minutes, the most informative first. Every call resumes.

    python -m tools.run_paper --experiments table-3,table-2 --store DIR --precision tf32 --minutes 20 --data DIR
    python -m tools.run_paper --list                    what would be run, in which order, and what is stored
    for i in 1 2 3 4; do python -m tools.run_paper --processes 4 … & done; wait      four at once into one store

It needs torch, numpy, scipy, safetensors and Pillow, but none of the packages of the command line. The order is that of
`experiments.todo`. Several processes on one machine may share a store: each locks the cell it works on, and the lock
ends with the process. A cell is stored shard by shard. A shard is not begun if it is not expected to end in time. A
cell that is complete in any precision is not run again in another.
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

from antiadv import paper
from antiadv.evaluation import Cell, Resources, Store, evaluate
from antiadv.paper.missing_cells import as_stored, in_order, resolve
from antiadv.paper.networks import Source
from antiadv.paper.table_layout import CellRequest
from antiadv.reporting.measures import clean_accuracy, robust_accuracy
from tools.pace import Pace, cost

COMPILE = "compile first: half a minute or so each network, faster afterwards"
SLACK = 1.2  # a shard is expected to last so much longer than guessed
RATES = {"cuda": 30_000.0, "cpu": 15.0}  # cost per second of all processes together, until it is measured


def main() -> int:
    a = arguments()
    end = time.monotonic() + 60 * a.minutes
    resources, store = Resources(a.device, compiled=a.compile), Store(a.store)
    names = list(paper.EXPERIMENTS) if a.experiments == "all" else a.experiments.split(",")
    layouts = {n: paper.find(n).layout(Source(a.networks, a.data), a.samples) for n in names}
    asks = [ask for ask in in_order(layouts) if all(word in str(ask) for word in a.only)]
    asks = [ask for ask in asks if not any(word in str(ask) for word in a.without)]
    cells, missing = resolve(asks, a.precision, resources)
    for why in dict.fromkeys(m.why for m in missing):
        print(f"missing: {sum(m.why == why for m in missing)} cells: {why}", flush=True)
    lost = {m.request.names for m in missing}
    found = zip([ask for ask in asks if ask.names not in lost], cells, strict=True)
    todo = [(ask, as_stored(cell, store)) for ask, cell in found]
    if a.list:
        for ask, cell in todo:
            print(f"{len(store.done(cell)):5d}/{ask.samples} {cost(ask):12.0f} {ask}")
        return 0
    return run_all(todo, store, resources, end, a)


@contextlib.contextmanager
def alone(cell: Cell, store: Store) -> Iterator[bool]:
    """Lock a cell of a store against other processes on this machine. Yields whether the lock was free."""
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


def run_all(
    todo: list[tuple[CellRequest, Cell]], store: Store, resources: Resources, end: float, a: argparse.Namespace
) -> int:
    """Run the cells in turn until the time is up. Return 1 if any failed, else 0."""
    pace, start, failed = Pace(RATES[resources.device.type] / a.processes), time.monotonic(), 0
    for ask, cell in todo:
        try:
            with alone(cell, store) as mine:
                done, seconds = run_cell(ask, cell, store, resources, end, pace, a) if mine else (0, 0.0)
        except Exception:
            failed += 1
            print(f"FAILED {ask}\n{traceback.format_exc()}", flush=True)
            continue
        if done:
            print(f"{time.monotonic() - start:6.0f} s: {summary(cell, store)} in {seconds:.1f} s, {ask}", flush=True)
    left = sum(bool(set(cell.samples) - store.done(cell)) for _, cell in todo)
    complete = f"{len(todo) - left} of {len(todo)} cells are complete, {failed} failed"
    print(f"{time.monotonic() - start:6.0f} s: {complete}; run it again to go on", flush=True)
    return 1 if failed else 0


def run_cell(
    ask: CellRequest, cell: Cell, store: Store, resources: Resources, end: float, pace: Pace, a: argparse.Namespace
) -> tuple[int, float]:
    """Run as much of a cell as fits. Return how many samples were done, and in how many seconds."""
    kind = (cell.attack, cell.defence, cell.model)
    each, done, began = cost(ask) / ask.samples, 0, time.monotonic()
    while todo := sorted(set(cell.samples) - store.done(cell)):
        part = todo[: a.shard]
        guess = SLACK * pace.predict(kind, each * len(part))
        if time.monotonic() + guess > end:
            break
        start = time.monotonic()
        some = dataclasses.replace(cell, samples=range(part[0], part[-1] + 1))
        evaluate([some], store, shard=a.shard, batch=a.batch, resources=resources)
        pace.record(kind, each * len(part), time.monotonic() - start)
        done += len(part)
    return done, time.monotonic() - began


def summary(cell: Cell, store: Store) -> str:
    records = store.read(cell)
    robust = robust_accuracy(records, cell.threat.ball)
    return f"{len(records)} samples, clean {100 * clean_accuracy(records).value:.1f}, robust {robust}"


def parser(text: str | None, store: str, minutes: float, samples: int | None = None) -> argparse.ArgumentParser:
    """The options that this program shares with `run_gate` and `run_league`."""
    p = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--store", default=store)
    p.add_argument("--minutes", type=float, default=minutes, help="from the start of this process")
    p.add_argument("--samples", type=int, default=samples, help="samples of every cell")
    p.add_argument("--only", action="append", default=[], help="cells whose text holds this; may be repeated")
    p.add_argument("--data", help="the folder of imported data sets, and of resnet50.pt or resnet50-v1.pt")
    p.add_argument("--device")
    p.add_argument("--shard", type=int, default=500)
    p.add_argument("--batch", type=int, default=1024)
    p.add_argument("--processes", type=int, default=1, help="how many share the machine and the store")
    p.add_argument("--list", action="store_true")
    return p


def arguments() -> argparse.Namespace:
    p = parser(__doc__, "results", minutes=10.0)
    p.add_argument("--experiments", default="all", help="names with commas between; all of them by default")
    p.add_argument("--precision", default="float32", help="float32, tf32, half or mixed")
    p.add_argument("--networks", default="zoo", help="zoo, or official:DIR")
    p.add_argument("--without", action="append", default=[], help="cells whose text does not hold this")
    p.add_argument("--compile", action="store_true", help=COMPILE)
    return p.parse_args()


if __name__ == "__main__":
    sys.exit(main())
