"""What the test bench costs compared with the network: planning, sending, writing and reading shards, reporting.

    python -m benchmarks.store [--cells 100] [--samples 10000] [--shard 250] [--folder DIR]
                               [--out results/bench/store.json]

All times are in passes: one image forward through compact:trades on one core, in batches of 256, measured before and
after in the same run. So the costs can be compared with any network, and do not depend on the speed of the machine.
Sizes are in bytes. The records are made up, and compress as badly as real ones: labels, confidences and queries differ.

    write      compress a shard of records, flush it and rename it into place: the median, and its size on disk
    plan       plan a store in which nothing is missing; and the same with one more shard asked for each cell
    report     read everything, check every digest, and report rows, flags and verdicts
    send       by runner: the time between two answers of a single worker, less the time that the same shards take in
               this process (medians); and the sizes of what is sent
    receive    the part of `send` that the driver spends on an answer: unpickling it
    large      write and receive a shard that is twenty times as large
    wait       ask Ray which of a thousand answers is ready
    put        move the images of the data set, and a network, through Ray's object store into another process
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
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from antiadv import data, models
from antiadv.engine.meter import versions
from antiadv.evaluation import Cell, Resources, Store, make_cell, parse_runner
from antiadv.evaluation.cell import Job, Receipt, Record
from antiadv.evaluation.plan import plan
from antiadv.evaluation.runners.work import Work
from antiadv.evaluation.shard import Result
from antiadv.reporting import report
from benchmarks.timing import one_thread

LARGER = 20  # times: the size of a shard that a large cluster wants
RECEIPT = Receipt(12.345, 123456, 654321, "cpu x86_64", versions(), "0123456789ab")


class Wrong(nn.Module):
    """A network that is never right, so nothing is attacked, and a shard costs only what the test bench costs."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(torch.full((len(x),), 10, device=x.device), 11).float() * 9 + x[:, 0, 0, :1]


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def one_pass() -> float:
    """Return the seconds of a forward pass of one image on one core."""
    net, x = models.load("compact:trades"), data.load("cifar10").images(range(256))
    with one_thread(), torch.no_grad():
        times = [seconds(lambda: net(x)) for _ in range(12)][2:]
    return statistics.median(times) / len(x)


