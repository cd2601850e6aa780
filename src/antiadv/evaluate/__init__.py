"""The road: Cell → Shard → Oracle → Attack → Judge → Record → Store.

attack(model, x, y, "square", Linf(8/255), queries=1000)  →  Outcome          a batch in hand, nothing stored
evaluate(cells, store)                                    →  None             everything missing, stored as it comes
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from antiadv import attacks
from antiadv.core.attack import Attack
from antiadv.core.ball import Ball
from antiadv.core.errors import BadInput
from antiadv.core.oracle import Eager, Ledger
from antiadv.core.threat import Access, Threat
from antiadv.evaluate.cell import Cell, Job, Receipt, Record
from antiadv.evaluate.plan import make_cell, plan
from antiadv.evaluate.runners import Runner, local
from antiadv.evaluate.shard import Result, confront, run_shard
from antiadv.evaluate.store import Store
from antiadv.evaluate.world import World

__all__ = ["Cell", "Outcome", "Progress", "Store", "World", "attack", "evaluate", "make_cell"]


@dataclass(frozen=True)
class Outcome:
    """What an attack on a batch came to: the images, a record for each, and what it cost."""

    images: Tensor
    records: list[Record]
    threat: Threat
    receipt: Receipt

    @property
    def fooled(self) -> Tensor:
        """Which samples were broken: classified wrongly, or as the target, inside the ball."""
        distance = torch.tensor([r.distance for r in self.records])
        hit = [(r.attacked == r.label) == self.threat.targeted for r in self.records]
        return (distance <= self.threat.ball.reach) & torch.tensor(hit, dtype=torch.bool)

    @property
    def robust_accuracy(self) -> float:
        """The share of samples that the attack could not break, those wrong from the start counted as broken."""
        if not self.records:
            raise BadInput("no samples were attacked; there is no accuracy of nothing. Pass at least one image.")
        return 1 - self.fooled.double().mean().item()


def attack(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    attack: Attack | str,
    ball: Ball,
    *,
    queries: int | None = None,
    access: Access | None = None,
    targeted: bool = False,
    seed: int = 0,
    ids: Tensor | None = None,
    batch: int = 256,
) -> Outcome:
    """Attack a batch in hand.

    `attack` is an attack or its text (`"pgd:steps=40"`); `queries` the budget per sample; `access` what the threat
    grants (by default what the attack needs); with `targeted`, y holds the classes to reach. `ids` are the samples'
    stable numbers, which key their dice (by default 0, 1, …); `batch` is how many images pass at once.
    """
    chosen = attacks.parse(attack) if isinstance(attack, str) else attack
    threat = Threat(ball, chosen.access if access is None else access, queries, targeted)
    ids = torch.arange(len(x)) if ids is None else ids
    z, records, receipt = confront(model, chosen, threat, x, y, ids, seed, Eager(batch))
    return Outcome(z, records, threat, receipt)


@dataclass(frozen=True)
class Progress:
    """How far an evaluation is: samples done and fooled over all cells; queries, with those of the shard in hand."""

    cell: Cell
    done: int
    total: int
    fooled: int
    queries: int
    seconds: float


def evaluate(
    cells: Iterable[Cell],
    store: Store | str | Path,
    *,
    shard: int = 250,
    batch: int = 256,
    runner: Runner | None = None,
    world: World | None = None,
    keep_images: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Run what is missing of these cells, and store it shard by shard. Stopped and called again, it goes on."""
    store = store if isinstance(store, Store) else Store(store)
    world = World() if world is None else world
    jobs = plan(cells, store.done, shard)
    for cell in dict.fromkeys(job.cell for job in jobs):
        store.prepare(cell)  # before any work, so that none is lost to a store that cannot be written
    count = _Count(sum(len(job.ids) for job in jobs), progress)
    run = partial(_run, world=world, engine=Eager(batch), count=count)
    for result in (local() if runner is None else runner)(run, jobs):
        store.append(result.job.cell, result.records, result.receipt, result.images if keep_images else None)
        count.finished(result)


class _Count:
    """Adds up what is done, and tells; at most ten times a second."""

    def __init__(self, total: int, tell: Callable[[Progress], None] | None) -> None:
        self._total, self._tell = total, tell
        self._done = self._fooled = self._queries = 0
        self._start = self._last = time.monotonic()

    def asked(self, cell: Cell, ledger: Ledger) -> None:
        if self._tell is not None and time.monotonic() - self._last > 0.1:
            self._report(cell, int(ledger.queries.sum()))

    def finished(self, result: Result) -> None:
        self._done += len(result.records)
        reach = result.job.cell.threat.ball.reach
        self._fooled += sum(r.clean == r.label != r.attacked and r.distance <= reach for r in result.records)
        self._queries += sum(r.queries for r in result.records)
        self._report(result.job.cell, 0)

    def _report(self, cell: Cell, more: int) -> None:
        self._last = time.monotonic()
        if self._tell is not None:
            seconds = self._last - self._start
            self._tell(Progress(cell, self._done, self._total, self._fooled, self._queries + more, seconds))


def _run(job: Job, world: World, engine: Eager, count: _Count) -> Result:
    return run_shard(job, world, engine, lambda ledger: count.asked(job.cell, ledger))
