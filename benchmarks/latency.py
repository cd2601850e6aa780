"""What the layer costs a service: its latency compared with the authors' structure, and with its floor.

    python -m benchmarks.latency [--device cuda] [--batches 1,64,512] [--precision tf32] [--steps 2]
                                 [--compile] [--out FILE]

    authors    `Authors(f)`: K + 2 forwards and K backwards, in plain PyTorch
    ours       `Replayed(AntiAdversary(f))`: K + 1 forwards and K backwards, on a GPU in one captured graph
    floor      2K + 1 forwards of f, captured as well: a backward pass to the images costs at least a forward

With --compile, ours and the floor on a compiled network.

The network is a PreActResNet-18 of width 64 with random weights; the latency does not depend on them. The sides are
called in turn, each call synchronised. The calls form five rounds. Each round gives a ratio of medians; the median,
minimum and maximum of these ratios are kept. Absolute times are kept for a GPU only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any  # what a json file holds

import torch
from torch import Tensor

from antiadv import AntiAdversary, models
from antiadv.engine.fast import Replayed
from antiadv.engine.meter import revision, versions
from antiadv.engine.switches import switched
from benchmarks.authors import Authors
from benchmarks.files import put

FASTER = {1: 10.0, 64: 4.5, 512: 2.0}  # target by batch size: times faster than the authors' structure
FLOOR = 1.25  # target: at most so many times the floor
ROUNDS = 5

Facts = dict[str, Any]


def timed(sides: Mapping[str, Callable[[Tensor], Tensor]], x: Tensor, repeats: int) -> dict[str, list[float]]:
    """Return the milliseconds of each call of each side. The sides take turns, after three calls to warm up."""
    wait: Callable[[], object] = torch.cuda.synchronize if x.is_cuda else lambda: None
    times: dict[str, list[float]] = {name: [] for name in sides}
    for k in range(repeats + 3):
        for name, side in sides.items():
            wait()
            start = time.perf_counter()
            side(x)
            wait()
            if k >= 3:
                times[name].append(1e3 * (time.perf_counter() - start))
    return times


def spread(over: Sequence[float], under: Sequence[float], scale: float = 1.0) -> Facts:
    """Return median, minimum and maximum over the rounds of `scale · median(over) / median(under)`."""
    each = max(1, len(over) // ROUNDS)
    cuts = range(0, len(over) - each + 1, each)
    ratios = [scale * statistics.median(over[k : k + each]) / statistics.median(under[k : k + each]) for k in cuts]
    return {"median": round(statistics.median(ratios), 3), "low": round(min(ratios), 3), "high": round(max(ratios), 3)}


def measure(
    model: str,
    steps: int,
    batches: Sequence[int],
    device: torch.device,
    precision: str,
    repeats: int,
    compiled: bool = False,
) -> Facts:
    """Measure all sides on these batch sizes."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        f = models.build(model).eval().to(device)
    floor, ours = (Replayed(m, 1024, precision, compiled) for m in (f, AntiAdversary(f, steps, 0.15)))
    sides = {"authors": Authors(f, steps, 0.15), "ours": ours, "forward": floor, "eager": f}
    found: Facts = {"model": model, "steps": steps, "precision": precision, "compiled": compiled, "repeats": repeats}
    found |= {"versions": versions(), "revision": revision(), "threads": torch.get_num_threads()}
    found["device"] = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    found["batches"] = {}
    for batch in batches:
        x = torch.rand(batch, 3, 32, 32, device=device, generator=torch.Generator(device).manual_seed(batch))
        with torch.no_grad(), switched(precision, device):
            times = timed(sides, x, repeats)
        row: Facts = {
            "faster_than_authors": spread(times["authors"], times["ours"]),
            "times_the_floor": spread(times["ours"], times["forward"], 1 / (2 * steps + 1)),
        }
        if device.type == "cuda":
            row["milliseconds"] = {name: [round(q, 4) for q in statistics.quantiles(t)] for name, t in times.items()}
        found["batches"][str(batch)] = row
    return {**found, "verdict": verdict(found)}


def verdict(found: Facts) -> Facts:
    """Return for each batch size whether the medians meet their targets. Other sizes than FASTER have a floor only."""
    rows: Facts = {}
    for batch, row in found["batches"].items():
        target = FASTER.get(int(batch))
        fast = target is None or row["faster_than_authors"]["median"] >= target
        near = row["times_the_floor"]["median"] <= FLOOR
        rows[batch] = {"faster": target, "fast": fast, "floor": FLOOR, "near": near}
    return {"batches": rows, "met": all(row["fast"] and row["near"] for row in rows.values())}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--batches", default="1,64,512")
    p.add_argument("--precision", default="tf32" if torch.cuda.is_available() else "float32")
    p.add_argument("--model", default="preact18:width=64")
    p.add_argument("--steps", type=int, default=2)
    p.add_argument("--repeats", type=int, default=30)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--out", type=Path)
    a = p.parse_args()
    batches = [int(batch) for batch in a.batches.split(",")]
    found = measure(a.model, a.steps, batches, torch.device(a.device), a.precision, a.repeats, a.compile)
    print(json.dumps(found, indent=1))
    if a.out:
        put(found, a.out)


if __name__ == "__main__":
    main()
