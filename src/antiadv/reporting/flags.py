"""Flags, computed from rows and their records. `docs/flags.md` says what each means and what to do.

    flags(rows)  →  [Flag]        depends on these rows only; nothing is kept between calls

Cells are compared on the samples that both have. A difference counts if McNemar's exact test gives p ≤ 5 % after Holm's
correction for all comparisons of its rule. So in at most one of twenty reports chance raises a flag of a rule. A share
counts if the lower end of its 95 % Wilson interval is above the threshold.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import combinations, pairwise, takewhile
from typing import Any

from torch import Tensor

from antiadv import attacks, defences
from antiadv.core.attack import least_queries
from antiadv.core.threat import Access
from antiadv.evaluation.cell import Cell, Record
from antiadv.evaluation.early import NO_MORE, early_signs
from antiadv.evaluation.judge import idle, is_randomised, ran_autoattack
from antiadv.reporting.groups import grouped
from antiadv.reporting.measures import Difference, Share, difference, guessing, right, share, standing
from antiadv.reporting.rows import Row, bare_cell, identity, level
from antiadv.reporting.select import coarseness, ignoring_precision, weak

LEVEL = 0.05  # significance level of all tests of a rule together
ZEROS, DRAWS = 0.05, 0.05  # shares of samples: with zero gradients, with labels that depend on the draw
SURVIVORS = 0.01  # share of samples that an unbounded attack may leave; it should leave none
LABELS = 0.01  # share of samples on which f and g may differ: counted, so without an interval
HALF = 0.5  # an Linf radius at which every image can be made the same grey


@dataclass(frozen=True)
class Flag:
    """A rule's name, the cells it concerns, the numbers that raised it, and a sentence."""

    name: str
    cells: tuple[Cell, ...]
    numbers: tuple[tuple[str, float], ...]
    sentence: str

    def __str__(self) -> str:
        return f"{self.name}: {self.sentence}"

    def json(self) -> dict[str, Any]:
        plain = {"name": self.name, "sentence": self.sentence, "numbers": dict(self.numbers)}
        return {**plain, "cells": [identity(c) for c in self.cells]}


Rule = Callable[[Sequence[Row]], Iterator[Flag]]
Compared = tuple[float, Flag]  # p of a comparison (1 if it went the harmless way), and the flag if p is small enough


def flags(rows: Sequence[Row]) -> list[Flag]:
    """Return every flag that these rows raise, rule by rule."""
    stored = [r for r in rows if r.records]
    ran = [r for r in stored if r.robust is not None]
    return [flag for rule in RULES.values() for flag in rule(stored if rule in OF_ALL else ran)]


def corrected(rule: Callable[[Sequence[Row]], Iterator[Compared]]) -> Rule:
    """Keep the flags of a rule whose comparisons are significant together (Holm, Scand. J. Stat. 6:65, 1979).

    Sort m comparisons by p. The i-th, from 0 on, counts while p·(m − i) ≤ 5 %.
    """

    @wraps(rule)
    def significant(rows: Sequence[Row]) -> Iterator[Flag]:
        found = list(rule(rows))
        small = takewhile(lambda at: at[1] * (len(found) - at[0]) <= LEVEL, enumerate(sorted(p for p, _ in found)))
        largest = max((p for _, p in small), default=-1.0)
        yield from (flag for p, flag in found if p <= largest)

    return significant


# ---------------------------------------------------------------- the rules


def not_attacked(rows: Sequence[Row]) -> Iterator[Flag]:
    """The attack tried nothing, usually because its budget is smaller than its first step."""
    for r in rows:
        if r.robust is None:
            attack, threat = attacks.parse(r.cell.attack), r.cell.threat
            lost = sum(idle(r.records, attack, threat))
            text = f"{lost} of {len(r.records)} samples were not attacked by {_name(r)}: {r.never_ran}."
            numbers = ("lost", float(lost)), ("n", float(len(r.records)))
            yield Flag("not_attacked", (r.cell,), (*numbers, ("least", float(least_queries(attack, threat)))), text)


def near_chance(rows: Sequence[Row]) -> Iterator[Flag]:
    """On clean images the classifier is no better than guessing."""
    best: dict[Hashable, Row] = {}
    for r in rows:
        c = r.cell
        place = c.data, c.images, c.model, c.weights, c.defence
        best[place] = max(best.get(place, r), r, key=lambda row: len(row.records))
    for r in best.values():
        if guessing(r.records):
            defence = "" if r.cell.defence == defences.BARE else f" with {r.defence}"
            text = f"{r.place}{defence} is right on {_percent(r.clean)} of {r.clean.n} clean images, {NO_MORE}"
            yield Flag("near_chance", (r.cell,), _numbers(r.clean), f"{text}.")


