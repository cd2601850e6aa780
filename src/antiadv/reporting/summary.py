"""The gains of a whole store in a few lines: what every network says of a defence, from least to most.

    by_defence(levels)   →  a sheet: a line per defence, a column per level of access
    headline(levels)     →  a sentence for each defence that stands before the most networks, the adaptive word last

`verdict.py` speaks of one network at a time; this is what is left when there are dozens of its sentences.
"""

from __future__ import annotations

from collections.abc import Sequence

from antiadv.core.threat import Access
from antiadv.reporting.measures import Difference
from antiadv.reporting.table import Entry, Table, code, counted
from antiadv.reporting.verdict import NO_ANSWER, WHO, Level, gained, points, unsure
from antiadv.reporting.wording import NOTHING, count, join


def by_defence(levels: Sequence[Level]) -> Table:
    """In brackets, of how many networks; sorts by the least gain."""
    seen = [access for access in Access if any(part.access == access for part in levels)]
    lines = []
    for defence, group in _by_defence(levels):
        gains = [_entry([part for part in group if part.access == access]) for access in seen]
        lines.append((code(defence), counted(_networks(group)), *gains))
    heads = ("defence", "networks", *(WHO[access].removeprefix("an attacker who ") for access in seen))
    return Table("defences", "Gains by defence, in points, from the least to the largest", heads, tuple(lines))


def headline(levels: Sequence[Level]) -> list[str]:
    """Of the networks of which the attacks broke enough to judge a defence by."""
    groups = _by_defence([part for part in levels if part.tells])
    most = max((_networks(group) for _, group in groups), default=0)
    return [_sentence(defence, group) for defence, group in groups if _networks(group) == most]


def _by_defence(levels: Sequence[Level]) -> list[tuple[str, list[Level]]]:
    """Those before the most networks first."""
    found: dict[str, list[Level]] = {}
    for part in levels:
        found.setdefault(part.defence, []).append(part)
    return sorted(found.items(), key=lambda item: -_networks(item[1]))


def _networks(group: Sequence[Level]) -> int:
    return len({part.model for part in group})


def _counted(group: Sequence[Level]) -> str:
    """`2 networks`, and on how many data sets where one of them was tried on several."""
    places, sets = {(part.data, part.model) for part in group}, {part.data for part in group}
    more = f" on {count(len(sets), 'data set')}" if len(places) > _networks(group) else ""
    return count(_networks(group), "network") + more


def _entry(at: Sequence[Level]) -> Entry:
    if not at:
        return Entry(NOTHING)
    least = _ends(at)[0].value
    return Entry(_span(at), round(100 * least, 4), small=f"({_counted(at)})")


def _ends(at: Sequence[Level]) -> tuple[Difference, Difference]:
    gains = sorted((part.gain for part in at), key=lambda g: g.value)
    return gains[0], gains[-1]


def _span(at: Sequence[Level]) -> str:
    low, high = (f"{100 * g.value:+.1f}" for g in _ends(at))
    return low if low == high else f"{low} to {high}"


def _told(at: Sequence[Level]) -> str:
    """One gain with its interval; of several the ends, whose intervals are in the tables."""
    return points(at[0].gain) if len(at) == 1 else f"{_span(at)} points"


def _sure(at: Sequence[Level]) -> str:
    """On how many of several networks a gain is more than chance explains, where that is not all of them."""
    better = [part for part in at if gained(part.gain)]
    if len(at) == 1 or len(better) == len(at):
        return ""
    return f", more than chance explains on {_networks(better)}" if better else ", on none more than chance explains"


def _sentence(defence: str, group: Sequence[Level]) -> str:
    asking = [
        f"{_told(at)} against {WHO[access]} ({_counted(at)}{_sure(at)})"
        for access in Access
        if access < Access.INTERNALS and (at := [part for part in group if part.access == access])
    ]
    said = f"`{defence}` gains {join(asking)}" if asking else f"`{defence}` was attacked by nobody who merely asks"
    knowing = [part for part in group if part.access == Access.INTERNALS]
    if not knowing:
        return f"{said}; no adaptive attack is stored on both sides, so this says nothing of {WHO[Access.INTERNALS]}."
    better = [part for part in knowing if gained(part.gain)]
    thin = [part for part in knowing if unsure(part.gain)]
    if better:
        end = f", more than chance explains on {_counted(better)}"
    elif thin:
        end = f", on {_counted(thin)} with too few samples to tell it from none"
    else:
        end = f": {NO_ANSWER}"
    tried = {(part.data, part.model, part.ball) for part in knowing}
    alone = [part for part in group if (part.data, part.model, part.ball) not in tried]
    more = f"; on {_counted(alone)} some gains are in a ball without an adaptive attack" if alone else ""
    return f"{said}; against {WHO[Access.INTERNALS]} it gains {_told(knowing)} ({_counted(knowing)}){end}{more}."
