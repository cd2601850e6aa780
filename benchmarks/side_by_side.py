"""Two commands at once on one machine: what it gains that threads wait for each other only briefly.

    python -m benchmarks.side_by_side [--seconds 4] [--repeats 3] [--out FILE]

A process predicts with the layer in a loop, with as many threads as PyTorch chooses: alone, then next to a second one
that does the same. Each case is measured with the wait that PyTorch sets and with that of the command line
(`cli/start.py`), in turn. The result is a ratio, command line to PyTorch, of images per second. Of two processes the
images are added.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any  # what a JSON file holds

import torch

from antiadv import AntiAdversary, models
from antiadv.cli.start import SPINS, WAITS
from antiadv.engine.fast import engine
from antiadv.engine.meter import revision, versions
from benchmarks.files import ROOT, put

MODEL, IMAGES, PRECISION = "compact:trades", 64, "float32"
CASES = {"alone": 1, "two at once": 2}
PATIENCE = 600

Facts = dict[str, Any]


def loop(seconds: float) -> float:
    """Images per second of the layer in this process."""
    net = models.load(MODEL)
    layer, passes = AntiAdversary(net), engine(torch.device("cpu"), precision=PRECISION)
    x = torch.rand(IMAGES, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    passes.scores(layer, x)
    start, rounds = time.perf_counter(), 0
    while time.perf_counter() < start + seconds:
        passes.scores(layer, x)
        rounds += 1
    return IMAGES * rounds / (time.perf_counter() - start)


def together(processes: int, spins: str | None, seconds: float) -> float:
    """Images per second of so many processes at once. `spins` is the limit that the command line sets, or None."""
    env = {name: value for name, value in os.environ.items() if name not in WAITS}
    env |= {} if spins is None else {WAITS[0]: spins}
    command = [sys.executable, "-m", "benchmarks.side_by_side", "--loop", "--seconds", str(seconds)]
    running = [
        subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    return sum(float(process.communicate(timeout=PATIENCE)[0]) for process in running)


def measure(seconds: float, repeats: int) -> Facts:
    found: Facts = {"command": shlex.join(["python", "-m", "benchmarks.side_by_side", *sys.argv[1:]])}
    found |= {"model": MODEL, "images": IMAGES, "precision": PRECISION, "seconds": seconds, "repeats": repeats}
    found |= {"weights": models.digest(models.load(MODEL)), "threads": torch.get_num_threads(), "spins": int(SPINS)}
    found |= {"versions": versions(), "revision": revision(), "ratios": {}}
    for name, processes in CASES.items():
        ratios = [together(processes, SPINS, seconds) / together(processes, None, seconds) for _ in range(repeats)]
        found["ratios"][name] = {
            "median": round(statistics.median(ratios), 3),
            "low": round(min(ratios), 3),
            "high": round(max(ratios), 3),
        }
    return found


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=4.0)
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--out", type=Path, default=ROOT / "results" / "bench" / "side-by-side-cpu.json")
    p.add_argument("--loop", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.loop:
        print(loop(a.seconds))
        return
    found = measure(a.seconds, a.repeats)
    put(found, a.out)
    print(
        *(
            f"{name}: {row['median']:.3g} times [{row['low']:.3g}, {row['high']:.3g}]"
            for name, row in found["ratios"].items()
        )
    )


if __name__ == "__main__":
    main()
