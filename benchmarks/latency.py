"""What the layer costs a service: its latency beside the authors' structure, and beside its floor.

    latency.py [--device cuda] [--batches 1,64,512] [--precision tf32] [--steps 2] [--out results/bench/latency.json]

    authors    as their code is built: a pass for the label, K times a pass and a gradient averaged over the batch, and
               a pass for the answer; K + 2 forwards and K backwards, in plain PyTorch
    ours       `Replayed(AntiAdversary(f))`: K + 1 forwards and K backwards, on a GPU in one captured graph
    floor      2K + 1 forwards of f, captured likewise: a backward pass to the images costs at least a forward

PreActResNet-18 of width 64 with weights as they are drawn: a latency does not depend on them. Medians of repeated
calls, each waited for, all sides in turn in one run; absolute times are kept only from a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv import AntiAdversary, models
from antiadv.evaluate.meter import versions
from antiadv.evaluate.speed import Replayed, switched


class Authors(nn.Module):
    """The layer as its authors build it, from the description of their structure (docs/design/layer.md)."""

    def __init__(self, base: nn.Module, steps: int, step_size: float) -> None:
        super().__init__()
        self.base, self.steps, self.step_size = base, steps, step_size

    def forward(self, x: Tensor) -> Tensor:
        y = self.base(x).argmax(1)
        gamma = torch.zeros_like(x)
        with torch.enable_grad():
            for _ in range(self.steps):
                gamma.requires_grad_()
                loss = F.cross_entropy(self.base(x + gamma), y)
                (g,) = torch.autograd.grad(loss, gamma)
                gamma = (gamma - self.step_size * g.sign()).detach()
        s: Tensor = self.base(x + gamma)
        return s


def timed(sides: dict[str, Callable[[Tensor], Tensor]], x: Tensor, repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each side, call by call in turn, after three to warm up."""
    wait = torch.cuda.synchronize if x.is_cuda else lambda: None
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


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--batches", default="1,64,512")
    p.add_argument("--precision", default="tf32" if torch.cuda.is_available() else "float32")
    p.add_argument("--model", default="preact18:width=64")
    p.add_argument("--steps", type=int, default=2)
    p.add_argument("--repeats", type=int, default=30)
    p.add_argument("--out")
    a = p.parse_args()
    torch.manual_seed(0)
    device = torch.device(a.device)
    f = models.build(a.model).eval().to(device)
    floor, ours = (Replayed(m, batch=1024, precision=a.precision) for m in (f, AntiAdversary(f, a.steps, 0.15)))
    authors = Authors(f, a.steps, 0.15)
    found: dict[str, Any] = {"model": a.model, "steps": a.steps, "precision": a.precision, "versions": versions()}
    found["device"] = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    found["batches"] = {}
    for batch in map(int, a.batches.split(",")):
        x = torch.rand(batch, 3, 32, 32, device=device)
        with torch.no_grad(), switched(a.precision, device):
            sides = {"authors": authors, "ours": ours, "forward": floor, "eager": f}
            times = timed(sides, x, a.repeats)
        ms = {name: statistics.median(t) for name, t in times.items()}
        row: dict[str, Any] = {
            "faster_than_authors": ms["authors"] / ms["ours"],
            "times_the_floor": ms["ours"] / ((2 * a.steps + 1) * ms["forward"]),
            "repeats": a.repeats,
        }
        if device.type == "cuda":
            row["milliseconds"] = {name: [*statistics.quantiles(t, n=4)] for name, t in times.items()}
        found["batches"][str(batch)] = row
        print(json.dumps({batch: row}), flush=True)
    if a.out:
        Path(a.out).parent.mkdir(parents=True, exist_ok=True)
        Path(a.out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