@corrected
def adaptive_beats_white_box(rows: Sequence[Row]) -> Iterator[Compared]:
    """On a defence, an adaptive attack leaves fewer samples than attacks with the defence's own gradients."""
    defended = [r for r in rows if r.cell.defence != defences.BARE]
    yield from _beaten("adaptive_beats_white_box", defended, [Access.INTERNALS])


@corrected
def black_box_beats_white_box(rows: Sequence[Row]) -> Iterator[Compared]:
    """An attack that sees only scores or labels leaves fewer samples than one that has gradients."""
    yield from _beaten("black_box_beats_white_box", rows, [Access.LABELS, Access.SCORES])


def zero_gradients(rows: Sequence[Row]) -> Iterator[Flag]:
    """The gradient was exactly zero at least once for more than 5 % of the samples with a gradient."""
    for r in rows:
        asked = [x for x in r.records if x.gradients]
        if asked and (found := share(sum(x.zeros > 0 for x in asked), len(asked))).low > ZEROS:
            text = f"{_name(r)} got gradients of exactly zero on {_percent(found)} of {found.n} samples"
            yield Flag("zero_gradients", (r.cell,), _numbers(found), f"{text}.")


def fast_alarm(rows: Sequence[Row]) -> Iterator[Flag]:
    """`fast` ran AutoAttack: where it did not trust gradients, or because the defence is randomised."""
    for r in rows:
        dice = _is_randomised(r)
        if alarmed := ran_autoattack(r.records, attacks.parse(r.cell.attack), dice):
            n = len(r.records)
            text = f"{_name(r)} ran AutoAttack on {alarmed} of {n} samples or more: it found their gradients masked."
            if dice:
                text = f"{_name(r)} ran AutoAttack's version `rand` on {alarmed} of {n} samples, as it does on every"
                text = f"{text} randomised defence."
            yield Flag("fast_alarm", (r.cell,), (("alarmed", float(alarmed)), ("n", float(n))), text)


@corrected
def not_monotone(rows: Sequence[Row]) -> Iterator[Compared]:
    """More samples stand at a larger radius, or with a larger budget."""

    def same(r: Row, **words: object) -> Hashable:
        threat = dataclasses.replace(r.cell.threat, **words)  # type: ignore[arg-type]
        return dataclasses.replace(r.cell, threat=threat)

    def radius(r: Row) -> float:
        return r.cell.threat.ball.eps

    def budget(r: Row) -> float:
        return math.inf if r.cell.threat.queries is None else r.cell.threat.queries

    orders = (
        ("radius", radius, lambda r: same(r, ball=dataclasses.replace(r.cell.threat.ball, eps=0.0))),
        ("budget", budget, lambda r: same(r, queries=None)),
    )

    for what, size, key in orders:
        for group in grouped(rows, key).values():
            for small, large in pairwise(sorted(group, key=size)):
                d = _compare([small], [large])
                if size(small) < size(large) and d is not None:
                    text = f"at the larger {what} {_points(d)} more samples stand against {_name(large)}"
                    text = f"{text} than at {small.cell.threat}."
                    flag = Flag("not_monotone", (small.cell, large.cell), _gap(d), text)
                    yield d.p if d.value > 0 else 1.0, flag


def unbounded_attack_fails(rows: Sequence[Row]) -> Iterator[Flag]:
    """Samples stand although neither the perturbation nor the queries are limited."""
    for r in rows:
        ball = r.cell.threat.ball
        free = ball.eps == math.inf or (ball.p == math.inf and ball.eps >= HALF)
        if free and r.cell.threat.queries is None and r.robust is not None and r.robust.low > SURVIVORS:
            text = f"{_name(r)} may change the images without limit, but {_percent(r.robust)} of {r.robust.n} stand"
            yield Flag("unbounded_attack_fails", (r.cell,), _numbers(r.robust), f"{text}.")


@corrected
def changes_with_seed(rows: Sequence[Row]) -> Iterator[Compared]:
    """The same cell has another accuracy with another seed."""
    for group in grouped(rows, lambda r: dataclasses.replace(r.cell, seed=0)).values():
        for one, other in combinations(sorted(group, key=lambda r: r.cell.seed), 2):
            d = _compare([one], [other])
            if d is not None:
                seeds = f"from seed {one.cell.seed} to {other.cell.seed}"
                text = f"{seeds}, the accuracy under {_name(one, seed=False)} changes by {_points(d, sign=True)}."
                yield d.p, Flag("changes_with_seed", (one.cell, other.cell), _gap(d), text)


