"""A process of its own that evaluates the exact toy, for tests that kill it.

    python -m tests.system.driver STORE SHARD [--pause S] [--die-in-write N] [--wait FILE] [--keep-images] [--lives N]

--pause        seconds to rest after each stored shard, so that a killer can find it at work
--die-in-write SIGKILL itself inside the N-th file, when it is written beside and not yet renamed
--wait         say ready (FILE.PID), and start when this file appears
--lives        fork, kill the child at a random moment, and fork again to resume, until so many were killed; a line of
               JSON for each: what lay in the store before, what was begun, what lies there after
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import torch

from antiadv.evaluation import Cell, Progress, Store, evaluate
from antiadv.evaluation.cell import Job
from antiadv.evaluation.shard import Result
from tests.engine.probes import cell, resources

SAMPLES = range(120)


def asked() -> list[Cell]:
    return [cell("pgd:steps=3", SAMPLES, threat="linf:4/255"), cell("square:steps=8", SAMPLES, threat="linf:4/255")]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    parser.add_argument("shard", type=int)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--die-in-write", type=int, default=0)
    parser.add_argument("--wait", type=Path)
    parser.add_argument("--keep-images", action="store_true")
    parser.add_argument("--lives", type=int, default=0)
    said = parser.parse_args()
    torch.set_num_threads(1)
    if said.die_in_write:
        die_in_write(said.die_in_write)
    cells = asked()
    if said.lives:
        live_and_die(said.store, said.shard, said.lives)
        return
    if said.wait is not None:
        said.wait.with_suffix(f".{os.getpid()}").touch()
        while not said.wait.exists():
            time.sleep(0.002)

    def rest(p: Progress) -> None:
        time.sleep(said.pause)

    evaluate(cells, said.store, shard=said.shard, resources=resources(), keep_images=said.keep_images, progress=rest)


def die_in_write(count: int) -> None:
    """Replace the flush between writing and renaming by death, the count-th time it is reached."""
    flush, reached = os.fsync, iter(range(1, count))

    def fsync(fd: int) -> None:
        if next(reached, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        flush(fd)

    os.fsync = fsync  # type: ignore[assignment]


def live_and_die(root: Path, shard: int, lives: int) -> None:
    """A life is killed at a random moment after it began a few shards, so that they end all over the run. When a store
    is complete before they are through, they begin another one."""
    start = time.monotonic()
    work(root / "unbroken", shard)
    each, dice = (time.monotonic() - start) * shard / (len(asked()) * len(SAMPLES)), random.Random(0)
    number = killed = 0
    while killed < lives:
        store = root / str(number)
        before, (begun, died) = stored(store), life(store, shard, dice.randint(1, 4), dice.uniform(0, 2 * each))
        after = stored(store)
        told = sum(len(Store(store).read(cell)) for cell in asked())  # refuses what is not whole
        assert told == shard * len(after), "every file has all its records"
        print(json.dumps({"store": number, "before": before, "begun": begun, "after": after, "killed": died}))  # noqa: T201
        killed, number = killed + died, number + (not died)


def life(store: Path, shard: int, count: int, seconds: float) -> tuple[list[str], bool]:
    """The shards that a child began, and whether it was at work still when it was killed: so many seconds after it
    began the count-th shard, however busy the machine is."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reading)
        work(store, shard, lambda job: os.write(writing, f"{shard_name(job)}\n".encode()))
        os._exit(0)
    os.close(writing)
    with open(reading) as told:
        begun = list(islice(told, count))
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        begun += told
    return [line.rstrip() for line in begun], os.WIFSIGNALED(status)


def work(store: Path, shard: int, begin: Callable[[Job], object] = lambda job: None) -> None:
    def runner(run: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        for job in jobs:
            begin(job)
            yield run(job)

    evaluate(asked(), store, shard=shard, resources=resources(), runner=runner, keep_images=True)


def stored(store: Path) -> list[str]:
    return sorted(f"{path.parent.name}/{path.name.partition('.')[0]}" for path in store.glob("*/*.json.?z"))


def shard_name(job: Job) -> str:
    return f"{job.cell.key}/{job.ids[0]:06d}-{job.ids[-1]:06d}-{len(job.ids)}"


if __name__ == "__main__":
    main()
