"""The verdict: what a defence gains against attackers who ask, and what is left against one who has it.

    levels(rows)      →  for each model, defence, ball and level of access, the gain and the ratio of median queries
    verdict(rows)     →  one plain sentence per model and defence, the adaptive attack's word last; first, what the
                         defence costs in clean accuracy, where that is more than chance explains
    confidence(rows)  →  one plain sentence per model and defence on what it does to the scores of clean images

Gains are in points of robust accuracy against the bare classifier, on the same samples. Of several attacks at one level
the worst case for each sample counts, on both sides, and of their queries those of the first to break it. Whoever knows
the defence may also do what the others do: at that level every attack counts.

Where the attacks broke next to nothing of the bare network (at most 5 % of the samples it gets right), or it does no
better than a guess on clean images, nothing can be said of a defence in front of it, and the sentence says that.

A gain that is not significant is no answer to an attacker only where the interval leaves no room for much of one: where
it ends beyond ten points, the samples are too few to tell.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from antiadv import defences
from antiadv.core.ball import Ball
from antiadv.core.threat import Access
from antiadv.reporting.flags import stands
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
from antiadv.reporting.temperature import Digests
from antiadv.reporting.wording import count

WHO = {
    Access.LABELS: "an attacker who sees labels",
    Access.SCORES: "an attacker who sees scores",
    Access.GRADIENTS: "an attacker who has gradients",
    Access.INTERNALS: "an attacker who knows the defence",
}

LEVEL = 0.05  # of a test
MUCH = 0.10  # what an interval must exclude before a gain is called none
LITTLE = 0.05  # of the bare network's right samples: where no more fell, no defence had anything to gain
NO_ANSWER = "it is no answer to an adaptive attacker"


@dataclass(frozen=True)
class Level:
    """What a defence gains at one level of access: `attacks` are those behind the gain, `seeds` those of their dice.

    `ratio` is how many times the queries it takes to break the median sample, by whichever of the level's attacks
    breaks it first, of the samples that are right on both sides.
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
    broken: Share | None = None  # of the samples that the bare network gets right, by any attack here, where known

    @property
    def tells(self) -> bool:
        """Whether there was anything to gain."""
        return self.broken is None or self.broken.value > LITTLE

    def json(self) -> dict[str, Any]:
        said = {k: getattr(self, k) for k in ("data", "model", "defence")}
        said |= {"ball": str(self.ball), "access": str(self.access)}
        said |= {"attacks": list(self.attacks), "seeds": list(self.seeds)}
        ratio = None if self.ratio is None else dataclasses.asdict(self.ratio)
        broken = None if self.broken is None else dataclasses.asdict(self.broken)
        return {**said, "gain": dataclasses.asdict(self.gain), "ratio": ratio, "broken": broken}


Pair = tuple[Row, Row]  # a bare row and the defended one beside it


def levels(rows: Sequence[Row]) -> list[Level]:
    """In the order of the rows, a level for each data set, model, defence and ball that stands beside its bare rows."""
    bare = {r.cell: r for r in rows}
    groups: dict[tuple[str, str, str, Ball], list[Pair]] = {}
    for r in rows:
        if r.gain is not None and (before := bare.get(bare_cell(r.cell))) is not None:
            place = r.data, r.model, r.defence, r.cell.threat.ball
            groups.setdefault(place, []).append((before, r))
    found = []
    for place, pairs in groups.items():
        broken = _broken([b for b, _ in pairs])
        for access in sorted({level(r.cell) for _, r in pairs}):
            at = [pair for pair in pairs if level(pair[1].cell) == access]
            gain, used = _worst(pairs if access == Access.INTERNALS else at, at)
            mine = [pair for pair in used if level(pair[1].cell) == access]
            ratio = soonest_ratio([b.records for b, _ in mine], [r.records for _, r in mine], place[3])
            attacks = tuple(dict.fromkeys(r.cell.attack for _, r in used))
            seeds = tuple(sorted({r.cell.seed for _, r in used}))
            found.append(Level(*place, access, attacks, gain, ratio, seeds, broken))
    return found


def _broken(bare: Sequence[Row]) -> Share:
    """Of the samples that the bare classifier gets right, those that any attack broke; of none, no share is known."""
    fell: dict[int, bool] = {}
    for row in bare:
        for r in filter(right, row.records):
            fell[r.sample] = fell.get(r.sample, False) or not standing(r, row.cell.threat.ball)
    return share(sum(fell.values()), len(fell)) if fell else Share(0.0, 0.0, 1.0, 0)