@corrected
def changes_with_precision(rows: Sequence[Row]) -> Iterator[Compared]:
    """A cell leaves more samples if it is searched in a coarser precision."""
    for group in grouped(rows, _in_any_precision).values():
        for fine, rough in combinations(sorted(group, key=_digits), 2):
            d = _compare([fine], [rough])
            if d is not None:
                text = f"searched in {rough.cell.precision}, {_name(rough)} leaves {_points(d)} more standing"
                text = f"{text} than in {fine.cell.precision}."
                flag = Flag("changes_with_precision", (fine.cell, rough.cell), _gap(d), text)
                yield d.p if d.value > 0 else 1.0, flag


def too_few_digits(rows: Sequence[Row]) -> Iterator[Flag]:
    """An attack was searched in a precision that is known to break fewer samples, and no finer search is stored."""
    for r in (min(group, key=_digits) for group in grouped(rows, _in_any_precision).values()):
        if found := weak(r.cell):
            text = f"{_name(r)} was searched in {r.cell.precision}, in which {' and '.join(sorted(found))}"
            numbers = (("n", float(len(r.records))),)
            yield Flag("too_few_digits", (r.cell,), numbers, f"{text} is known to break fewer samples than in float32.")


def changes_with_draw(rows: Sequence[Row]) -> Iterator[Flag]:
    """For more than 5 % of the samples, the defence's random numbers decide whether it is right."""

    def torn(r: Record) -> bool:
        return 0 < r.clean_right < r.draws or 0 < r.attacked_right < r.draws

    for r in rows:
        if (found := share(sum(map(torn, r.records)), len(r.records))).low > DRAWS:
            text = f"under {_name(r)} the random numbers decide on {_percent(found)} of {found.n} samples"
            yield Flag("changes_with_draw", (r.cell,), _numbers(found), f"{text}.")


def changes_with_look(rows: Sequence[Row]) -> Iterator[Flag]:
    """An unchanged image gets another label when it is predicted again."""
    for r in rows:
        same = [x for x in r.records if x.queries == 0 and x.distance == 0]  # misclassified, so not attacked
        turned = [x for x in same if (x.clean, x.base_clean) != (x.attacked, x.base_attacked)]
        if turned:
            text = f"{len(turned)} of {len(same)} unchanged images got another label when they were predicted again, "
            text = f"{text}the first of them sample {turned[0].sample}: {_name(r)}."
            numbers = (("turned", float(len(turned))), ("n", float(len(same))))
            yield Flag("changes_with_look", (r.cell,), numbers, text)


def outside_the_ball(rows: Sequence[Row]) -> Iterator[Flag]:
    """An attack returned images that fool the classifier, beyond the radius, so they do not count."""
    for r in rows:
        ball = r.cell.threat.ball
        beyond = [x for x in r.records if right(x) and 2 * x.attacked_right <= x.draws and x.distance > ball.reach]
        if beyond and not attacks.parse(r.cell.attack).minimal:
            text = f"{len(beyond)} of {len(r.records)} images of {_name(r)} fool the classifier beyond the radius, and"
            numbers = ("beyond", float(len(beyond))), ("n", float(len(r.records)))
            yield Flag("outside_the_ball", (r.cell,), numbers, f"{text} count as standing.")


def labels_differ(rows: Sequence[Row]) -> Iterator[Flag]:
    """The defence and the bare classifier give different labels to more than 1 % of the clean or attacked images."""
    for r in rows:
        n = len(r.records)
        clean = sum(x.clean != x.base_clean for x in r.records) / n
        attacked = sum(x.attacked != x.base_attacked for x in r.records) / n
        if max(clean, attacked) > LABELS:
            text = f"{r.defence} changes the label of {100 * clean:.1f} % of the clean images and of "
            numbers = (("clean", clean), ("attacked", attacked), ("n", float(n)))
            yield Flag("labels_differ", (r.cell,), numbers, f"{text}{100 * attacked:.1f} % of those from {_name(r)}.")


@corrected
def worse_than_bare(rows: Sequence[Row]) -> Iterator[Compared]:
    """Fewer samples stand with a defence than bare, in the worst case of the attacks that were run on both alike."""
    bare = grouped([r for r in rows if r.cell.defence == defences.BARE], _arena)
    for group in grouped([r for r in rows if r.cell.defence != defences.BARE], _arena).values():
        first = group[0].cell
        alone = bare.get(_arena(dataclasses.replace(group[0], cell=bare_cell(first))), [])
        both = set(map(_armed, group)) & set(map(_armed, alone))
        before, after = ([r for r in some if _armed(r) in both] for some in (alone, group))
        d = _compare(before, after) if both else None
        if d is not None:
            text = f"with {group[0].defence} {_points(d)} fewer stand than on {group[0].place} alone"
            named = " and ".join(sorted({r.cell.attack for r in after}))
            text = f"{text}, in the worst case of {named} ({first.threat.ball})."
            flag = Flag("worse_than_bare", tuple(r.cell for r in after), _gap(d), text)
            yield d.p if d.value < 0 else 1.0, flag


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        not_attacked,
        near_chance,
        adaptive_beats_white_box,
        black_box_beats_white_box,
        zero_gradients,
        fast_alarm,
        not_monotone,
        unbounded_attack_fails,
        changes_with_seed,
        changes_with_precision,
        too_few_digits,
        changes_with_draw,
        changes_with_look,
        outside_the_ball,
        labels_differ,
        worse_than_bare,
    )
}
OF_ALL = (not_attacked, near_chance)  # the other rules need rows whose attack ran


