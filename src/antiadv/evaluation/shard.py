"""Attack a batch and judge the result: model, defence, images, attack and judge meet here.

    attack_and_judge(model, attack, threat, x, y, ids, seed)  →  z, records, receipt     for a batch in hand
    run_shard(job, resources)                                 →  Result                  for the samples of a cell

Samples that the classifier gets wrong without an attack are not attacked. The attack searches with `engine`, in any
precision. The judge always uses float32. Where a search took an image for a success that the judge rejects, the sample
is rerun in float32 and the second search counts, so that rounding never makes a defence look strong. A search that
learned of the rejection (`Oracle.confirm`) already spent its budget, so it is not rerun.

NaN or infinity in any answer to the attack or to the judge refuses the batch and names the samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from antiadv import attacks
from antiadv.core.attack import Attack, check_attack, check_granted
from antiadv.core.confirm import samples_to_rerun
from antiadv.core.defence import base_of, check_dice
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager, Engine
from antiadv.core.errors import BadInput
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Threat
from antiadv.core.validation import (
    check_base,
    check_images,
    check_labels,
    check_scores,
    check_sound,
    check_whole,
    describe,
    fitting,
    is_whole,
    untouched,
)
from antiadv.engine.meter import Meter, aside
from antiadv.evaluation.cell import LOOKS, Job, Receipt, Record
from antiadv.evaluation.early import warn_early
from antiadv.evaluation.judge import Predictions, check_looks, predict_repeated, records, tidy
from antiadv.evaluation.resources import Resources
from antiadv.models.remote import Remote

Watch = Callable[[Ledger], None]

# Seed and sample number give three streams of random numbers: the attack's, the defence's and the judge's. These two
# numbers fold the streams of defence and judge, far from any step that an attack counts to.
DEFENDER, JUDGE = 0xDEFE2D, 0x10D6E


@dataclass(frozen=True)
class Result:
    """A finished job: its records, its receipt and the attacked images."""

    job: Job
    records: list[Record]
    receipt: Receipt
    images: Tensor


def attack_and_judge(
    model: nn.Module,
    attack: Attack,
    threat: Threat,
    x: Tensor,
    y: Tensor,
    ids: Tensor,
    seed: int,
    engine: Engine | None = None,
    watch: Watch | None = None,
    looks: int = LOOKS,
    classes: int | None = None,
    warn: bool = False,
) -> tuple[Tensor, list[Record], Receipt]:
    """Attack every sample that the classifier gets right, and judge. For a targeted threat y holds the targets.

    `classes` is the number of classes of the data, where known. A network with another number is refused.
    `warn` of signs that images, labels and network do not belong together (`early.py`).
    """
    _check_arguments(model, attack, threat, x, y, ids, seed, looks)
    engine = Eager() if engine is None else engine
    judge = engine.judge(model)
    x, y, ids = x.detach().clamp(0, 1), y.to(x.device, torch.int64, copy=True), ids.to(x.device)
    endpoint = base if isinstance(base := base_of(model), Remote) else None
    sent_before = 0 if endpoint is None else endpoint.sent
    with Meter(base_of(model)) as meter:
        batch = _Batch(model, attack, threat, x, y, ids, Draws.of(seed, ids), looks)
        judged, ledger = batch.judged, Ledger(len(x), threat.queries)
        report = None if watch is None else lambda: watch(ledger)
        clean = batch.judged_clean(judge, classes)
        if warn:
            warn_early(x, clean.base, None if threat.targeted else y, clean.scores.shape[2])
        goal = ~clean.majority(y) if threat.targeted else clean.majority(y)
        z, rejected = x.clone(), torch.zeros_like(goal)
        if goal.any():
            z[goal], rejected[goal] = batch.search(goal.nonzero().squeeze(1), engine, ledger, report)
        attacked = judged(z, judge)
        agreement, again = 1.0, 0
        if judge is not engine:
            with aside():
                before, after = judged(x, engine), judged(z, engine)
            check_sound(before.unsound | after.unsound, ids, _precision(engine))
            agreement = _agreement((before, clean), (after, attacked))
            by_search, by_judge = (p.majority(y) == threat.targeted for p in (after, attacked))
            doubtful = samples_to_rerun(x, z, threat.ball, attack.minimal, by_search & goal, by_judge, rejected)
            again = len(doubtful)
            if again:
                z[doubtful] = batch.search_again(doubtful, judge, ledger, report)
                attacked = judged(z, judge)
        check_sound(attacked.unsound, ids)
        facts = records(ids.tolist(), y, x, z, clean, attacked, threat.ball, ledger)
    checks = int(ledger.checks.sum())
    cost = {"agreement": agreement, "again": again, "checks": checks, "judge_queries": batch.judge_queries + checks}
    sent = None if endpoint is None else endpoint.sent - sent_before
    return z, facts, meter.receipt(x.device, **cost, sent=sent, compiled=getattr(engine, "compiled", False))


def _check_arguments(
    model: nn.Module, attack: Attack, threat: Threat, x: Tensor, y: Tensor, ids: Tensor, seed: int, looks: int
) -> None:
    check_base(model)
    check_dice(model)
    check_images(x)
    check_labels(y, x)
    check_attack(attack, threat)
    check_granted(model, threat)
    check_looks(looks)
    check_whole(seed=seed)
    if not is_whole(ids, y.shape):
        raise BadInput(
            f"ids must be whole numbers in a tensor, one for each image ({len(x)}); found {describe(ids)}. "
            "Or leave them out."
        )


@dataclass
class _Batch:
    """One batch under attack. `judge_queries` counts the images that the judge sent to the model."""

    model: nn.Module
    attack: Attack
    threat: Threat
    x: Tensor
    y: Tensor
    ids: Tensor
    draws: Draws
    looks: int
    judge_queries: int = 0

    def judged(self, images: Tensor, engine: Engine) -> Predictions:
        """The model's predictions as the judge asks for them: with the judge's random numbers, `looks` times."""
        predictions = predict_repeated(self.model, images, engine, self.draws.fold(JUDGE), self.looks)
        self.judge_queries += predictions.sent
        return predictions

    def judged_clean(self, judge: Engine, classes: int | None) -> Predictions:
        """The predictions for the clean images, with all checks of what a network may answer."""
        with fitting(self.model, self.x), untouched(self.x):
            clean = self.judged(self.x, judge)
        for scores in clean.scores:
            check_scores(scores, self.x, self.y, self.ids, classes)
        check_sound(clean.unsound, self.ids)
        return clean

    def search(
        self, rows: Tensor, engine: Engine, ledger: Ledger, report: Callable[[], None] | None
    ) -> tuple[Tensor, Tensor]:
        """Run the attack on these samples. → the images, and which of them the judge rejected during the search."""
        oracle = Oracle(self.model, self.threat, ledger, engine, rows.cpu(), report, self.draws.fold(DEFENDER))
        images = self.attack(oracle, self.x[rows], self.y[rows], self.threat.ball, self.draws[rows])
        check_sound(
            ledger.unsound, self.ids, _precision(engine)
        )  # before the images: unsound answers may be why they are not finite
        z = tidy(self.x[rows], images.detach().to(self.x), self.ids[rows])
        return z, oracle.was_rejected(z).to(self.x.device)

    def search_again(self, rows: Tensor, judge: Engine, ledger: Ledger, report: Callable[[], None] | None) -> Tensor:
        """Rerun these samples with the judge's engine. Its cost replaces theirs in the ledger."""
        second = Ledger(len(self.x), self.threat.queries)
        z, _ = self.search(rows, judge, second, report)
        ledger.replace(rows.cpu(), second)
        return z