def _worst(pairs: Sequence[Pair], at: Sequence[Pair]) -> tuple[Difference, Sequence[Pair]]:
    """The gain in the worst case over these pairs; where they share no sample, over those at the level, or of one.

    The worst case is of the samples that all have. So that a short run does not decide how many speak, a pair with less
    than half as many as the longest at the level is left out.
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


def verdict(rows: Sequence[Row]) -> list[str]:
    """A sentence for each data set, model and defence among the rows that stand beside their bare classifier."""
    groups: dict[tuple[str, str, str], list[Level]] = {}
    for part in levels(rows):
        groups.setdefault((part.data, part.model, part.defence), []).append(part)
    several, spoken, lone = len({data for data, _, _ in groups}) > 1, _spokesmen(rows), _lone(rows)
    said = []
    for (x, m, d), found in groups.items():
        name, (bare, defended) = f"{m} ({x})" if several else m, spoken[x, m, d]
        telling = [] if guessing(bare.records) else [part for part in found if part.tells]
        if telling:
            silent = dict.fromkeys(str(part.ball) for part in found if part not in telling)
            sentence = _sentence(name, d, telling, _clean((bare, defended)), lone.get((x, m, d)))
            said.append(sentence + _untold(list(silent)))
        else:
            said.append(_unable(name, d, found, bare))
    return said


def _untold(balls: Sequence[str]) -> str:
    if not balls:
        return ""
    return f" In {_listed(balls)} the attacks broke next to nothing of the bare network, so nothing is said of that."


def _unable(model: str, defence: str, found: Sequence[Level], bare: Row) -> str:
    """That nothing can be said of the defence, why, and what to look at."""
    first = f"On {model}, {defence} cannot be judged"
    clean = f"the bare network is right on {100 * bare.clean.value:.1f} % of {count(bare.clean.n, 'clean image')}"
    most = max((part.broken for part in found if part.broken is not None), key=lambda s: (s.n > 0, s.value))
    if guessing(bare.records) or most.n == 0:
        return (
            f"{first}: {clean}, which is no more than a guess would have. Check the labels, the range and the "
            "normalisation of the images, and the weights."
        )
    attacks = _listed(list(dict.fromkeys(a for part in found for a in part.attacks)))
    balls = _listed(list(dict.fromkeys(str(part.ball) for part in found)))
    return (
        f"{first}: {attacks} in {balls} broke {100 * most.value:.1f} % [{100 * most.low:.1f}, {100 * most.high:.1f}] "
        f"of the {count(most.n, 'sample')} that the bare network gets right, so there was next to nothing to gain. "
        "Try a larger radius, more steps or queries, and look whether its gradients vanish."
    )


def _lone(rows: Sequence[Row]) -> dict[tuple[str, str, str], Row]:
    """For each data set, model and defence the strongest attack that knows it and did not meet the bare classifier."""
    found: dict[tuple[str, str, str], Row] = {}
    for r in rows:
        place = r.data, r.model, r.defence
        if r.robust is None or r.gain is not None or r.cell.defence == defences.BARE:
            continue
        if level(r.cell) == Access.INTERNALS:
            found[place] = min(found.get(place, r), r, key=_left)
    return found


def _left(row: Row) -> float:
    return math.inf if row.robust is None else row.robust.value


def _clean(pair: Pair) -> Difference:
    return paired_by(pair[0].records, pair[1].records, right)


def _sentence(model: str, defence: str, found: Sequence[Level], clean: Difference, lone: Row | None) -> str:
    balls = len({part.ball for part in found}) > 1

    def name(part: Level) -> str:
        """The attacks, and where there are several seeds or balls, these too."""
        said = part.attacks[0] if len(part.attacks) == 1 else f"worst of {_listed(part.attacks)}"
        if len(part.seeds) > 1:
            worst = "worst " if len(part.attacks) == 1 else ""
            said = f"{said}, {worst}of seeds {_listed([str(seed) for seed in part.seeds])}"
        return f"({said}{f' in {part.ball}' if balls else ''})"

    asking = [
        f"{points(part.gain)} against {WHO[part.access]} {name(part)}{_cost(part.ratio)}"
        for part in found
        if part.access < Access.INTERNALS
    ]
    adaptive = [part for part in found if part.access == Access.INTERNALS]
    said = f"gains {_listed(asking)}" if asking else "was attacked by nobody who merely asks"
    if clean.value < 0 and clean.p <= LEVEL:
        said = f"costs {points(clean, signed=False)} of clean accuracy, and {said}"
    first = f"On {model}, {defence} {said}"
    if not adaptive and lone is not None and (s := lone.robust) is not None:
        part = f"{100 * s.value:.1f} % [{100 * s.low:.1f}, {100 * s.high:.1f}] of {count(s.n, 'sample')}"
        return (
            f"{first}; {WHO[Access.INTERNALS]} ({lone.cell.attack} in {lone.cell.threat.ball}) leaves {part}, which "
            "says no gain: run that attack on the bare classifier too."
        )
    if not adaptive:
        return f"{first}; no adaptive attack was run, so this says nothing of an attacker who knows the defence."
    last = min(adaptive, key=lambda part: part.gain.value)
    g = last.gain
    known = f"{first}; against {WHO[Access.INTERNALS]} {name(last)} it gains {points(g)}{_comment(g)}"
    untried = dict.fromkeys(str(part.ball) for part in found if part.ball not in {a.ball for a in adaptive})
    return f"{known}; no adaptive attack was run in {_listed(list(untried))}." if untried else f"{known}."


def points(g: Difference, signed: bool = True) -> str:
    """A gain with its sign, or a loss without."""
    ends = (g.value, g.low, g.high) if signed else (-g.value, -g.high, -g.low)
    value, low, high = (f"{100 * v:{'+' if signed else ''}.1f}" for v in ends)
    return f"{value} points [{low}, {high}] (p {_p(g.p)})"


def _p(p: float) -> str:
    return f"{p:.2f}" if p >= 0.01 else f"{p:.0e}"


def _cost(ratio: Ratio | None) -> str:
    if ratio is None or ratio.digits == "1":
        return ""
    more = {"exactly": "", "more": "more than ", "less": "less than "}[ratio.bound]
    return f", who needs {more}{ratio.digits} times the queries"


def gained(g: Difference) -> bool:
    """More than chance explains."""
    return g.value > 0 and g.p <= LEVEL


def unsure(g: Difference) -> bool:
    """Neither a gain, nor anywhere near the proof that there is none."""
    return not gained(g) and g.high > MUCH


def _comment(g: Difference) -> str:
    if gained(g):
        return ""
    few = f": {count(g.n, 'sample')} {'is' if g.n == 1 else 'are'} too few to tell it from none"
    return few if unsure(g) else f": {NO_ANSWER}"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


# ---------------------------------------------------------------- confidence


@dataclass(frozen=True)
class Confidence:
    """What the scores of clean images are worth, bare and behind the defence, on the same samples.

    `scaled` are the bare scores divided by a fitted temperature, where that was measured, on samples of its own;
    `place` is what the sentence calls the network.
    """

    data: str
    model: str
    defence: str
    bare: Calibration
    defended: Calibration
    scaled: Calibration | None = None
    place: str = ""

    def __str__(self) -> str:
        where = self.place or self.model
        said = f"Confidence on clean images: {where} has {self.bare}; behind {self.defence}, {self.defended}"
        if self.scaled is None:
            return f"{said}."
        return f"{said}; bare, but scaled by a fitted temperature, {self.scaled} ({self.scaled.n} samples)."

    def json(self) -> dict[str, Any]:
        return {k: v for k, v in dataclasses.asdict(self).items() if k != "place"}


def confidence(rows: Sequence[Row], scaled: Mapping[Digests, Calibration] | None = None) -> list[Confidence]:
    """For each data set, model and defence beside its bare classifier; the pair with the most samples speaks.

    `scaled` is what is known of scaling by a temperature: `reporting/temperature.py`.
    """
    cheap = scaled or {}
    return [
        Confidence(*place, *_common(*pair), cheap.get((pair[0].cell.weights, pair[0].cell.images)), pair[1].place)
        for place, pair in _spokesmen(rows).items()
    ]


def _spokesmen(rows: Sequence[Row]) -> dict[tuple[str, str, str], Pair]:
    """For each data set, model and defence the pair with the most samples: what speaks for its clean images."""
    bare = {r.cell: r for r in rows}
    best: dict[tuple[str, str, str], Pair] = {}
    for r in rows:
        if r.gain is not None and (before := bare.get(bare_cell(r.cell))) is not None:
            place = r.data, r.model, r.defence
            if place not in best or len(r.records) > len(best[place][1].records):
                best[place] = (before, r)
    return best


def _common(bare: Row, defended: Row) -> tuple[Calibration, Calibration]:
    both = {r.sample for r in bare.records} & {r.sample for r in defended.records}
    one, two = ([r for r in row.records if r.sample in both] for row in (bare, defended))
    return calibration(one), calibration(two)
