"""A separate process that evaluates the exact toy, for tests that kill it.

    python -m tests.system.driver STORE SHARD [--pause S] [--die-in-write N] [--wait FILE] [--keep-images] [--lives N]

--pause        seconds to wait after each stored shard, so that a test can kill it while it runs
--die-in-write SIGKILL itself at the N-th file, after it is written and before it is renamed
--wait         create FILE.PID, and start when FILE appears
--lives        fork, kill the child at a random moment, and fork again to resume, until N were killed; one line of JSON
               for each: the shards stored before, started, and stored after
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
from antiadv.evaluation.runners.work import Done
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
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.die_in_write:
        die_in_write(options.die_in_write)
    cells = asked()
    if options.lives:
        live_and_die(options.store, options.shard, options.lives)
        return
    if options.wait is not None:
        options.wait.with_suffix(f".{os.getpid()}").touch()
        while not options.wait.exists():
            time.sleep(0.002)

    def rest(p: Progress) -> None:
        time.sleep(options.pause)

    evaluate(
        cells, options.store, shard=options.shard, resources=resources(), keep_images=options.keep_images, progress=rest
    )


def die_in_write(count: int) -> None:
    """Kill this process at the count-th flush, which is between writing and renaming a file."""
    flush, reached = os.fsync, iter(range(1, count))

    def fsync(fd: int) -> None:
        if next(reached, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        flush(fd)

    os.fsync = fsync  # type: ignore[assignment]


def live_and_die(root: Path, shard: int, lives: int) -> None:
    """Kill each child at a random moment after it started a few shards. When a store is complete, start another."""
    start = time.monotonic()
    work(root / "unbroken", shard)
    each, chance = (time.monotonic() - start) * shard / (len(asked()) * len(SAMPLES)), random.Random(0)
    number = killed = 0
    while killed < lives:
        store = root / str(number)
        before, (begun, died) = stored(store), life(store, shard, chance.randint(1, 4), chance.uniform(0, 2 * each))
        after = stored(store)
        records = sum(len(Store(store).read(cell)) for cell in asked())  # raises if a file is damaged
        assert records == shard * len(after), "every file has all its records"
        print(json.dumps({"store": number, "before": before, "begun": begun, "after": after, "killed": died}))  # noqa: T201
        killed, number = killed + died, number + (not died)


def life(store: Path, shard: int, count: int, seconds: float) -> tuple[list[str], bool]:
    """Start a child and kill it some seconds after it started its count-th shard.

    → the shards that it started, and whether it was still running when it was killed.
    """
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.close(reading)
        work(store, shard, lambda job: os.write(writing, f"{shard_name(job)}\n".encode()))
        os._exit(0)
    os.close(writing)
    with open(reading) as lines:
        begun = list(islice(lines, count))
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        begun += lines
    return [line.rstrip() for line in begun], os.WIFSIGNALED(status)


def work(store: Path, shard: int, begin: Callable[[Job], object] = lambda job: None) -> None:
    def runner(run: Callable[[Job], Done], jobs: Iterable[Job]) -> Iterator[Done]:
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
