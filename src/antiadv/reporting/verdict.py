"""The verdict: what a defence gains, at each level of access, and what is left against an adaptive attacker.

Gains are in points of robust accuracy, against the bare classifier on the same samples. If a level has several attacks,
the worst case for each sample counts, on both sides. An attacker who knows the defence can also run all other attacks,
so at that level every attack counts.

A defence cannot be judged if the attacks broke at most 5 % of the samples that the bare network classifies correctly,
or if the bare network is no better than guessing on clean images. A gain that is not significant counts as none only if
its interval ends below ten points; otherwise there are too few samples to tell.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from antiadv import defences
from antiadv.core.ball import Ball
from antiadv.core.threat import Access
from antiadv.reporting.flags import stands
from antiadv.reporting.groups import grouped
from antiadv.reporting.measures import (
    Calibration,
    Difference,
    Ratio,
    Share,
    calibration,
    difference,
    guessing,
    paired,
    paired_by,
    right,
    share,
    soonest_ratio,
    standing,
)
from antiadv.reporting.rows import Row, bare_cell, level
from antiadv.reporting.table import samples_of
from antiadv.reporting.temperature import Digests
from antiadv.reporting.wording import count, join

WHO = {
    Access.LABELS: "an attacker who sees labels",
    Access.SCORES: "an attacker who sees scores",
    Access.GRADIENTS: "an attacker who has gradients",
    Access.INTERNALS: "an attacker who knows the defence",
}
IF = {
    Access.LABELS: "if they see labels",
    Access.SCORES: "if they see scores",
    Access.GRADIENTS: "if they have gradients",
}
ADAPTIVE = WHO[Access.INTERNALS]
OTHERS = "Against attackers who do not know it,"

LEVEL = 0.05  # significance level of a test
MUCH = 0.10  # a gain counts as none if its interval excludes this
FEW = 1_000  # queries: with fewer an attack has often not reached what it can
LITTLE = 0.05  # if no larger share of the bare network's correct samples was broken, there was nothing to gain


@dataclass(frozen=True)
class Level:
    """What a defence gains at one level of access, against these attacks with these seeds.

    `ratio` is the ratio of the median queries to break a sample, over the samples that are correct on both sides. For
    each sample the attack that breaks it first counts.
    """

    data: str
    model: str
    defence: str
    ball: Ball
    access: Access
    attacks: tuple[str, ...]
    gain: Difference
    ratio: Ratio | None
    seeds: tuple[int, ...] = (0,)
    broken: Share | None = None  # share of the bare network's correct samples that any attack in this ball broke
    samples: str = field(default="", compare=False)  # behind the gain, see `table.samples_of`
    budgets: tuple[int, ...] = ()  # queries for each sample, where they were limited

    @property
    def tells(self) -> bool:
        """Whether there was anything to gain."""
        return self.broken is None or self.broken.value > LITTLE

    def json(self) -> dict[str, Any]:
        plain = {k: getattr(self, k) for k in ("data", "model", "defence")}
        plain |= {"ball": str(self.ball), "access": str(self.access)}
        plain |= {"attacks": list(self.attacks), "seeds": list(self.seeds)}
        ratio = None if self.ratio is None else dataclasses.asdict(self.ratio)
        broken = None if self.broken is None else dataclasses.asdict(self.broken)
        return {**plain, "gain": dataclasses.asdict(self.gain), "ratio": ratio, "broken": broken}


Pair = tuple[Row, Row]  # a bare row and the defended one that it is compared with
Place = tuple[str, str, str]  # data, model and defence


def levels(rows: Sequence[Row]) -> list[Level]:
    """Return the levels of each data set, model, defence and ball with both bare and defended rows."""
    groups = grouped(_pairs(rows), lambda pair: (*_place(pair[1]), pair[1].cell.threat.ball))
    made = []
    for place, pairs in groups.items():
        broken = _broken([b for b, _ in pairs])
        for access in sorted({level(r.cell) for _, r in pairs}):
            at = [pair for pair in pairs if level(pair[1].cell) == access]
            gain, used = _worst(pairs if access == Access.INTERNALS else at, at)
            mine = [pair for pair in used if level(pair[1].cell) == access]
            ratio = soonest_ratio([b.records for b, _ in mine], [r.records for _, r in mine], place[3])
            attacks = tuple(dict.fromkeys(r.cell.attack for _, r in used))
            seeds = tuple(sorted({r.cell.seed for _, r in used}))
            samples = samples_of((r.key for _, r in used), (b.key for b, _ in used))
            budgets = tuple(sorted({q for _, r in mine if (q := r.cell.threat.queries) is not None}))
            made.append(Level(*place, access, attacks, gain, ratio, seeds, broken, samples, budgets))
    return made


def _place(r: Row) -> Place:
    return r.data, r.model, r.defence


def _pairs(rows: Sequence[Row]) -> Iterator[Pair]:
    """Each defended row with its bare one, if both are there."""
    bare = {r.cell: r for r in rows}
    for r in rows:
        if r.gain is not None and (before := bare.get(bare_cell(r.cell))) is not None:
            yield before, r


def _broken(bare: Sequence[Row]) -> Share:
    """The share of the bare classifier's correct samples that any attack broke. It is unknown if none is correct."""
    fell: dict[int, bool] = {}
    for row in bare:
        for r in filter(right, row.records):
            fell[r.sample] = fell.get(r.sample, False) or not standing(r, row.cell.threat.ball)
    return share(sum(fell.values()), len(fell)) if fell else Share(0.0, 0.0, 1.0, 0)


