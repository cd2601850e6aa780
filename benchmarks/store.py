"""What the engine costs beside the network: planning, sending, writing and reading a shard, and a store of a million
records planned and reported.

    store.py [--cells 100] [--samples 10000] [--shard 250] [--folder FOLDER] [--out results/bench/store.json]

The unit of all costs is a pass: one image forward through compact:trades on one core, in batches of 256, measured
before and after in the same run. So they can be held against any network by what it costs itself, and nothing here
depends on how fast the machine is that it was measured on. Sizes are in bytes. Records are made up, as incompressible
as real ones: labels, confidences and queries all differ.

    write      a shard of records compressed, flushed and renamed into place; the median, and what it takes on disk
    plan       a store in which all is there; and the same with one more shard asked of each cell
    report     read, check every digest, and report: rows, flags, verdicts
    send       by runner, a shard's way to a worker and back: the time between two answers of a single worker, less the
               time the same shards take in this process (medians); and what travels
    receive    of that, what the driver spends on an answer: unpickling it
    large      to write and to receive a shard twenty times as large
    wait       asking Ray which of a thousand answers is there
    put        the images of the whole set, and a network, through Ray's object store into another process
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import pickle
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from antiadv import data, models
from antiadv.evaluate import Cell, Store, World, make_cell, parse_runner
from antiadv.evaluate.cell import Job, Receipt, Record
from antiadv.evaluate.meter import versions
from antiadv.evaluate.plan import plan
from antiadv.evaluate.shard import Result
from antiadv.evaluate.work import Work
from antiadv.report import report

LARGER = 20  # times, for a shard that a large cluster wants
RECEIPT = Receipt(12.345, 123456, 654321, "cpu x86_64", versions(), "0123456789ab")


class Wrong(nn.Module):
    """Never right, so that nothing is attacked: what is left of a shard is the engine."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(torch.full((len(x),), 10, device=x.device), 11).float() * 9 + x[:, 0, 0, :1]


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def one_pass() -> float:
    """Seconds per image, forward, on one core."""
    net, x = models.load("compact:trades"), data.load("cifar10").images(range(256))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.no_grad():
        times = [seconds(lambda: net(x)) for _ in range(12)][2:]
    torch.set_num_threads(threads)
    return statistics.median(times) / len(x)


def made_up(ids: range, dice: random.Random) -> Iterator[Record]:
    for i in ids:
        y = dice.randrange(10)
        z = dice.choice((y, (y + 1) % 10))
        p, q = (float(f"{dice.random():.6g}") for _ in range(2))
        truth = q if z == y else float(f"{(1 - q) * dice.random():.6g}")
        asked = dice.randrange(10_000)
        yield Record(
            i, y, y, z, y, z, float(f"{dice.random() / 32:.9g}"), asked, 0, 0, p, p, q, truth, 1, 1, int(z == y)
        )


