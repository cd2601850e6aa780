"""`attack`: attack a batch of images in hand. Returns an `Outcome`; nothing is stored."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from antiadv import attacks
from antiadv.attacks.foreign.libraries import InHand
from antiadv.attacks.white_box.fast import Fast
from antiadv.core.attack import Attack, check_attack, check_kind, least_queries, never_ran
from antiadv.core.ball import Ball
from antiadv.core.errors import AntiadvError, BadInput, EndpointFailed, Interrupted
from antiadv.core.held import holding
from antiadv.core.ledger import Ledger
from antiadv.core.notebook import Show, bar, html_lines, lines
from antiadv.core.spec import text
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import check_base, check_float
from antiadv.engine.fast import Fast as Engine
from antiadv.engine.meter import Meter, tallied
from antiadv.engine.precision import AUTO
from antiadv.evaluation.automatic import most_queries, resolve_precision
from antiadv.evaluation.cell import LOOKS, Receipt, Record
from antiadv.evaluation.digits import survives
from antiadv.evaluation.interrupted import Kept, Remembered, message, with_cost
from antiadv.evaluation.judge import idle, is_randomised, ran_autoattack
from antiadv.evaluation.resources import fast_engine
from antiadv.evaluation.shard import attack_and_judge


@dataclass(frozen=True)
class Outcome:
    """The result of an attack on a batch: the images, one record for each, and the cost.

    `queries` of a record counts the attack's queries. `judge_queries` counts the images that the judge sent to the
    model in addition.
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
        """How many images the judge sent to the model, in addition to the queries of the attack."""
        return self.receipt.judge_queries or 0

    @property
    def sent(self) -> int | None:
        """For an endpoint: how many images went over the wire, the judge's and repeats included; else None."""
        return self.receipt.sent

    @property
    def not_attacked(self) -> Tensor:
        """Which samples could have been broken but were not attacked, because the budget was too small."""
        return torch.tensor(idle(self.records, self.attack, self.threat), dtype=torch.bool)

    @property
    def least_queries(self) -> int:
        """The smallest budget with which this attack tries anything."""
        return least_queries(self.attack, self.threat)

    @property
    def robust_accuracy(self) -> float:
        """The share of samples that the attack did not break. Samples wrong without an attack count as broken.

        Raises `BadInput` where samples were not attacked.
        """
        if not self.records:
            raise BadInput("no samples were attacked, so there is no robust accuracy. Pass at least one image.")
        if lost := int(self.not_attacked.sum()):
            raise BadInput(
                f"{lost} of {len(self.records)} samples were not attacked, so there is no robust accuracy: "
                f"{never_ran(self.attack, self.threat)}."
            )
        return 1 - self.fooled.double().mean().item()

    @property
    def counts(self) -> list[tuple[str, str]]:
        """The small table below the line: what became of the samples, and what it cost."""
        wrong = sum((r.clean == r.label) == self.threat.targeted for r in self.records)
        broken, idle = int(self.fooled.sum()), int(self.not_attacked.sum())
        queries = torch.tensor([r.queries for r in self.records], dtype=torch.float64)
        found = [
            ("already the target" if self.threat.targeted else "wrong without an attack", f"{wrong}"),
            ("broken by the attack", f"{broken - wrong}"),
            *([("not attacked", f"{idle}")] if idle else []),
            ("robust", f"{len(self.records) - broken - idle}"),
        ]
        spent = f"{queries.mean():,.0f}, at most {queries.max():,.0f}" if self.records else "none"
        searched = ran_autoattack(self.records, self.attack, is_randomised(self.records))
        alarm = [("went on to AutoAttack, at least", f"{searched}")] if isinstance(self.attack, Fast) else []
        return [*found, *alarm, ("queries for a sample, mean", spent)]

    def __repr__(self) -> str:
        """One line: what was run, and robust accuracy."""
        n, idle = len(self.records), int(self.not_attacked.sum())
        what = f"{_name(self.attack)} on {n} sample{'' if n == 1 else 's'} in {self.threat}"
        share = "unknown" if idle or not n else f"{100 * self.robust_accuracy:.1f} %"
        return f"Outcome({what}: robust accuracy {share})"

    def __str__(self) -> str:
        return f"{self!r}\n{lines([*self.counts, ('images sent by the judge', f'{self.judge_queries:,}')])}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{html_lines(self.counts)}"


def _name(attack: Attack) -> str:
    try:
        return attack.name if isinstance(attack, InHand) else text(attack)
    except Exception:  # an attack of a user's own may have options without a text
        return type(attack).__name__


