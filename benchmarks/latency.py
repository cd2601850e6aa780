"""What the layer costs a service: its latency beside the authors' structure, and beside its floor.

    latency.py [--device cuda] [--batches 1,64,512] [--precision tf32] [--steps 2] [--compile] [--out FILE]

    authors    `Authors(f)` (authors.py): K + 2 forwards and K backwards, in plain PyTorch
    ours       `Replayed(AntiAdversary(f))`: K + 1 forwards and K backwards, on a GPU in one captured graph
    floor      2K + 1 forwards of f, captured likewise: a backward pass to the images costs at least a forward

With --compile, ours and the floor on a compiled network.

PreActResNet-18 of width 64 with weights as they are drawn: a latency does not depend on them. All sides call after
call in turn, each waited for. A ratio is that of medians in each of five rounds; kept are their median, least and
greatest. Absolute times are kept only from a GPU.
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
from authors import Authors
from filing import put
from torch import Tensor

from antiadv import AntiAdversary, models
from antiadv.evaluate.meter import revision, versions
from antiadv.evaluate.precision import switched
from antiadv.evaluate.speed import Replayed

FASTER = {1: 10.0, 64: 4.5, 512: 2.0}  # by batch: times faster than the authors' structure
FLOOR = 1.25  # at most so many times the floor
ROUNDS = 5

Facts = dict[str, Any]


def timed(sides: Mapping[str, Callable[[Tensor], Tensor]], x: Tensor, repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each side, call by call in turn, after three to warm up."""
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
    """Of `scale · over / under`: ratios of the medians in each round, and of these the median, least and greatest."""
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
    """Everything that is known of these batches."""
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
    """By batch, whether the medians meet what is asked of them; batches of other sizes are held against the floor."""
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