def _precision(engine: Engine) -> str:
    return getattr(engine, "precision", "float32")


def _agreement(*pairs: tuple[Predictions, Predictions]) -> float:
    """The share of images to which search and judge give the same label; 1 for no images."""
    same = torch.cat([(searched.scores.argmax(2) == judged.scores.argmax(2)).flatten() for searched, judged in pairs])
    return round(float(same.double().mean()), 6) if len(same) else 1.0


def run_shard(job: Job, resources: Resources, engine: Engine | None = None, watch: Watch | None = None) -> Result:
    """Run one job. Weights, images and files must be those that the cell was planned with."""
    cell = job.cell
    resources.check(cell)
    dataset = resources.data(cell.data)
    model = resources.defended(cell.model, cell.defence)
    x, y = dataset.images(job.ids).to(resources.device), dataset.labels(job.ids).to(resources.device)
    attack = attacks.parse(cell.attack)
    engine = resources.engine(cell.precision) if engine is None else engine
    classes, begins = len(dataset.classes) or None, job.ids[0] == cell.samples[0]
    z, facts, receipt = attack_and_judge(
        model, attack, cell.threat, x, y, torch.tensor(job.ids), cell.seed, engine, watch, cell.looks, classes, begins
    )
    return Result(job, facts, receipt, z.cpu())
