"""Measure which share of an attack's processor time is spent outside the network's passes."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any  # the arguments of any function

from torch import Tensor, nn

from antiadv import AntiAdversary, attack, attacks, data, models
from antiadv.core.ball import L2, Linf
from antiadv.core.errors import BadInput
from antiadv.core.threat import Access
from antiadv.engine import fast as speed
from benchmarks.parity.jobs import DATA
from benchmarks.speed.jobs import OVERHEAD, STEPS
from benchmarks.speed.setting import OVERHEAD_QUERIES, Facts, Setting, header
from benchmarks.timing import one_thread

MODEL = "compact:trades"
TARGET = 0.1  # of the processor time


def overhead(how: Setting, log: Callable[[str], None] = lambda text: None, names: Sequence[str] = ()) -> Facts:
    """Measure these attacks, or all of them, with their defaults and a limit on queries, on one thread."""
    if how.device.type != "cpu":
        raise BadInput("overhead is a share of processor time; found a GPU. Use --device cpu.")
    with one_thread():
        return _overhead(how, log, names or list(attacks.ATTACKS))


def _overhead(how: Setting, log: Callable[[str], None], names: Sequence[str]) -> Facts:
    samples, queries = how.samples or OVERHEAD.samples, how.queries or OVERHEAD_QUERIES
    net, dataset = models.load(MODEL), data.load(DATA)
    x, y = dataset.images(range(samples)), dataset.labels(range(samples))
    shares: dict[str, list[float]] = {name: [] for name in names}
    attack(net, x[:2], y[:2], "pgd:steps=1", Linf(8 / 255))  # loads what is loaded at first use
    for k in range(how.repeats):
        for name in names:
            shares[name].append(share_outside_passes(name, net, x, y, queries, how))
            log(f"overhead: repeat {k + 1} of {how.repeats}: {name} {100 * shares[name][-1]:.1f} %")
    return {
        **header(OVERHEAD, how, samples),
        "kind": "overhead",
        "model": MODEL,
        "layer": f"anti_adversary:steps={STEPS}",
        "queries": queries,
        "target": TARGET,
        "weights": models.digest(net),
        "images": dataset.digest,
        "shares": {name: [round(share, 4) for share in found] for name, found in shares.items()},
    }


def share_outside_passes(name: str, net: nn.Module, x: Tensor, y: Tensor, queries: int, how: Setting) -> float:
    """Run one attack. An attack that needs a defence runs on the layer in front of the network."""
    chosen = attacks.parse(name)
    model = AntiAdversary(net, STEPS) if chosen.access == Access.INTERNALS else net
    ball = L2(math.inf) if chosen.minimal and 2 in chosen.norms else Linf(8 / 255)
    start = time.process_time()
    with timing_passes() as passes:
        attack(model, x, y, chosen, ball, queries=queries, seed=how.seed, batch=how.batch_size)
    return 1 - sum(passes) / (time.process_time() - start)


@contextlib.contextmanager
def timing_passes() -> Iterator[list[float]]:
    """Collect the processor seconds of every pass that the engine makes inside the block.

    The functions that make passes are replaced in the engine's module and put back afterwards.
    """
    seconds: list[float] = []
    names = ("answer", "scores_and_gradient", "scores_and_jacobian")
    own = {name: getattr(speed, name) for name in names}

    def timed(run: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            start = time.process_time()
            found = run(*args)
            seconds.append(time.process_time() - start)
            return found

        return call

    for name in names:
        setattr(speed, name, timed(own[name]))
    try:
        yield seconds
    finally:
        for name in names:
            setattr(speed, name, own[name])