def cells(count: int, samples: range) -> list[Cell]:
    """As many as asked, half of them behind the layer."""
    first = make_cell(model="compact:trades", attack="square", threat="linf:8/255,queries=10000", samples=range(1))
    return [
        dataclasses.replace(first, defence=defence, attack=f"square:steps={1000 + k}", samples=samples)
        for k in range(count // 2)
        for defence in ("none", "anti_adversary")
    ]


def large(a: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The seconds that a store of so many records takes, in parts."""
    asked, store, dice, writes = cells(a.cells, range(a.samples)), Store(folder), random.Random(0), []
    for cell in asked:
        store.prepare(cell)
        for start in range(0, a.samples, a.shard):
            records = list(made_up(range(start, min(a.samples, start + a.shard)), dice))
            writes.append(seconds(lambda c=cell, r=records: store.append(c, r, RECEIPT)))  # type: ignore[misc]
    jobs: list[Job] = []
    done = seconds(lambda: jobs.extend(plan(asked, store.done, a.shard)))
    assert not jobs, "all is there"
    more = [dataclasses.replace(cell, samples=range(a.samples + a.shard)) for cell in asked]
    rest = seconds(lambda: jobs.extend(plan(more, store.done, a.shard)))
    assert len(jobs) == len(asked)
    shown: list[Any] = []
    told = seconds(lambda: shown.append(report(folder)))
    assert sum(row.robust.n for row in shown[0].rows) == a.cells * a.samples
    size = sum(path.stat().st_size for path in folder.rglob("*-*"))
    return {"write": statistics.median(writes), "plan": done, "plan_more": rest, "report": told, "shards": len(writes),
            "bytes_a_shard": round(size / len(writes))}  # fmt: skip


def send(runner: str, samples: int, shards: int) -> dict[str, float]:
    """The time between two answers, here and through one worker; and the bytes that travel."""
    world = World("cpu", models={"wrong": Wrong().eval()})
    cell = make_cell(model="wrong", attack="square", threat="linf:8/255", samples=range(1000), world=world)
    jobs = [Job(cell, tuple(range(k % 4 * samples, (k % 4 + 1) * samples))) for k in range(shards)]
    jobs = [dataclasses.replace(job, cell=dataclasses.replace(cell, seed=k)) for k, job in enumerate(jobs)]
    work = Work(world)
    here, there = (between(parse_runner(name)(work, jobs)) for name in ("local", runner))
    sizes = {"job_bytes": len(pickle.dumps(jobs[0])), "answer_bytes": len(pickle.dumps(work(jobs[0])))}
    return {"seconds": max(0.0, there - here), **sizes}


def driver(samples: int, folder: Path) -> dict[str, float]:
    """Seconds that the driver spends on a shard of so many samples: to receive it and to write it."""
    cell, store, dice, times = cells(2, range(1))[0], Store(folder), random.Random(0), []
    for k in range(12):
        job = Job(cell, tuple(range(k * samples, (k + 1) * samples)))
        records = list(made_up(range(k * samples, (k + 1) * samples), dice))
        answer = pickle.dumps(Result(job, records, RECEIPT, torch.empty(0)))
        heard = seconds(lambda a=answer: pickle.loads(a))  # type: ignore[misc]
        times.append((heard, seconds(lambda r=records: store.append(cell, r, RECEIPT))))  # type: ignore[misc]
    return {"receive": statistics.median(t[0] for t in times), "write": statistics.median(t[1] for t in times)}


def between(answers: Iterator[object]) -> float:
    at = [time.perf_counter() for _ in answers]
    return statistics.median(b - a for a, b in itertools.pairwise(at))


def put() -> dict[str, Any]:
    """Seconds for the images of the slice that comes with the package, and a network, to reach another process."""
    import ray

    images, net = data.load("cifar10"), models.load("compact:trades")

    @ray.remote
    def took(sent: list[Any]) -> float:
        return seconds(lambda: ray.get(sent[0]))

    found: dict[str, Any] = {}
    for name, thing in (("images", images.arrays()[0]), ("network", net)):
        times = []
        for _ in range(5):
            start = time.perf_counter()
            reference = ray.put(thing)
            spent = time.perf_counter() - start
            times.append((spent, ray.get(took.remote([reference]))))
        found[name] = {"bytes": len(pickle.dumps(thing)), "put": statistics.median(t[0] for t in times[1:]),
                       "get": statistics.median(t[1] for t in times[1:])}  # fmt: skip
    return found


def wait(count: int = 1000) -> float:
    """Seconds to ask after so many answers of which none is there."""
    import ray

    @ray.remote
    def sleep() -> None:
        time.sleep(600)

    answers = [sleep.remote() for _ in range(count)]
    asked = statistics.median(seconds(lambda: ray.wait(answers, num_returns=1, timeout=0)) for _ in range(20))
    for answer in answers:
        ray.cancel(answer, force=True)
    return asked


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cells", type=int, default=100)
    p.add_argument("--samples", type=int, default=10_000)
    p.add_argument("--shard", type=int, default=250)
    p.add_argument("--folder", type=Path, help="where the store is made, and removed; by default a temporary folder")
    p.add_argument("--out", type=Path)
    a = p.parse_args()
    torch.set_num_threads(1)
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    before = one_pass()
    folder = Path(tempfile.mkdtemp(dir=a.folder))
    try:
        whole = large(a, folder)
        small, large_one = (driver(n, folder / str(n)) for n in (a.shard, LARGER * a.shard))
    finally:
        shutil.rmtree(folder)
    ways = {name: send(text, a.shard, 60) for name, text in (("processes", "processes:1"), ("ray", "ray:workers=1"))}
    through, asked = put(), wait()
    unit = statistics.mean((before, one_pass()))
    records = a.cells * a.samples
    said = {
        "what": "costs in passes: one image forward through compact:trades on one core, in the same run",
        "versions": versions() | {"ray": ray.__version__},
        "records": records,
        "cells": a.cells,
        "shard": a.shard,
        "shards": whole["shards"],
        "write_a_shard": whole["write"] / unit,
        "bytes_a_shard": whole["bytes_a_shard"],
        "plan": whole["plan"] / unit,
        "plan_one_more_shard_a_cell": whole["plan_more"] / unit,
        "report": whole["report"] / unit,
        "report_a_record": whole["report"] / unit / records,
        "send_a_shard": {name: way["seconds"] / unit for name, way in ways.items()},
        "receive_a_shard": small["receive"] / unit,
        "large_shard": LARGER * a.shard,
        "write_a_large_shard": large_one["write"] / unit,
        "receive_a_large_shard": large_one["receive"] / unit,
        "wait_for_a_thousand": asked / unit,
        "job_bytes": ways["ray"]["job_bytes"],
        "answer_bytes": ways["ray"]["answer_bytes"],
        "object_store": {name: {"bytes": t["bytes"], "put": t["put"] / unit, "get": t["get"] / unit}
                         for name, t in through.items()},
    }  # fmt: skip
    text = json.dumps(_rounded(said), indent=1)
    print(text)
    print(f"planned in {whole['plan']:.1f} s, reported in {whole['report']:.1f} s on this machine")
    if a.out:
        a.out.parent.mkdir(parents=True, exist_ok=True)
        a.out.write_text(text + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return float(f"{value:.3g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