def _worst(pairs: Sequence[Pair], at: Sequence[Pair]) -> tuple[Difference, Sequence[Pair]]:
    """Return the gain in the worst case over these pairs, and the pairs that it was computed from.

    The worst case covers the samples that all pairs share. Pairs with fewer than half the samples of the longest at the
    level are left out, so that a short run does not reduce the samples. If no sample is shared by all pairs, only those
    at the level count; if these share none either, the single pair with the smallest gain.
    """
    most = max(len(_samples(pair)) for pair in at)
    long = [pair for pair in pairs if 2 * len(_samples(pair)) >= most]
    for tried in (long, [pair for pair in long if pair in at]):
        before, after = stands([b for b, _ in tried]), stands([r for _, r in tried])
        if before.keys() & after.keys():
            return difference(before, after), tried
    least = min(at, key=lambda pair: _gain(pair).value)
    return _gain(least), [least]


def _samples(pair: Pair) -> set[int]:
    return set.intersection(*({record.sample for record in row.records} for row in pair))


def _gain(pair: Pair) -> Difference:
    return paired(pair[0].records, pair[1].records, pair[1].cell.threat.ball)


# ---------------------------------------------------------------- sentences


def verdict(rows: Sequence[Row]) -> list[str]:
    """Return a few sentences for each data set, model and defence with both bare and defended rows."""
    groups = grouped(levels(rows), lambda part: (part.data, part.model, part.defence))
    several, longest, unpaired = len({data for data, _, _ in groups}) > 1, _longest(rows), _unpaired(rows)
    texts = []
    for place, parts in groups.items():
        data, model, defence = place
        on, pair = f"On {model} ({data})" if several else f"On {model}", longest[place]
        telling = [] if guessing(pair[0].records) else [part for part in parts if part.tells]
        if telling:
            silent = list(dict.fromkeys(str(part.ball) for part in parts if part not in telling))
            texts.append(" ".join(_sentences(on, defence, telling, pair, unpaired.get(place), silent)))
        else:
            texts.append(_unable(on, defence, parts, pair[0]))
    return texts


