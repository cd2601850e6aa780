"""The one place where it all meets: a model, a defence, images, an attack and the judge.

    confront(model, attack, threat, x, y, ids, seed)  →  z, records, receipt          for a batch in hand
    run_shard(job, world)                             →  the same, for a cell's samples, named by text

The attack searches through `engine`, in whatever precision; the judge looks in float32. Where the two part, a search
that ends at the first image that fools hears it at once and goes on (`Oracle.exactly`). If one that did not hear it
ends at an image in the ball, or if it minimises the distance at any, of which the engine believes that it fools and the
judge does not, it is made again in float32, and that search counts: lest rounding make a defence look strong. Who heard
it had the rest of the budget, and a second search would be a second budget. Samples that the classifier gets wrong
untouched are not attacked: nothing is left to break. Three sets of dice are made of the seed and a sample's number: the
attack's, those of a randomised defence under attack, and the judge's. The two engines are compared over equally many
looks. NaN or infinity in any answer to the attack or to the judge refuses the whole batch, and names the samples: such
an answer neither fools nor withstands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from antiadv import attacks
from antiadv.core.attack import Attack, check_attack
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
from antiadv.evaluation.judge import Predictions, check_looks, predict_repeated, records, tidy
from antiadv.evaluation.resources import Resources

Watch = Callable[[Ledger], None]

DEFENDER, JUDGE = 0xDEFE2D, 0x10D6E  # folds of a sample's dice, far from any step an attack counts to


@dataclass(frozen=True)
class Result:
    """What became of a job: its records and receipt, and the attacked images."""

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
) -> tuple[Tensor, list[Record], Receipt]:
    """Attack every sample the classifier gets right, and judge. For a targeted threat y holds the targets.

    `classes` is how many the data has, where that is known: a network with others answers another question.
    """
    check_base(model)
    check_dice(model)
    check_images(x)
    check_labels(y, x)
    check_attack(attack, threat)
    check_looks(looks)
    check_whole(seed=seed)
    if not is_whole(ids, y.shape):
        raise BadInput(
            f"ids must be whole numbers in a tensor, one for each image ({len(x)}); found {describe(ids)}. "
            "Or leave them out."
        )
    engine = Eager() if engine is None else engine
    judge = engine.judge(model)
    x, y, ids = x.detach().clamp(0, 1), y.to(x.device, torch.int64, copy=True), ids.to(x.device)
    with Meter(base_of(model)) as meter:
        dice = Draws.of(seed, ids)

        looked = 0

        def judged(images: Tensor, engine: Engine) -> Predictions:
            nonlocal looked
            found = predict_repeated(model, images, engine, dice.fold(JUDGE), looks)
            looked += found.sent
            return found

        with fitting(model, x), untouched(x):
            clean = judged(x, judge)
        for s in clean.scores:
            check_scores(s, x, y, ids, classes)
        check_sound(clean.unsound, ids)
        ledger = Ledger(len(x), threat.queries)
        goal = ~clean.majority(y) if threat.targeted else clean.majority(y)
        rows = goal.nonzero().squeeze(1)
        seen = None if watch is None else lambda: watch(ledger)

        def search(rows: Tensor, engine: Engine, ledger: Ledger) -> tuple[Tensor, Tensor]:
            oracle = Oracle(model, threat, ledger, engine, rows.cpu(), seen, dice.fold(DEFENDER))
            found = attack(oracle, x[rows], y[rows], threat.ball, dice[rows])
            check_sound(ledger.unsound, ids)  # before the images, which may be no numbers for that reason
            z = tidy(x[rows], found.detach().to(x), ids[rows])
            return z, oracle.was_rejected(z).to(x.device)

        z, heard = x.clone(), torch.zeros_like(goal)
        if len(rows):
            z[rows], heard[rows] = search(rows, engine, ledger)
        attacked = judged(z, judge)
        agreement, again = 1.0, 0
        if judge is not engine:
            with aside():
                before, after = judged(x, engine), judged(z, engine)
            check_sound(before.unsound | after.unsound, ids)
            agreement = _agreement((before, clean), (after, attacked))
            by_search, by_judge = (p.majority(y) == threat.targeted for p in (after, attacked))
            doubtful = samples_to_rerun(x, z, threat.ball, attack.minimal, by_search & goal, by_judge, heard)
            again = len(doubtful)
            if again:
                second = Ledger(len(x), threat.queries)
                z[doubtful], _ = search(doubtful, judge, second)
                ledger.replace(doubtful.cpu(), second)
                attacked = judged(z, judge)
        check_sound(attacked.unsound, ids)
        facts = records(ids.tolist(), y, x, z, clean, attacked, threat.ball, ledger)
    checks = int(ledger.checks.sum())
    how = {"agreement": agreement, "again": again, "checks": checks, "judge_queries": looked + checks}
    return z, facts, meter.receipt(x.device, **how, compiled=getattr(engine, "compiled", False))


def _agreement(*pairs: tuple[Predictions, Predictions]) -> float:
    """The share of images to which the precision that searched gives the judge's label; of no image, 1."""
    same = torch.cat([(searched.scores.argmax(2) == judged.scores.argmax(2)).flatten() for searched, judged in pairs])
    return round(float(same.double().mean()), 6) if len(same) else 1.0


def run_shard(job: Job, resources: Resources, engine: Engine | None = None, watch: Watch | None = None) -> Result:
    """One job, wherever it runs. What is found here must be what the cell was planned with: `World.check`."""
    cell = job.cell
    resources.check(cell)
    dataset = resources.data(cell.data)
    model = resources.defended(cell.model, cell.defence)
    x, y = dataset.images(job.ids).to(resources.device), dataset.labels(job.ids).to(resources.device)
    ids = torch.tensor(job.ids)
    attack = attacks.parse(cell.attack)
    engine = resources.engine(cell.precision) if engine is None else engine
    classes = len(dataset.classes) or None
    z, facts, receipt = attack_and_judge(
        model, attack, cell.threat, x, y, ids, cell.seed, engine, watch, cell.looks, classes
    )
    return Result(job, facts, receipt, z.cpu())
