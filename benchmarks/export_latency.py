"""What an exported layer costs: latency in ONNX Runtime and in PyTorch, bare and defended, on a CPU.

    python -m benchmarks.export_latency [--model compact:trades] [--steps 2] [--batches 1,8,64] [--threads 1,2]
                                        [--repeats 30] [--out FILE]

    eager bare, eager layer     PyTorch, as the library runs them
    onnx bare, onnx layer       the exported files, in ONNX Runtime

Both files are exported and checked in this run. The sides are called in turn, each with the same number of threads.
Before each timed call there is a rest and a call that is not timed: the idle threads of one library keep a core busy
for a while, and would slow down the next one.
Minima and medians of the milliseconds are kept. The minimum is the one to trust on a shared machine. Targets:

    floor     onnx layer ≤ 1.15 · (2K + 1) · onnx bare          a backward pass costs at least a forward pass
    faster    onnx layer ≤ ½ · eager layer                      with one image
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any  # what a json file holds

import torch
from torch import Tensor, nn

from antiadv import AntiAdversary, data, models
from antiadv.engine.meter import revision
from antiadv.serving.bundle import Bundle
from antiadv.serving.export import export
from benchmarks.files import put
from benchmarks.timing import OtherPrograms

FLOOR, FASTER = 1.15, 2.0
REST = 0.05  # seconds
CHECKED = 200  # images
SIDES = ("eager bare", "eager layer", "onnx bare", "onnx layer")

Facts = dict[str, Any]


def measure(model: str, steps: int, batches: Sequence[int], threads: Sequence[int], repeats: int) -> Facts:
    f, images = models.load(model), data.load("cifar10").images(range(max(CHECKED, *batches)))
    layer = AntiAdversary(f, steps, 0.15)
    with tempfile.TemporaryDirectory() as folder:
        bare, defended = (
            export(net, images[:CHECKED], Path(folder) / name) for name, net in (("bare", f), ("layer", layer))
        )
        found: Facts = {"command": shlex.join(["python", "-m", "benchmarks.export_latency", *sys.argv[1:]])}
        found |= {"model": model, "weights": models.digest(f), "steps": steps, "repeats": repeats}
        found |= {"versions": defended.card["versions"], "revision": revision(), "checks": {}}
        found["checks"] = {"bare": bare.card["check"], "layer": defended.card["check"]}
        with OtherPrograms() as others:
            found["runs"] = [
                _run(sides, images[:batch], count, repeats, steps)
                for count in threads
                for sides in [_sides(f, layer, bare, defended, count)]
                for batch in batches
            ]
        found["other_programs"] = others.share
    return {**found, "verdict": verdict(found)}


def _sides(
    f: nn.Module, layer: nn.Module, bare: Bundle, defended: Bundle, threads: int
) -> dict[str, Callable[[Tensor], Any]]:
    torch.set_num_threads(threads)
    first, second = (bundle.unchecked(threads=threads) for bundle in (bare, defended))
    calls = (f, layer, lambda x: first.run(x.numpy()), lambda x: second.run(x.numpy()))
    return dict(zip(SIDES, calls, strict=True))


def _run(sides: dict[str, Callable[[Tensor], Any]], x: Tensor, threads: int, repeats: int, steps: int) -> Facts:
    with torch.no_grad():
        times = {name: list[float]() for name in sides}
        for _ in range(repeats if len(x) < 64 else max(5, repeats // 4)):
            for name, side in sides.items():
                time.sleep(REST)
                side(x)
                start = time.perf_counter()
                side(x)
                times[name].append(1e3 * (time.perf_counter() - start))
    least = {name: min(t) for name, t in times.items()}
    middle = {name: statistics.median(t) for name, t in times.items()}
    return {
        "threads": threads,
        "batch": len(x),
        "minimum_ms": {name: round(t, 3) for name, t in least.items()},
        "median_ms": {name: round(t, 3) for name, t in middle.items()},
        "times_the_floor": round(least["onnx layer"] / least["onnx bare"] / (2 * steps + 1), 3),
        "faster_than_eager": round(least["eager layer"] / least["onnx layer"], 3),
    }


def verdict(found: Facts) -> Facts:
    """Whether the minima meet the targets, in all runs and in those with one image."""
    near = all(run["times_the_floor"] <= FLOOR for run in found["runs"])
    fast = all(run["faster_than_eager"] >= FASTER for run in found["runs"] if run["batch"] == 1)
    return {"floor": FLOOR, "near": near, "faster": FASTER, "fast": fast, "met": near and fast}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="compact:trades")
    p.add_argument("--steps", type=int, default=2)
    p.add_argument("--batches", default="1,8,64")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--repeats", type=int, default=30)
    p.add_argument("--out", type=Path)
    a = p.parse_args()
    batches, threads = ([int(n) for n in text.split(",")] for text in (a.batches, a.threads))
    found = measure(a.model, a.steps, batches, threads, a.repeats)
    print(json.dumps(found, indent=1))
    if a.out:
        put(found, a.out)


if __name__ == "__main__":
    main()
