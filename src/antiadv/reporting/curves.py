"""Figures from rows: accuracy by queries, by radius, by level of access, and the cost in queries.

A run shows smaller budgets if the attack stops at success and no step depends on the budget (`STOPPING`). It shows
larger radii if the attack looks for the closest adversarial image, whose distance is in the record. It does not show
smaller radii, because such an attack stops at its first image inside the ball. A run without a radius (`linf:inf`)
shows every radius, and needs no other run. For other attacks, each cell shows one radius.
"""

from __future__ import annotations

import dataclasses
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache

from antiadv import attacks, defences
from antiadv.core.ball import Ball
from antiadv.core.spec import show_number
from antiadv.core.threat import Access
from antiadv.evaluation.cell import Record
from antiadv.reporting.figures import Figure, Panel, Series
from antiadv.reporting.groups import grouped
from antiadv.reporting.measures import Ratio, Share, right, search_judge_mismatch, share, standing
from antiadv.reporting.rows import Row
from antiadv.reporting.select import rank, searched
from antiadv.reporting.verdict import WHO, Level
from antiadv.reporting.wording import join

STOPPING = ("nes", "bandits", "square")
POINTS = 32  # points of a curve
FARTHEST = 4.0  # the largest radius, in multiples of the run's
APART = 1.25  # the least ratio of radii that make a curve
LINES = 4  # defended lines of a panel
NAMED = {math.inf: (1 / 255, 2 / 255, 4 / 255, 8 / 255, 16 / 255), 2: (0.25, 0.5, 1.0, 2.0)}  # radii of `radii`
ACCURACY = "robust accuracy, %"
SAME = "All lines of a panel use the same samples."
BOUNDS = {"exactly": ("measured", "o"), "more": ("more than this", ">"), "less": ("less than this", "<")}

_share = lru_cache(maxsize=4096)(share)  # curves need the same shares many times


# ---------------------------------------------------------------- queries


def by_queries(rows: Sequence[Row]) -> list[Figure]:
    """A figure for each attack, a panel for each network that was attacked both bare and defended."""
    asked = [r for r in _ran(rows) if r.cell.threat.queries is not None and r.cell.attack.partition(":")[0] in STOPPING]
    found = []
    for attack, group in grouped(asked, lambda r: r.cell.attack).items():
        fullest = _fullest(group, lambda r: (_network(r), r.defence, r.cell.threat.ball))
        drawn = _chosen(fullest)
        panels = []
        names = _named(map(_network, drawn))
        for (network, ball), mine in grouped(drawn, lambda r: (_network(r), r.cell.threat.ball)).items():
            series = tuple(_series(_who(r), falling(r)) for r in _shared(mine))
            if series:
                panels.append(Panel(f"{names[network]}, {ball}", "queries", ACCURACY, series, log=True))
        if panels:
            caption = (
                f"Samples that stand against {attack} with every smaller budget, from the records of the run with the "
                f"full budget, with 95 % intervals. {SAME} {_searched(drawn)}{_left_out(fullest, drawn)}"
            )
            name, title = f"queries-{_slug(attack)}", f"Robust accuracy against queries: {attack}"
            found.append(Figure(name, title, caption, tuple(panels), _keys(drawn)))
    return found


def falling(row: Row) -> list[tuple[float, Share]]:
    """The accuracy for budgets up to the run's, evenly on a logarithmic scale, as in `measures.standing_by`."""
    n, ball, most = len(row.records), row.cell.threat.ball, row.cell.threat.queries or 1
    start = sum(map(right, row.records))
    fell = sorted(r.queries for r in row.records if right(r) and not standing(r, ball))
    budgets = sorted({round(most ** (i / (POINTS - 1))) for i in range(POINTS)})
    return [(float(q), _share(start - bisect_right(fell, q), n)) for q in budgets]


# ---------------------------------------------------------------- radius


def by_radius(rows: Sequence[Row]) -> list[Figure]:
    """A figure for each attack whose records or cells show more than one radius."""
    found = []
    for attack, group in grouped(_ran(rows), lambda r: r.cell.attack).items():
        minimal = attacks.parse(attack).minimal
        fullest = _fullest(group, lambda r: (_network(r), r.defence, r.cell.threat.ball, r.cell.threat.queries))
        panels, used, names = [], list[Row](), _named(map(_network, fullest))
        several = len({r.cell.threat.queries for r in fullest}) > 1
        known = [
            r for r in fullest if not (minimal and any(search_judge_mismatch(x, r.cell.threat.ball) for x in r.records))
        ]
        for (network, p, most), mine in grouped(_chosen(known), _setting).items():
            lines = tuple((_widening if minimal else _sampled)(_shared(mine)))
            if lines:
                along = "Linf radius, in 1/255" if p == math.inf else "L2 radius"
                budget = "any number of" if most is None else f"{most:,}"
                title = f"{names[network]}, {budget} queries" if several else names[network]
                panels.append(Panel(title, along, ACCURACY, lines))
                used += mine
        if panels:
            own = "" if all(map(_endless, used)) else " from the run's own on"
            how = f"the closest adversarial image of each sample shows every radius{own}"
            caption = (
                f"Samples that stand against {attack}: {how if minimal else 'a cell for each radius'}, with 95 % "
                f"intervals. {SAME} {_searched(used)}{_left_out(fullest, used)}"
            )
            name, title = f"radius-{_slug(attack)}", f"Robust accuracy against ε: {attack}"
            found.append(Figure(name, title, caption, tuple(panels), _keys(used)))
    return found