# ---------------------------------------------------------------- a store of made-up records


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
    """Return that many cells, half of them with the layer."""
    first = make_cell(model="compact:trades", attack="square", threat="linf:8/255,queries=10000", samples=range(1))
    return [
        dataclasses.replace(first, defence=defence, attack=f"square:steps={1000 + k}", samples=samples)
        for k in range(count // 2)
        for defence in ("none", "anti_adversary")
    ]


def large_store(a: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Fill a store, plan it and report it. Return the seconds of each part."""
    asked, store = cells(a.cells, range(a.samples)), Store(folder)
    writes = list(fill(store, asked, a.samples, a.shard))
    jobs: list[Job] = []
    planned = seconds(lambda: jobs.extend(plan(asked, store.done, a.shard)))
    assert not jobs, "nothing is missing"
    more = [dataclasses.replace(cell, samples=range(a.samples + a.shard)) for cell in asked]
    planned_more = seconds(lambda: jobs.extend(plan(more, store.done, a.shard)))
    assert len(jobs) == len(asked)
    shown: list[Any] = []
    reported = seconds(lambda: shown.append(report(folder)))
    assert sum(row.robust.n for row in shown[0].rows) == a.cells * a.samples
    size = sum(path.stat().st_size for path in folder.rglob("*-*"))
    return {
        "write": statistics.median(writes),
        "plan": planned,
        "plan_more": planned_more,
        "report": reported,
        "shards": len(writes),
        "bytes_a_shard": round(size / len(writes)),
    }


def fill(store: Store, asked: list[Cell], samples: int, shard: int) -> Iterator[float]:
    """Write every cell shard by shard. Yield the seconds of each write."""
    dice = random.Random(0)
    for cell in asked:
        store.prepare(cell)
        for start in range(0, samples, shard):
            records = list(made_up(range(start, min(samples, start + shard)), dice))
            yield seconds(partial(store.append, cell, records, RECEIPT))


def driver(samples: int, folder: Path) -> dict[str, float]:
    """Return the seconds that the driver spends on a shard of that many samples: to receive it and to write it."""
    cell, store, dice, times = cells(2, range(1))[0], Store(folder), random.Random(0), []
    for k in range(12):
        job = Job(cell, tuple(range(k * samples, (k + 1) * samples)))
        records = list(made_up(range(k * samples, (k + 1) * samples), dice))
        answer = pickle.dumps(Result(job, records, RECEIPT, torch.empty(0)))
        received = seconds(partial(pickle.loads, answer))
        times.append((received, seconds(partial(store.append, cell, records, RECEIPT))))
    return {"receive": statistics.median(t[0] for t in times), "write": statistics.median(t[1] for t in times)}


# ---------------------------------------------------------------- sending work


def send(runner: str, samples: int, shards: int) -> dict[str, float]:
    """Return the extra time between two answers of one worker, and the bytes that are sent."""
    resources = Resources("cpu", models={"wrong": Wrong().eval()})
    cell = make_cell(model="wrong", attack="square", threat="linf:8/255", samples=range(1000), resources=resources)
    jobs = [Job(cell, tuple(range(k % 4 * samples, (k % 4 + 1) * samples))) for k in range(shards)]
    jobs = [dataclasses.replace(job, cell=dataclasses.replace(cell, seed=k)) for k, job in enumerate(jobs)]
    work = Work(resources)
    here, there = (between(parse_runner(name)(work, jobs)) for name in ("local", runner))
    sizes = {"job_bytes": len(pickle.dumps(jobs[0])), "answer_bytes": len(pickle.dumps(work(jobs[0])))}
    return {"seconds": max(0.0, there - here), **sizes}


def between(answers: Iterator[object]) -> float:
    """Return the median time between two answers."""
    at = [time.perf_counter() for _ in answers]
    return statistics.median(b - a for a, b in itertools.pairwise(at))


def put() -> dict[str, Any]:
    """Return the seconds in which the embedded images, and a network, reach another process."""
    import ray

    images, net = data.load("cifar10"), models.load("compact:trades")

    def fetch(sent: list[Any]) -> float:
        return seconds(lambda: ray.get(sent[0]))

    remote = ray.remote(fetch)

    found: dict[str, Any] = {}
    for name, thing in (("images", images.arrays()[0]), ("network", net)):
        times = []
        for _ in range(5):
            start = time.perf_counter()
            reference = ray.put(thing)
            spent = time.perf_counter() - start
            times.append((spent, ray.get(remote.remote([reference]))))
        put_seconds, get_seconds = (statistics.median(column) for column in zip(*times[1:], strict=True))
        found[name] = {"bytes": len(pickle.dumps(thing)), "put": put_seconds, "get": get_seconds}
    return found


def wait(count: int = 1000) -> float:
    """Return the seconds of asking for that many answers when none is ready."""
    import ray

    def sleep() -> None:
        time.sleep(600)

    remote = ray.remote(sleep)
    answers = [remote.remote() for _ in range(count)]
    asked = statistics.median(seconds(lambda: ray.wait(answers, num_returns=1, timeout=0)) for _ in range(20))
    for answer in answers:
        ray.cancel(answer, force=True)
    return asked


# ---------------------------------------------------------------- command line


def measure(a: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the facts, in passes, and the seconds of the large store."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    before = one_pass()
    folder = Path(tempfile.mkdtemp(dir=a.folder))
    try:
        whole = large_store(a, folder)
        small, large = (driver(n, folder / str(n)) for n in (a.shard, LARGER * a.shard))
    finally:
        shutil.rmtree(folder)
    ways = {name: send(text, a.shard, 60) for name, text in (("processes", "processes:1"), ("ray", "ray:workers=1"))}
    through, asked = put(), wait()
    unit = statistics.mean((before, one_pass()))
    records = a.cells * a.samples
    return {
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
        "write_a_large_shard": large["write"] / unit,
        "receive_a_large_shard": large["receive"] / unit,
        "wait_for_a_thousand": asked / unit,
        "job_bytes": ways["ray"]["job_bytes"],
        "answer_bytes": ways["ray"]["answer_bytes"],
        "object_store": {
            name: {"bytes": t["bytes"], "put": t["put"] / unit, "get": t["get"] / unit} for name, t in through.items()
        },
    }, whole


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cells", type=int, default=100)
    p.add_argument("--samples", type=int, default=10_000)
    p.add_argument("--shard", type=int, default=250)
    p.add_argument("--folder", type=Path, help="where the store is made and removed; by default a temporary folder")
    p.add_argument("--out", type=Path)
    a = p.parse_args()
    torch.set_num_threads(1)
    facts, whole = measure(a)
    text = json.dumps(_rounded(facts), indent=1)
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
