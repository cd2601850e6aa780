"""Run the two sides of a comparison: their attack as they call it, ours through the oracle."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from antiadv import attacks
from antiadv.attacks._search.nearest import Nearest
from antiadv.core.attack import Attack
from antiadv.core.draws import Draws
from antiadv.core.engine import Engine
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Threat
from antiadv.engine.meter import Meter
from benchmarks.parity.jobs import Job
from benchmarks.peers import PEERS, Task
from benchmarks.timing import Clock


@dataclass(frozen=True)
class Side:
    """What one side returned: images, counted passes, seconds.

    `fell` is the published query count at which each sample was fooled, for attacks that report it.
    """

    z: Tensor
    forwards: int
    backwards: int
    seconds: float
    fell: Tensor | None = None


def run_theirs(job: Job, task: Task) -> Side:
    """Warm up their attack, then run and time it."""
    peer = PEERS[job.peer]
    size = 1 if peer.alone else len(task.x)
    with seeded(task.seed):
        peer.run(task[torch.arange(size)], True)
    clock = Clock(task.x.device)
    with seeded(task.seed), Meter(task.net) as meter, clock:
        found = [peer.run(task[rows], False) for rows in torch.arange(len(task.x)).split(size)]
    fell = [part.fell for part in found if part.fell is not None]
    z = torch.cat([part.z for part in found])
    return Side(z, meter.forwards, meter.backwards, clock.seconds, torch.cat(fell) if fell else None)


def run_ours(job: Job, task: Task, ids: Tensor, engine: Engine, budget: int | None) -> Side:
    """Warm up our attack, then run and time it with that many queries per sample."""
    attack = attacks.parse(job.ours)
    threat, draws = Threat(task.ball, attack.access, budget), Draws.of(task.seed, ids.to(task.x.device))

    def run(attack: Attack, threat: Threat) -> tuple[Tensor, Ledger]:
        ledger = Ledger(len(task.x), threat.queries)
        oracle = Oracle(task.net, threat, ledger, engine)
        with beginning_at(task.start):
            return attack(oracle, task.x, task.y, task.ball, draws), ledger

    clock = Clock(task.x.device)
    with Meter(task.net):  # CUDA graphs learn here that their passes are counted
        run(replace(attack, steps=2), replace(threat, queries=None))  # type: ignore[type-var]
    with Meter(task.net) as meter, clock:
        z, ledger = run(attack, threat)
    fell = None
    if job.kind == "falls":
        probes = getattr(attack, "probes", 1)
        fell = torch.tensor([published_queries(q, probes) for q in ledger.queries.tolist()])
    return Side(z, meter.forwards, meter.backwards, clock.seconds, fell)


class Unbreakable(nn.Module):
    """A network that nothing fools: its prediction is always y."""

    def __init__(self, y: int, classes: int) -> None:
        super().__init__()
        self.answer = nn.Parameter(torch.eye(classes)[y], requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.answer.repeat(len(x), 1)


def full_budget_of_theirs(job: Job, task: Task) -> int:
    """Return how many queries their attack sends for a sample that it never fools."""
    net = Unbreakable(int(task.y[0]), task.classes).to(task.x.device)
    with seeded(task.seed), Meter(net) as meter:
        PEERS[job.peer].run(replace(task[torch.arange(1)], net=net), False)
    return meter.forwards


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed every global generator that other packages draw from, and restore them after the block."""
    state, other = np.random.get_state(), random.getstate()  # noqa: NPY002 - see below
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - ART draws from this one
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002
            random.setstate(other)


@contextlib.contextmanager
def beginning_at(start: Tensor | None) -> Iterator[None]:
    """Let our label-based attacks begin at this noise, where theirs begins, instead of at noise of their own."""
    own = Nearest.start

    def given(self: Nearest, draws: Draws, tries: int) -> Tensor:
        assert start is not None
        every = torch.arange(len(self.x), device=self.x.device)
        self.ask(every, start)
        return every[self.distance < math.inf]

    if start is not None:
        Nearest.start = given  # type: ignore[method-assign]
    try:
        yield
    finally:
        Nearest.start = own  # type: ignore[method-assign]


def published_queries(queries: int, probes: int) -> int:
    """Our count of queries in the published counting, which leaves out the test after each update.

    >>> published_queries(101, 50), published_queries(3 * 4999, 1)
    (100, 9998)
    """
    return queries // (2 * probes + 1) * 2 * probes