def radii(rows: Iterable[Row]) -> list[str]:
    """A sentence for each run without a radius."""
    texts = []
    for r in filter(_endless, _ran(rows)):
        p = r.cell.threat.ball.p
        at = [f"{_at(r, Ball(p, e))} at {show_number(e)}" for e in NAMED[p]]
        norm = "Linf" if p == math.inf else "L2"
        texts.append(f"{r.place} {_who(r)}, {r.cell.attack}, robust accuracy in % by {norm} radius: {', '.join(at)}.")
    return texts


def _endless(r: Row) -> bool:
    """Whether the run had no radius: then the distances of its images show every radius."""
    return r.cell.threat.ball.eps == math.inf


def _setting(r: Row) -> tuple[tuple[str, str], float, int | None]:
    """Radii are compared on one network, in one norm, with one budget."""
    return _network(r), r.cell.threat.ball.p, r.cell.threat.queries


def _widening(group: Sequence[Row]) -> Iterator[Series]:
    for r in group:
        ball = r.cell.threat.ball
        far = max((x.distance for x in r.records if not _stood(x)), default=0.0)
        first, last = (ball.eps, FARTHEST * ball.eps) if ball.eps < math.inf else (0.0, far)
        if last > first:
            radii = [first + (last - first) * i / (POINTS - 1) for i in range(POINTS)]
            yield _series(_who(r), [(_unit(ball) * e, _at(r, Ball(ball.p, e))) for e in radii])


def _sampled(group: Sequence[Row]) -> Iterator[Series]:
    for who, mine in grouped(group, _who).items():
        radii = {r.cell.threat.ball.eps: r for r in mine if r.cell.threat.ball.eps < math.inf}
        if radii and max(radii) >= APART * min(radii):
            points = [(_unit(r.cell.threat.ball) * e, _at(r, r.cell.threat.ball)) for e, r in sorted(radii.items())]
            yield dataclasses.replace(_series(who, points), kind="dots")


def _stood(r: Record) -> bool:
    return 2 * r.attacked_right > r.draws


def _at(row: Row, ball: Ball) -> Share:
    return _share(sum(standing(r, ball) for r in row.records), len(row.records))


def _unit(ball: Ball) -> float:
    return 255.0 if ball.p == math.inf else 1.0


# ---------------------------------------------------------------- gains and costs


def by_access(levels: Sequence[Level]) -> list[Figure]:
    """A panel for each ball and each defence of several networks. Defences of one network share a panel."""
    wide = {
        d
        for d, group in grouped(levels, lambda part: part.defence).items()
        if len({_network(part) for part in group}) > 1
    }
    panels, known = [], _named(map(_network, levels))
    for (defence, ball), group in grouped(levels, lambda p: (p.defence if p.defence in wide else "", p.ball)).items():
        names = [known[_network(part)] + ("" if defence else f" with {part.defence}") for part in group]
        places = {name: float(i) for i, name in enumerate(dict.fromkeys(names))}
        series = []
        for access in Access:
            at = [(places[name], part.gain) for name, part in zip(names, group, strict=True) if part.access == access]
            if at:
                value, low, high = (tuple(100 * getattr(g, k) for _, g in at) for k in ("value", "low", "high"))
                label = WHO[access].removeprefix("an attacker who ")
                series.append(Series(label, value, tuple(y for y, _ in at), low, high, "dots", hue=access - 1))
        title = f"{defence or 'others'}, {ball}"
        panels.append(Panel(title, "gain, points", "", tuple(series), tuple(places), zero=0.0))
    caption = (
        "Robust accuracy with the defence minus that of the bare network, in points, on the same samples: the worst "
        "case of all attacks at each level of access, with 95 % intervals. An attacker who knows the defence may also "
        "run the attacks of the other levels."
    )
    panels.sort(key=lambda panel: (panel.title.startswith("others"), -len(panel.names), -len(panel.series)))
    return [Figure("access", "Gain by level of access", caption, tuple(panels))] if panels else []