def _sentences(
    on: str, defence: str, parts: Sequence[Level], pair: Pair, unpaired: Row | None, silent: Sequence[str]
) -> Iterator[str]:
    """The adaptive attack's result, then the gains against others, then what the defence costs and what is unknown.

    Attacks are not named: their texts are long, and the table has them.
    """
    balls = len({part.ball for part in parts}) > 1
    adaptive = [part for part in parts if part.access == Access.INTERNALS]
    yield f"{on}, {_known(defence, adaptive, unpaired, balls)}"
    yield _others([part for part in parts if part.access < Access.INTERNALS], balls)
    clean = paired_by(pair[0].records, pair[1].records, right)
    if clean.value < 0 and clean.p <= LEVEL:
        yield f"It costs {points(clean, signed=False)} of clean accuracy."
    yield from short_budgets(parts)
    untried = dict.fromkeys(str(part.ball) for part in parts if part.ball not in {a.ball for a in adaptive})
    if adaptive and untried:
        yield f"No adaptive attack was run in {join(list(untried))}."
    if silent:
        yield f"In {join(silent)} the attacks broke almost no sample of the bare network, so nothing is known there."


def short_budgets(parts: Sequence[Level]) -> Iterator[str]:
    """With how many queries the gains were found, where that is few."""
    few = [part for part in parts if part.budgets and part.access < Access.INTERNALS and max(part.budgets) < FEW]
    if few:
        each = [f"{join([f'{q:,}' for q in part.budgets])} {IF[part.access]}" for part in few]
        yield f"These gains are for few queries on each sample: {join(each)}. With more they can be larger."


def _known(defence: str, adaptive: Sequence[Level], unpaired: Row | None, balls: bool) -> str:
    """What is known about an attacker who knows the defence."""
    if adaptive:
        worst = min(adaptive, key=lambda part: part.gain.value)
        found = f"{change(worst.gain)}{_where(worst, balls)}"
        if gained(worst.gain):
            return f"{defence} {found} against {ADAPTIVE}."
        if unsure(worst.gain):
            few = f"{count(worst.gain.n, 'sample')} {'is' if worst.gain.n == 1 else 'are'} too few to tell"
            return f"{few} whether {defence} protects against {ADAPTIVE}: it {found}."
        return f"{defence} does not protect against {ADAPTIVE}: it {found}."
    if unpaired is not None and (s := unpaired.robust) is not None:
        left = f"{100 * s.value:.1f} % [{100 * s.low:.1f}, {100 * s.high:.1f}] of {count(s.n, 'sample')}"
        found = f"{defence} leaves {left} standing in {unpaired.cell.threat.ball} against {ADAPTIVE}"
        return f"{found}. Run the same attack on the bare classifier too, to know the gain."
    return f"no adaptive attack was run on {defence}, so nothing is known about {ADAPTIVE}."


def _others(parts: Sequence[Level], balls: bool) -> str:
    """What a defence gains against attackers who do not know it, then what it loses."""
    gains, losses = ([part for part in parts if (part.gain.value < 0) == below] for below in (False, True))
    texts = [f"{verb} {_listed(at, balls)}" for verb, at in (("gains", gains), ("loses", losses)) if at]
    return f"{OTHERS} it {'. It '.join(texts) or 'was not tested'}."


def _listed(parts: Sequence[Level], balls: bool) -> str:
    """Points and access of each level, with the ratio of queries between commas."""
    *first, last = [
        f"{points(part.gain, part.gain.value >= 0)} {IF[part.access]}{_where(part, balls)}{_cost(part.ratio)}"
        for part in parts
    ]
    return f"{', '.join(first)}, and {last}" if first else last


def _unable(on: str, defence: str, parts: Sequence[Level], bare: Row) -> str:
    """Say that the defence cannot be judged, why, and what to check."""
    first = f"{on}, {defence} cannot be judged"
    most = max((part.broken for part in parts if part.broken is not None), key=lambda s: (s.n > 0, s.value))
    if guessing(bare.records) or most.n == 0:
        return (
            f"{first}: the bare network is right on {100 * bare.clean.value:.1f} % of "
            f"{count(bare.clean.n, 'clean image')}, which is no better than guessing. Check the labels, the range and "
            "the normalisation of the images, and the weights."
        )
    balls = join(list(dict.fromkeys(str(part.ball) for part in parts)))
    return (
        f"{first}: the attacks in {balls} broke only {100 * most.value:.1f} % [{100 * most.low:.1f}, "
        f"{100 * most.high:.1f}] of the {count(most.n, 'sample')} that the bare network classifies correctly, so there "
        "was almost nothing to gain. Try a larger radius or more steps or queries, and check whether its gradients "
        "vanish."
    )