def attack(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    attack: Attack | str | Callable[..., Tensor],
    ball: Ball,
    *,
    queries: int | None = None,
    access: Access | None = None,
    targeted: bool = False,
    seed: int = 0,
    ids: Tensor | None = None,
    batch: int | None = None,
    precision: str = AUTO,
    compiled: bool | str = AUTO,
    looks: int = LOOKS,
) -> Outcome:
    """Attack a batch of images. `attack` is an attack, its spec such as `"pgd:steps=40"`, or a function of your own,
    `(model, x, y, eps) → images`. All that a function asks of the model is counted.

    `queries` is the budget per sample, `access` the access level (by default the one that the attack needs). With
    `targeted`, y holds the classes to reach. `ids` are the numbers of the samples, which key their random numbers (by
    default 0, 1, …). `batch` images pass through the network at once (by default as many as suit the
    device). The search runs in `precision`: `auto` is the fastest that is known to lose nothing with this attack on
    this device, and float32 if the model fails there on the first images. With `compiled=True` the network is compiled
    first, which takes half a minute or so each network; with `auto` a long attack on a GPU goes on with the compiled
    network once it is ready. The judge uses float32 and the network as it is. It asks a randomised defence `looks`
    times, and the majority counts.

    If the classifier raises, `Interrupted` is raised. It holds the images found so far and the `Outcome` of the samples
    that are broken already.

    >>> import antiadv
    >>> net, images = antiadv.models.load("compact:trades"), antiadv.data.load("cifar10:test")
    >>> x, y = images.images(range(8)), images.labels(range(8))
    >>> outcome = antiadv.attack(net, x, y, "pgd:steps=10", antiadv.Linf(8 / 255))
    >>> outcome.robust_accuracy, outcome.fooled.tolist()
    (0.5, [False, False, False, True, True, False, True, True])
    """
    check_base(model)
    check_float(x)
    chosen = _chosen(attack)
    threat = Threat(ball, chosen.access if access is None else access, queries, targeted)
    ids = torch.arange(len(x)) if ids is None else ids
    check_attack(chosen, threat)
    precision = resolve_precision(precision, chosen, model, ball, x.device, lambda p, g: survives(p, model, x, g))
    most = most_queries(chosen, model, threat) * len(x)
    run = _Run(model, chosen, threat, x, y, ids, seed, fast_engine(x.device, batch, precision, compiled, most), looks)
    with torch.inference_mode(False):  # the caller may be in inference mode, which has no gradients
        return run.with_rescue()


def _chosen(given: Attack | str | Callable[..., Tensor]) -> Attack:
    if isinstance(given, str):
        return attacks.parse(given)
    if callable(given) and not isinstance(given, type) and not hasattr(given, "access"):
        return InHand(given)
    check_kind(cast("Attack", given))
    return cast("Attack", given)


@dataclass(frozen=True)
class _Run:
    """The arguments of one call of `attack`."""

    model: nn.Module
    attack: Attack
    threat: Threat
    x: Tensor
    y: Tensor
    ids: Tensor
    seed: int
    engine: Engine
    looks: int

    def with_rescue(self) -> Outcome:
        """Run the attack. If the classifier raises, judge what was found before."""
        with holding() as held, tallied() as meters, bar() as show:
            try:
                return self._outcome(Remembered(self.attack, held), None if show is None else partial(_tell, show))
            except Exception as error:
                if isinstance(error, AntiadvError) and not isinstance(error, EndpointFailed):
                    raise
                images = held.images(self.x.detach().clamp(0, 1))
                outcome = _broken_so_far(lambda: self._outcome(Kept(self.attack, images)), held.ledgers, meters)
                known = set() if outcome is None else {r.sample for r in outcome.records}
                unknown = [i for i in self.ids.tolist() if i not in known]
                confirmed = None if outcome is None else len(outcome.records)
                text = message(error, confirmed, len(self.x), self.engine.precision)
                raise Interrupted(text, images, outcome, unknown) from error

    def _outcome(self, attack: Attack, watch: Callable[[Ledger], None] | None = None) -> Outcome:
        z, records, receipt = attack_and_judge(
            self.model,
            attack,
            self.threat,
            self.x,
            self.y,
            self.ids,
            self.seed,
            self.engine,
            watch,
            self.looks,
            warn=True,
        )
        return Outcome(z, records, self.threat, receipt, self.attack)


def _tell(show: Show, ledger: Ledger) -> None:
    """The bar of a notebook: how much of the budget the sample with the most queries has spent."""
    show(f"{int(ledger.queries.sum()):,} queries", int(ledger.queries.max()), ledger.budget)


def _broken_so_far(judge: Callable[[], Outcome], ledgers: list[Ledger], meters: list[Meter]) -> Outcome | None:
    """The outcome of the samples that are broken already; None where the classifier fails again."""
    try:
        outcome = judge()
    except Exception:
        return None
    records, receipt = with_cost(outcome.records, outcome.receipt, ledgers, meters)
    broken = outcome.fooled.nonzero().squeeze(1)
    images = outcome.images[broken.to(outcome.images.device)]
    return Outcome(images, [records[i] for i in broken.tolist()], outcome.threat, receipt, outcome.attack)
