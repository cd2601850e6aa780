"""A trial: a short battery of attacks against a classifier, bare and with a defence, within a budget of time.

`verdict` does this for a model and images in memory, `antiadv verdict` calls `run_trial` with a store. Samples are
taken in rounds (`rounds.py`). Each round runs the complete battery, so every row has the same samples.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from antiadv import defences
from antiadv.attacks import needs_gradients, parse, parts
from antiadv.attacks.adaptive.eot import EOT
from antiadv.attacks.cascade import Cascade
from antiadv.core import spec
from antiadv.core.attack import Attack
from antiadv.core.ball import Ball, Linf
from antiadv.core.defence import TRANSFERS, Defence
from antiadv.core.engine import Eager
from antiadv.core.errors import BadInput
from antiadv.core.notebook import Show, bar
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import check_base, check_images, check_labels, check_scores, fitting, untouched
from antiadv.engine.fast import default_batch
from antiadv.engine.precision import AUTO
from antiadv.evaluation import attack as attack_and_judge
from antiadv.evaluation.automatic import resolve_precision
from antiadv.evaluation.cell import Cell, Record
from antiadv.evaluation.digits import survives
from antiadv.evaluation.early import told
from antiadv.evaluation.preflight import passes_gradients, preflight
from antiadv.reporting import Report, as_markdown, report_of
from antiadv.reporting.cost import TIMED, Cost, cost
from antiadv.reporting.flags import Flag, before
from antiadv.reporting.measures import Calibration
from antiadv.reporting.render.html import table_as_html
from antiadv.reporting.rounds import FIRST, check_minutes, rounds
from antiadv.reporting.rows import IN_HAND, Row, make_row, row_table
from antiadv.reporting.temperature import scaled
from antiadv.reporting.wording import join

# Queries per sample of the attacks that see labels and scores. With 60 the layer shows no gain under Square, with 300
# it does (stored records of results/gate, cut at that query; docs/gate.md has 2,000). Square is the dearest row.
QUERIES = {"rays": 30, "square": 300}
GRADIENTS = "apgd"  # not `fast`: where gradients mislead, as those of the layer do, `fast` goes on to all of AutoAttack
STEPS = 20  # the most steps of an attack that uses gradients
NOT_RUN = "fast", "autoattack", "adaptive"  # what a person should run next, in this order
MASKED = "zero_gradients", "black_box_beats_white_box"  # warning signs of the bare network: then `fast` is AutoAttack
LOOKED_AT = 256  # images that are checked before the first attack
PREFLIGHT = 100  # images of the pre-flight, which asks about twenty times
TOLD = ("mode", "range", "scores", "accuracy")  # findings that are errors or signs of their own
DRAWS = 10  # over which an attack on a randomised defence averages
SURE = 0.5  # of the time: what is expected to fit into it is one round, since small batches are slow for their size


def battery(
    ball: Ball, defence: Defence, queries: int | None = None, gradients: bool = True
) -> list[tuple[str, Threat]]:
    """Return the attacks of a trial, each with its budget: by labels, by scores, by gradients, and an adaptive one.

    The adaptive one is a cascade: the transfer of `fast` from the base network, then what the defence names, on the
    samples that are left. On a randomised defence it averages over the random numbers. Every search is short, so that a
    trial takes a minute, and its text says how short. `queries` replaces the budgets. Without `gradients`, what
    needs them is left out.
    """

    def usable(texts: Iterable[str]) -> tuple[Attack, ...]:
        found = (a for a in map(parse, dict.fromkeys(texts)) if gradients or not needs_gradients(a))
        return tuple(shorter(a) for a in found if ball.p in a.norms)

    chosen, stages = list(usable((*QUERIES, GRADIENTS))), usable((*TRANSFERS, *defence.adaptive))
    if stages:
        knowing = Cascade(stages)
        chosen.append(EOT(knowing, DRAWS) if defence.randomised else knowing)
    budgets = {name: queries or most for name, most in QUERIES.items()}
    return [(spec.text(a), Threat(ball, a.access, budgets.get(spec.text(a)))) for a in chosen]


def with_gradients(model: nn.Module, defended: Defence, x: Tensor, y: Tensor) -> bool:
    """Whether attacks with gradients can run. Where none can, a defence that needs gradients itself is refused."""
    if passes_gradients(model, x, y):
        return True
    try:
        with torch.no_grad():
            defended(x[:1])
    except BadInput as error:
        name = spec.text(defended) if type(defended) in defences.DEFENCES.values() else type(defended).__name__
        raise BadInput(
            f"{name} does not work on this network, which passes no gradients. Choose a defence that needs none, such "
            "as rounded_scores."
        ) from error
    return False


def shorter(attack: Attack) -> Attack:
    """The same attack with at most STEPS steps of gradients, in its parts too. Queries have budgets instead."""
    options = spec.spec_of(attack).options
    changed: dict[str, Any] = {k: shorter(v) for k, v in options.items() if isinstance(v, Attack)}
    if attack.access >= Access.GRADIENTS and isinstance(options.get("steps"), int):
        changed["steps"] = min(STEPS, options["steps"])
    return dataclasses.replace(attack, **changed)  # type: ignore[type-var]


def asks(chosen: Iterable[tuple[str, Threat]]) -> int:
    """About how many predictions of each side a battery needs for a sample, to judge how many samples fit."""
    return sum(_predictions(parse(text)) if threat.queries is None else threat.queries for text, threat in chosen)


def _predictions(attack: Attack) -> int:
    searches = sum(len(parts(part)) == 1 for part in parts(attack))
    draws = attack.samples if isinstance(attack, EOT) else 1
    return 2 * STEPS * searches * draws  # a gradient costs about two predictions


# ---------------------------------------------------------------- the verdict


@dataclass(frozen=True)
class Verdict:
    """The result of a trial. A notebook shows it as a table; `print` gives the same in Markdown."""

    report: Report
    cost: Cost
    scaled: Calibration | None
    samples: int
    seconds: float

    @property
    def rows(self) -> list[Row]:
        return self.report.rows

    @property
    def flags(self) -> list[Flag]:
        return self.report.flags

    @property
    def sentence(self) -> str:
        return " ".join(self.report.verdict)

    @property
    def sentences(self) -> list[str]:
        """The sentences below the table: cost, flags and confidence; the verdict last."""
        *others, last = self.report.sentences
        if self.scaled is not None:
            others.append(f"The bare classifier with its scores divided by a fitted temperature has {self.scaled}.")
        return [self.ran, str(self.cost), *others, last]

    @property
    def ran(self) -> str:
        """What was run, with its budgets, and what was not."""
        threats = {row.cell.attack: row.cell.threat for row in self.rows}
        each = [a if t.queries is None else f"{a} with {t.queries} queries" for a, t in threats.items()]
        masked = any(c.defence == defences.BARE for f in self.flags if f.name in MASKED for c in f.cells)
        longer = NOT_RUN[1:] if masked else NOT_RUN
        ran = f"A short trial: {join(each)}. Longer searches were not run, such as {join(longer)}."
        if any(threat.access >= Access.GRADIENTS for threat in threats.values()):
            return ran
        return f"{ran} The network passes no gradients, so attacks that need them were left out."

    def __repr__(self) -> str:
        return f"Verdict({self.samples} samples, {len(self.rows)} rows: {self.sentence})"

    def __str__(self) -> str:
        return as_markdown(self.rows, self.sentences)

    def _repr_html_(self) -> str:
        return table_as_html(row_table(self.rows), self.sentences)

    def json(self) -> dict[str, Any]:
        plain = {"samples": self.samples, "seconds": round(self.seconds, 1), "cost": vars(self.cost)}
        return {**plain, "scaled": None if self.scaled is None else vars(self.scaled), **self.report.json()}


@dataclass(frozen=True)
class Trial:
    """A defence to judge: both classifiers, and how to get images and labels, run the battery and read the rows.

    Each function takes sample ids, in order. `asks` says how often the battery asks about a sample (see `asks`).
    """

    model: nn.Module
    defended: Defence
    images: Callable[[Sequence[int]], tuple[Tensor, Tensor]]
    run: Callable[[Sequence[int]], None]
    rows: Callable[[Sequence[int]], list[Row]]
    asks: int


def run_trial(
    trial: Trial,
    samples: Sequence[int],
    minutes: float,
    warn: Callable[[Flag], None],
    stored: int = 0,
    batch: int | None = None,
) -> Verdict:
    """Run as many of the samples as fit into the minutes, and make the verdict.

    The first `stored` samples were run before and are not run again. `warn` gets the flags that are visible
    before the first attack, so that they are shown before minutes of computing.
    """
    check_minutes(minutes)
    start = time.monotonic()
    signs = first_signs(trial.model, *trial.images(samples[:LOOKED_AT]), batch)
    for flag in signs:
        warn(flag)
    spent = cost(trial.model, trial.defended, trial.images(samples[:TIMED])[0])
    each = max(trial.asks * (spent.bare_ms + spent.defended_ms) / 1000, 1e-9)
    expected = int(min(60 * minutes * SURE / each, len(samples)))
    expected = FIRST if signs else max(FIRST, expected)  # after a warning sign it may take far longer
    with told():
        done = stored + rounds(samples[stored:], 60 * minutes, trial.run, size=expected)
    taken = samples[:done]
    x, y = trial.images(taken)
    report = report_of(trial.rows(taken))
    seen = {flag.name for flag in signs}
    report = dataclasses.replace(report, flags=[*signs, *(flag for flag in report.flags if flag.name not in seen)])
    return Verdict(
        report, spent, scaled(trial.model, x, y, batch or default_batch(x.device)), done, time.monotonic() - start
    )


def first_signs(model: nn.Module, x: Tensor, y: Tensor, batch: int | None = None) -> list[Flag]:
    """Check images, labels and scores as an attack would, and return the flags that they show."""
    with fitting(model, x), untouched(x):
        scores = Eager(batch or default_batch(x.device)).scores(model, x)
    check_scores(scores, x, y.to(scores.device))
    few = slice(0, PREFLIGHT)
    with fitting(model, x), untouched(x):
        findings = preflight(model, x[few], y[few].to(x.device), batch or default_batch(x.device))
    wrong = [f for f in findings if f.fine is False and f.name not in TOLD]
    return [*before(x, y, scores), *(Flag("preflight", (), (), f"{f.found}. {f.todo}") for f in wrong)]


def verdict(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    defence: str | Defence = "anti_adversary",
    *,
    minutes: float = 5,
    ball: Ball | None = None,
    queries: int | None = None,
    seed: int = 0,
    batch: int | None = None,
    precision: str = AUTO,
    compiled: bool | str = AUTO,
) -> Verdict:
    """Judge a defence on this classifier and these images: gains, flags and cost.

    `defence` is a spec text, or a defence that wraps `model`. `ball` is the perturbation set (by default Linf(8/255)),
    `queries` the budget of the attacks by labels and by scores. Images are taken in order, as many as fit into
    `minutes`. `precision` and `compiled` are those of `attack`.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval()
    >>> x = torch.full((4, 3, 2, 2), 0.5)
    >>> made = verdict(net, x, net(x).argmax(1), "anti_adversary", queries=10)
    >>> made.samples, [row.cell.attack for row in made.rows[:6:2]]
    (4, ['rays', 'square', 'apgd:steps=20'])
    """
    check_base(model)
    check_images(x)
    check_labels(y, x)
    check_minutes(minutes)
    if len(x) == 0:
        raise BadInput("a verdict needs images and a label for each; found none. Pass at least one.")
    defended = _wrapped(defence, model)
    limits = Threat(Linf(8 / 255) if ball is None else ball, Access.SCORES, queries)
    how = {"seed": seed, "batch": batch, "compiled": compiled}
    with fitting(model, x):
        chosen = battery(limits.ball, defended, queries, with_gradients(model, defended, x, y))
    with bar() as show:
        trial = _in_memory(model, defended, x, y, chosen, precision, how, show)
        return run_trial(
            trial, range(len(x)), minutes, lambda flag: warnings.warn(f"Flag {flag}", stacklevel=4), batch=batch
        )


def _wrapped(defence: str | Defence, model: nn.Module) -> Defence:
    if defence == defences.BARE:
        raise BadInput("a verdict compares a defence with the bare classifier; name one, for example anti_adversary.")
    if isinstance(defence, str):
        return spec.parse(defence, defences.DEFENCES, "defence", model)  # type: ignore[no-any-return]
    if not isinstance(defence, Defence) or defence.base is not model:
        raise BadInput("the defence does not wrap this model; make it of the same one, or give its text.")
    return defence


def _in_memory(
    model: nn.Module,
    defended: Defence,
    x: Tensor,
    y: Tensor,
    attacks: Sequence[tuple[str, Threat]],
    precision: str,
    how: dict[str, Any],
    show: Show | None,
) -> Trial:
    """A trial whose records are kept in memory. `how` are more arguments of `attack`, `show` is a notebook's bar."""
    registered = type(defended) in defences.DEFENCES.values()
    sides = {defences.BARE: model, spec.text(defended) if registered else type(defended).__name__: defended}
    records: dict[tuple[str, str], list[Record]] = {(d, a): [] for a, _ in attacks for d in sides}

    def images(ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        index = torch.tensor(ids, device=x.device)
        return x[index], y[index.to(y.device)]

    def run(ids: Sequence[int]) -> None:
        part, labels = images(ids)
        for (text, threat), (name, side) in product(attacks, sides.items()):
            budget, chosen = threat.queries, searched_in(text, threat, side)
            if show is not None:
                spent = sum(map(len, records.values()))
                show(f"{text} on samples {ids[0]} to {ids[-1]} with {name}", spent, len(records) * len(x))
            outcome = attack_and_judge(
                side, part, labels, text, threat.ball, queries=budget, ids=torch.tensor(ids), precision=chosen, **how
            )
            records[name, text] += outcome.records

    tried = cache(lambda side, coarse, gradients: survives(coarse, side, x, gradients))

    def searched_in(text: str, threat: Threat, side: nn.Module) -> str:
        return resolve_precision(precision, parse(text), side, threat.ball, x.device, partial(tried, side))

    def row(text: str, threat: Threat, side: str, n: int) -> Row:
        chosen = searched_in(text, threat, sides[side])
        cell = Cell(IN_HAND, "", type(model).__name__, "", side, text, threat, range(n), how["seed"], chosen)
        return make_row(cell, records[side, text], [] if side == defences.BARE else records[defences.BARE, text])

    def rows(ids: Sequence[int]) -> list[Row]:
        return [row(text, threat, side, len(ids)) for text, threat in attacks for side in sides]

    return Trial(model, defended, images, run, rows, asks(attacks))
