"""Measure how much faster any code could run a network on this CPU, pass for pass."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from antiadv import data, models
from antiadv.core.engine import Engine
from antiadv.core.errors import BadInput
from antiadv.engine.fast import engine
from benchmarks.parity.jobs import DATA
from benchmarks.speed.jobs import CEILING
from benchmarks.speed.setting import Facts, Setting, header
from benchmarks.timing import OtherPrograms, compiling_afresh

MODEL = "compact:trades"
SIDE = 1024  # of the square matrices whose product is the fastest work of the processor


def ceiling(how: Setting, log: Callable[[str], None] = lambda text: None) -> Facts:
    """Compare multiplications per second: of the network's forward pass on each side, and of a matrix product."""
    if how.device.type != "cpu":
        raise BadInput("the ceiling is that of a processor; found a GPU. Say --device cpu.")
    samples = how.samples or CEILING.samples
    net, dataset = models.load(MODEL), data.load(DATA)
    x, a = dataset.images(range(samples)), torch.rand(SIDE, SIDE)
    each = multiplications(net, x[:1])
    engines: dict[str, Engine] = {"as it stands": engine(how.device, samples).judge(net)}
    engines |= {side: replace(how, batch=samples).engine(side) for side in how.sides}
    shares: dict[str, list[float]] = {name: [] for name in engines}
    with compiling_afresh(how.compiled), contextlib.ExitStack() as stack:
        for passes in engines.values():
            passes.scores(net, x)
        stack.enter_context(others := OtherPrograms())
        for k in range(how.repeats):
            top = SIDE**3 / fastest(partial(torch.matmul, a, a))
            for name, passes in engines.items():
                shares[name].append(samples * each / fastest(partial(passes.scores, net, x)) / top)
            text = ", ".join(f"{name} {found[-1]:.2f}" for name, found in shares.items())
            log(f"ceiling: repeat {k + 1} of {how.repeats}: {text}")
    return {
        **header(CEILING, how, samples),
        "kind": "ceiling",
        "model": MODEL,
        "layer": None,
        "target": None,
        "weights": models.digest(net),
        "images": dataset.digest,
        "others": others.share,
        "multiplications": each,
        "shares": {name: [round(share, 4) for share in found] for name, found in shares.items()},
    }


def multiplications(net: nn.Module, x: Tensor) -> int:
    """Count the multiplications of convolutions and linear layers for one image."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(x)
    return int(counter.get_total_flops()) // 2  # the counter includes additions


def fastest(run: Callable[[], object], times: int = 20) -> float:
    """Return the seconds of the fastest of many calls: a disturbance only ever makes a call slower."""
    found = list[float]()
    for _ in range(times):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)