def by_cost(rows: Sequence[Row]) -> list[Figure]:
    """For attacks with a budget of queries: a panel for each, a line for each network and defence."""
    asked = [r for r in rows if r.ratio is not None and r.cell.threat.queries is not None]
    shown = _fullest(asked, lambda r: (_network(r), r.defence, r.cell.attack, r.cell.threat))
    panels, known = [], _named(map(_network, shown))
    for (attack, threat), group in grouped(shown, lambda r: (r.cell.attack, r.cell.threat)).items():
        names = tuple(f"{known[_network(r)]} {_who(r)}" for r in group)
        ratios = [(float(i), r.ratio) for i, r in enumerate(group) if r.ratio is not None]
        title = f"{attack}, {threat.ball}, {threat.queries:,} queries"
        panels.append(Panel(title, "times the queries", "", tuple(_bounds(ratios)), names, log=True, zero=1.0))
    caption = (
        "The median number of queries it takes to fool a sample with the defence, divided by that of the bare network, "
        "on the same samples. A sample that stood is censored at the queries spent on it (Kaplan and Meier). If more "
        "than half of them stood, only a bound of the ratio is known."
    )
    caption += f" {_searched(shown)}" if shown else ""
    return [Figure("cost", "Query cost ratio", caption, tuple(panels), _keys(shown))] if panels else []


def _bounds(ratios: Sequence[tuple[float, Ratio]]) -> Iterator[Series]:
    for hue, (bound, (label, mark)) in enumerate(BOUNDS.items()):
        at = [(ratio.value, place) for place, ratio in ratios if ratio.bound == bound]
        if at:
            yield Series(label, tuple(v for v, _ in at), tuple(p for _, p in at), kind="marks", mark=mark, hue=hue)


# ---------------------------------------------------------------- shared


def _ran(rows: Iterable[Row]) -> list[Row]:
    """The rows whose attack ran."""
    return [r for r in rows if r.robust is not None]


def _fullest(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> list[Row]:
    """One row for each key: the one with the largest budget, and then the one that `select.rank` puts first."""

    def order(r: Row) -> tuple[int, int, int]:
        return r.cell.threat.queries or 0, *rank(r.cell, r.records)

    return [max(group, key=order) for group in grouped(rows, key).values()]


def _chosen(rows: Sequence[Row]) -> list[Row]:
    """The rows of networks that were attacked bare and defended, with the defences that most networks have.

    Of other networks, the runs without a radius.
    """
    spread = Counter(d for _, d in grouped(rows, lambda r: (_network(r), r.defence)))
    kept = []
    for group in grouped(rows, _network).values():
        found = sorted({r.defence for r in group} - {defences.BARE}, key=lambda d: (-spread[d], d))[:LINES]
        both = found and any(r.defence == defences.BARE for r in group)
        kept += [r for d in (defences.BARE, *found) for r in group if r.defence == d and (both or _endless(r))]
    return kept


def _shared(rows: Sequence[Row]) -> list[Row]:
    """The rows with only the samples that all of them have, so that an unfinished cell compares fairly.

    Empty if there is nothing to compare: no common sample, or not both a bare row and a defended one. A run without a
    radius needs no other.
    """
    if len({r.cell.defence == defences.BARE for r in rows}) < 2:
        rows = [r for r in rows if _endless(r)]
    common = set.intersection(*({x.sample for x in r.records} for r in rows)) if rows else set[int]()
    if not common:
        return []
    return [dataclasses.replace(r, records=[x for x in r.records if x.sample in common]) for r in rows]


def _left_out(rows: Sequence[Row], drawn: Sequence[Row]) -> str:
    """A sentence for the caption on defences that are not drawn."""
    networks, shown = set(map(_network, drawn)), {(_network(r), r.defence) for r in drawn}
    lost = [r for r in rows if _network(r) in networks and (_network(r), r.defence) not in shown]
    return f" Not drawn, but in the tables: {join(sorted({_who(r) for r in lost}))}." if lost else ""


def _series(label: str, points: Sequence[tuple[float, Share]]) -> Series:
    at, shares = tuple(x for x, _ in points), [found for _, found in points]
    value, low, high = (tuple(round(100 * getattr(s, k), 3) for s in shares) for k in ("value", "low", "high"))
    return Series(label, at, value, low, high)


def _network(part: Row | Level) -> tuple[str, str]:
    return part.data, part.model


def _named(networks: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The name of each network, with its data if two networks share the name."""
    found = set(networks)
    twice = Counter(model for _, model in found)
    return {(data, model): f"{model} ({data})" if twice[model] > 1 else model for data, model in found}


def _who(r: Row) -> str:
    return "bare" if r.cell.defence == defences.BARE else f"with {r.defence}"


def _searched(rows: Iterable[Row]) -> str:
    return searched(r.cell for r in rows)


def _keys(rows: Iterable[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(r.cell.key for r in rows))


def _slug(text: str) -> str:
    """
    >>> _slug("fab:targets=9")
    'fab-targets-9'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
