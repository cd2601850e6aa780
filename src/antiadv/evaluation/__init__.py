"""The road: Cell → Shard → Oracle → Attack → Judge → Record → Store.

attack(model, x, y, "square", Linf(8/255), queries=1000)  →  Outcome          a batch in hand, nothing stored
evaluate(cells, store)                                    →  None             everything missing, stored as it comes
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from antiadv import attacks
from antiadv.core.attack import Attack, check_attack, check_kind, least_queries, never_ran
from antiadv.core.ball import Ball
from antiadv.core.deprecated import renamed
from antiadv.core.errors import AntiadvError, BadInput, Interrupted, StoreUnwritable
from antiadv.core.held import holding
from antiadv.core.ledger import Ledger
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import check_float
from antiadv.engine.fast import engine
from antiadv.engine.meter import Meter, tallied
from antiadv.evaluation.cell import LOOKS, Cell, Receipt, Record
from antiadv.evaluation.fresh import check_fresh
from antiadv.evaluation.judge import idle
from antiadv.evaluation.plan import make_cell, plan
from antiadv.evaluation.progress import Count, Progress, Tally
from antiadv.evaluation.rescue import Kept, Remembered, says, settle
from antiadv.evaluation.resources import Resources
from antiadv.evaluation.runners import parse_runner
from antiadv.evaluation.runners.work import Done, Failure, Runner, Work, complaint
from antiadv.evaluation.shard import attack_and_judge
from antiadv.evaluation.store import Store

__all__ = [
    "Cell",
    "Outcome",
    "Progress",
    "Resources",
    "Store",
    "Tally",
    "attack",
    "evaluate",
    "make_cell",
    "parse_runner",
]


@dataclass(frozen=True)
class Outcome:
    """What an attack on a batch came to: the images, a record for each, and what it cost.

    `queries` of a record are the attack's; `judge_queries` are the images that the judge sent, which the model's owner
    sees too.
    """

    images: Tensor
    records: list[Record]
    threat: Threat
    receipt: Receipt
    attack: Attack

    @property
    def fooled(self) -> Tensor:
        """Which samples were broken: classified wrongly, or as the target, inside the ball."""
        distance = torch.tensor([r.distance for r in self.records])
        hit = [(r.attacked == r.label) == self.threat.targeted for r in self.records]
        return (distance <= self.threat.ball.reach) & torch.tensor(hit, dtype=torch.bool)

    @property
    def judge_queries(self) -> int:
        """How many images the judge sent to the model, beside the queries of the attack."""
        return self.receipt.judge_queries or 0

    @property
    def not_attacked(self) -> Tensor:
        """Which samples the attack tried nothing on, though there was something to break: too small a budget."""
        return torch.tensor(idle(self.records, self.attack, self.threat), dtype=torch.bool)

    @property
    def least_queries(self) -> int:
        """The smallest budget with which this attack tries anything."""
        return least_queries(self.attack, self.threat)

    @property
    def robust_accuracy(self) -> float:
        """The share of samples that the attack could not break, those wrong from the start counted as broken.

        There is none where samples were not attacked.
        """
        if not self.records:
            raise BadInput("no samples were attacked; there is no accuracy of nothing. Pass at least one image.")
        if lost := int(self.not_attacked.sum()):
            raise BadInput(
                f"{lost} of {len(self.records)} samples were not attacked, so there is no robust accuracy: "
                f"{never_ran(self.attack, self.threat)}."
            )
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
    precision: str = "float32",
    compiled: bool = False,
    looks: int = LOOKS,
) -> Outcome:
    """Attack a batch in hand.

    `attack` is an attack or its text (`"pgd:steps=40"`); `queries` the budget per sample; `access` what the threat
    grants (by default what the attack needs); with `targeted`, y holds the classes to reach. `ids` are the samples'
    stable numbers, which key their dice (by default 0, 1, …); `batch` is how many images pass at once,
    `precision` what the search runs in (`tf32` is faster on a GPU, `mixed` anywhere), `compiled` whether the network is
    compiled for it first, which takes half a minute or so each network and pays on long runs; the judge looks in
    float32, at the network as it stands, and at a randomised defence `looks` times: it is right where more than half
    of them are.

    Where the classifier raises in the middle, as a remote one may, `Interrupted` is raised from its error: it holds the
    images found so far, and the `Outcome` of those that the judge sees broken. Of all other samples nothing is known.

    >>> import antiadv
    >>> net, images = antiadv.models.load("compact:trades"), antiadv.data.load("cifar10:test")
    >>> x, y = images.images(range(8)), images.labels(range(8))
    >>> outcome = antiadv.attack(net, x, y, "pgd:steps=10", antiadv.Linf(8 / 255))
    >>> outcome.robust_accuracy, outcome.fooled.tolist()
    (0.5, [False, False, False, True, True, False, True, True])
    """
    check_float(x)
    chosen = attacks.parse(attack) if isinstance(attack, str) else attack
    check_kind(chosen)
    threat = Threat(ball, chosen.access if access is None else access, queries, targeted)
    ids = torch.arange(len(x)) if ids is None else ids
    here = engine(x.device, batch, precision, compiled)
    check_attack(chosen, threat)

    def run(attack: Attack) -> Outcome:
        z, records, receipt = attack_and_judge(model, attack, threat, x, y, ids, seed, here, looks=looks)
        return Outcome(z, records, threat, receipt, chosen)

    # whoever calls may be in inference mode, and there are no gradients inside
    with torch.inference_mode(False), holding() as held, tallied() as meters:
        try:
            return run(Remembered(chosen, held))
        except AntiadvError:
            raise
        except Exception as error:
            images = held.images(x.detach().clamp(0, 1))
            outcome = _rescued(lambda: run(Kept(chosen, images)), held.ledgers, meters)
            known = set() if outcome is None else {r.sample for r in outcome.records}
            unknown = [i for i in ids.tolist() if i not in known]
            raise Interrupted(says(error, len(unknown), len(x)), images, outcome, unknown) from error


def _rescued(judge: Callable[[], Outcome], ledgers: list[Ledger], meters: list[Meter]) -> Outcome | None:
    """The samples that are broken already; nothing where the classifier fails again."""
    try:
        seen = judge()
    except Exception:
        return None
    records, receipt = settle(seen.records, seen.receipt, ledgers, meters)
    broken = seen.fooled.nonzero().squeeze(1)
    images = seen.images[broken.to(seen.images.device)]
    return Outcome(images, [records[i] for i in broken.tolist()], seen.threat, receipt, seen.attack)


@renamed(world="resources")
def evaluate(
    cells: Cell | Iterable[Cell],
    store: Store | str | Path,
    *,
    shard: int = 250,
    batch: int = 256,
    runner: Runner | str = "local",
    resources: Resources | None = None,
    keep_images: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Run what is missing of these cells, and store it shard by shard. Stopped and called again, it goes on.

    Before that, each network is asked about a few fixed images. Where its answers are not those of the network that
    made what is stored, `StoreMismatch` is raised, and nothing is run (`evaluation/fresh.py`).

    `runner` says where: `"local"`, `"processes:4"`, `"ray"`, `"ray:ADDRESS"`. A shard that cannot be done is left out,
    and named by the `Unfinished` that is raised when all others are stored.

    >>> import tempfile
    >>> cell = make_cell(model="compact:trades", attack="pgd:steps=5", threat="linf:16/255", samples=range(4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     evaluate([cell], folder, shard=2)
    ...     [(r.sample, r.label, r.attacked, r.queries) for r in Store(folder).read(cell)]
    [(0, 3, 6, 5), (1, 8, 8, 6), (2, 8, 1, 6), (3, 0, 8, 4)]
    """
    carry_out = parse_runner(runner) if isinstance(runner, str) else runner
    store = store if isinstance(store, Store) else Store(store)
    resources = Resources() if resources is None else resources
    cells = [cells] if isinstance(cells, Cell) else list(cells)
    jobs = plan(cells, store.done, shard)
    if keep_images:
        _miss_images(cells, store)
    begun = dict.fromkeys(job.cell for job in jobs)
    for cell in begun:
        store.prepare(cell)  # before any work, so that none is lost to a store that cannot be written or read
    for cell, probe in check_fresh(cells, store, resources).items():
        with contextlib.nullcontext() if cell in begun else contextlib.suppress(StoreUnwritable):
            store.keep_probe(cell, probe)
    count, failures = Count(jobs, progress), list[Failure]()
    work = Work(resources, batch, keep_images, None if progress is None else count.asked)
    with contextlib.closing(_each(carry_out(work, jobs))) as results:
        for done in results:
            if isinstance(done, Failure):
                failures.append(done)
                count.failed(done)
            else:
                store.append(done.job.cell, done.records, done.receipt, done.images if keep_images else None)
                count.finished(done)
    if failures:
        raise complaint(failures, len(jobs))


def _miss_images(cells: Iterable[Cell], store: Store) -> None:
    """What is stored is not run again, for its images either; unsaid, whoever asked for them would look in vain."""
    lost = sum(len((store.done(cell) - store.pictured(cell)).intersection(cell.samples)) for cell in cells)
    if lost:
        warnings.warn(
            f"{lost} of the samples lie in {store.root} since a run that kept no images, and are not attacked again. "
            "Name another folder with --store to have the images of all.",
            stacklevel=1,  # here, wherever it was asked for
        )


def _each(results: Iterator[Done]) -> Generator[Done]:
    """The same, and a runner left half-way ends its workers."""
    yield from results
