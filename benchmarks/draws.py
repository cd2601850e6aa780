"""What random numbers cost compared with the network: one image of normal noise per query is the most any attack draws.

    python -m benchmarks.draws [--device cuda] [--batch 512] [--model compact:trades …] [--out results/bench/draws.json]

Noise and forward pass are timed in one run, each by the median of repeated timings with the device synchronised.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from antiadv import models
from antiadv.core.draws import Draws
from benchmarks.files import put


def seconds(run: Callable[[], object], device: torch.device, repeats: int = 20) -> float:
    """Return the median time of a call, after two calls to warm up."""
    times = []
    for k in range(repeats + 2):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if k >= 2:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--model", nargs="+", default=["compact:trades"])
    p.add_argument("--out", type=Path)
    a = p.parse_args()
    device = torch.device(a.device)
    draws = Draws.of(0, torch.arange(a.batch, device=device))
    x = torch.full((a.batch, 3, 32, 32), 0.5, device=device)
    shares: dict[str, float] = {}
    with torch.no_grad():
        noise = seconds(lambda: draws.fold(1).normal(3, 32, 32), device)
        for name in a.model:
            net = models.load(name).to(device)
            forward = seconds(lambda net=net: net(x), device)  # type: ignore[misc]
            shares[name] = round(noise / (noise + forward), 4)
            print(
                f"{name}: {100 * shares[name]:.2f} % of random numbers and forward pass, {a.batch} images on {a.device}"
            )
    if a.out:
        where = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        command = shlex.join(["python", "-m", "benchmarks.draws", *sys.argv[1:]])
        put({"command": command, "device": where, "batch": a.batch, "share": shares}, a.out)


if __name__ == "__main__":
    main()