# ---------------------------------------------------------------- before anything is attacked


def before(x: Tensor, y: Tensor, s: Tensor) -> list[Flag]:
    """Return the signs that images, labels and the bare classifier's scores show before an attack."""
    return [Flag(sign.name, (), sign.numbers, sign.sentence) for sign in early_signs(x, s.argmax(1), y, s.shape[1])]


# ---------------------------------------------------------------- comparing


def _digits(r: Row) -> int:
    return coarseness(r.cell.precision)


def _in_any_precision(r: Row) -> Hashable:
    """The same cell, in any precision and with any samples."""
    return dataclasses.replace(ignoring_precision(r.cell), samples=range(0))


def _arena(r: Row) -> Hashable:
    """Attacks are compared on the same images, classifier, judge and ball."""
    c = r.cell
    return c.data, c.images, c.model, c.weights, c.defence, c.looks, c.threat.ball


def _armed(r: Row) -> Hashable:
    """An attack with its budget and its seed."""
    return r.cell.attack, r.cell.threat, r.cell.seed


def _at(rows: Sequence[Row], access: Access) -> list[Row]:
    return [r for r in rows if level(r.cell) == access]


def _beaten(name: str, rows: Sequence[Row], accesses: Sequence[Access]) -> Iterator[Compared]:
    """A comparison for each row at these levels that leaves fewer samples than the worst case of the white-box rows."""
    for group in grouped(rows, _arena).values():
        gradients = _at(group, Access.GRADIENTS)
        for r in (r for access in accesses for r in _at(group, access)):
            white = [w for w in gradients if _shared(w, r)]  # rows without a shared sample cannot be compared
            d = _compare(white, [r])
            if d is not None:
                others = dict.fromkeys(w.cell.attack for w in white)  # each once, with any seeds and budgets
                text = f"{_name(r)} leaves {_points(d)} fewer standing than {' and '.join(others)}"
                text = f"{text}, which had gradients."
                flag = Flag(name, (r.cell, *(w.cell for w in white)), _gap(d), text)
                yield d.p if d.value < 0 else 1.0, flag


def _shared(one: Row, other: Row) -> bool:
    return not {x.sample for x in one.records}.isdisjoint(x.sample for x in other.records)


def stands(rows: Sequence[Row]) -> dict[int, bool]:
    """Return whether each sample that all rows share stands in every row, each at its own radius."""
    each = [{x.sample: standing(x, r.cell.threat.ball) for x in r.records} for r in rows]
    common = set.intersection(*(set(found) for found in each)) if each else set()
    return {i: all(found[i] for found in each) for i in sorted(common)}


def _compare(first: Sequence[Row], second: Sequence[Row]) -> Difference | None:
    before, after = stands(first), stands(second)
    return difference(before, after) if before.keys() & after.keys() else None


def _is_randomised(r: Row) -> bool:
    """By the name of the defence, or, for one in hand, by the judge's looks."""
    known = defences.DEFENCES.get(r.cell.defence.partition(":")[0])
    return is_randomised(r.records) if known is None else known.randomised


# ---------------------------------------------------------------- wording


def _name(r: Row, seed: bool = True) -> str:
    defence = "" if r.cell.defence == defences.BARE else f" with {r.defence}"
    limits = [str(r.cell.threat.ball), *[f"{most:,} queries" for most in [r.cell.threat.queries] if most is not None]]
    limits += [f"seed {r.cell.seed}"] * (seed and r.cell.seed != 0)
    return f"{r.cell.attack} ({', '.join(limits)}) on {r.place}{defence}"


def _points(d: Difference, sign: bool = False) -> str:
    size = f"{100 * d.value:+.1f}" if sign else f"{100 * abs(d.value):.1f}"
    return f"{size} points"


def _percent(s: Share) -> str:
    return f"{100 * s.value:.1f} %"


def _gap(d: Difference) -> tuple[tuple[str, float], ...]:
    return ("difference", d.value), ("p", d.p), ("n", float(d.n))


def _numbers(s: Share) -> tuple[tuple[str, float], ...]:
    return ("share", s.value), ("low", s.low), ("n", float(s.n))