def _unpaired(rows: Sequence[Row]) -> dict[Place, Row]:
    """The strongest adaptive attack on each defence that was not run on the bare classifier."""
    strongest: dict[Place, Row] = {}
    for r in rows:
        place = _place(r)
        if r.robust is None or r.gain is not None or r.cell.defence == defences.BARE:
            continue
        if level(r.cell) == Access.INTERNALS:
            strongest[place] = min(strongest.get(place, r), r, key=_left)
    return strongest


def _left(row: Row) -> float:
    return math.inf if row.robust is None else row.robust.value


def _where(part: Level, balls: bool) -> str:
    """The ball of a level if asked for, and its seeds if there are several."""
    seeds = f" (worst of seeds {join([str(seed) for seed in part.seeds])})" if len(part.seeds) > 1 else ""
    return (f" in {part.ball}" if balls else "") + seeds


def change(g: Difference) -> str:
    """A gain, or a loss if it is below zero, with its verb."""
    return f"gains {points(g)}" if g.value >= 0 else f"loses {points(g, signed=False)}"


def points(g: Difference, signed: bool = True) -> str:
    """A gain with its sign, or a loss without."""
    ends = (g.value, g.low, g.high) if signed else (-g.value, -g.high, -g.low)
    value, low, high = (f"{100 * v:{'+' if signed else ''}.1f}" for v in ends)
    return f"{value} points [{low}, {high}] (p {g.p:{'.2f' if g.p >= 0.01 else '.0e'}})"


def _cost(ratio: Ratio | None) -> str:
    if ratio is None or ratio.digits == "1":
        return ""
    bound = {"exactly": "", "more": "more than ", "less": "less than "}[ratio.bound]
    return f", at {bound}{ratio.digits} times the queries"


def gained(g: Difference) -> bool:
    """Whether a gain is significant."""
    return g.value > 0 and g.p <= LEVEL


def unsure(g: Difference) -> bool:
    """Whether a gain is not significant, but may still be large."""
    return not gained(g) and g.high > MUCH


# ---------------------------------------------------------------- confidence


@dataclass(frozen=True)
class Confidence:
    """The calibration on clean images, bare and with the defence, on the same samples.

    `scaled` is the calibration of the bare scores divided by a fitted temperature, if it was measured, on samples of
    its own. `place` is the name of the network in the sentence.
    """

    data: str
    model: str
    defence: str
    bare: Calibration
    defended: Calibration
    scaled: Calibration | None = None
    place: str = ""

    def __str__(self) -> str:
        text = f"Confidence on clean images: {self.place or self.model} has {self.bare}"
        text = f"{text}; with {self.defence}, {self.defended}"
        if self.scaled is None:
            return f"{text}."
        return f"{text}; without it, but with a fitted temperature, {self.scaled} ({self.scaled.n} samples)."

    def json(self) -> dict[str, Any]:
        return {k: v for k, v in dataclasses.asdict(self).items() if k != "place"}


def confidence(rows: Sequence[Row], scaled: Mapping[Digests, Calibration] | None = None) -> list[Confidence]:
    """Return the confidence of each data set, model and defence, from the pair of rows with the most samples.

    `scaled` is the calibration with a fitted temperature, where it is known: `reporting/temperature.py`.
    """
    known = scaled or {}
    return [
        Confidence(*place, *_common(*pair), known.get((pair[0].cell.weights, pair[0].cell.images)), pair[1].place)
        for place, pair in _longest(rows).items()
    ]


def _longest(rows: Sequence[Row]) -> dict[Place, Pair]:
    """The pair with the most samples of each data set, model and defence."""
    groups = grouped(_pairs(rows), lambda pair: _place(pair[1]))
    return {place: max(pairs, key=lambda pair: len(pair[1].records)) for place, pairs in groups.items()}


def _common(bare: Row, defended: Row) -> tuple[Calibration, Calibration]:
    both = {r.sample for r in bare.records} & {r.sample for r in defended.records}
    one, two = ([r for r in row.records if r.sample in both] for row in (bare, defended))
    return calibration(one), calibration(two)
