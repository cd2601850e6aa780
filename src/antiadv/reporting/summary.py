"""The gains of a complete store in a few lines, from the least to the largest over all networks.

`verdict.py` speaks of one network at a time. A store with dozens of networks needs this summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from antiadv.core.threat import Access
from antiadv.reporting.groups import grouped
from antiadv.reporting.table import Entry, Table, code, counted, percent, with_samples
from antiadv.reporting.verdict import ADAPTIVE, IF, OTHERS, WHO, Level, change, gained, unsure
from antiadv.reporting.wording import NOTHING, count, join


def by_defence(levels: Sequence[Level]) -> Table:
    """Return a table with a line per defence and a column per level of access.

    An entry is the range of gains, with the number of networks in brackets. It sorts by the least gain.
    """
    accesses = [access for access in Access if any(part.access == access for part in levels)]
    lines = []
    for defence, group in _by_defence(levels):
        gains = [_entry([part for part in group if part.access == access]) for access in accesses]
        lines.append((code(defence), counted(_networks(group)), *gains))
    heads = ("defence", "networks", *(WHO[access].removeprefix("an attacker who ") for access in accesses))
    return Table("defences", "Gains by defence, in points, from the least to the largest", heads, tuple(lines))


def headline(levels: Sequence[Level]) -> list[str]:
    """Return a text for each defence that was tested on the most networks.

    A network is left out if the attacks broke too few of its samples to judge a defence.
    """
    groups = _by_defence([part for part in levels if part.tells])
    most = max((_networks(group) for _, group in groups), default=0)
    return [" ".join(_sentences(f"`{name}`", group)) for name, group in groups if _networks(group) == most]


def _by_defence(levels: Sequence[Level]) -> list[tuple[str, list[Level]]]:
    """Group levels by defence, the one with the most networks first."""
    return sorted(grouped(levels, lambda part: part.defence).items(), key=lambda item: -_networks(item[1]))


def _networks(group: Sequence[Level]) -> int:
    return len({part.model for part in group})


def _counted(group: Sequence[Level]) -> str:
    """`2 networks`, with the number of data sets if a network was tried on several."""
    places, sets = {(part.data, part.model) for part in group}, {part.data for part in group}
    more = f" on {count(len(sets), 'data set')}" if len(places) > _networks(group) else ""
    return count(_networks(group), "network") + more


def _entry(at: Sequence[Level]) -> Entry:
    if not at:
        return Entry(NOTHING)
    least, most = _ends(at)
    entry = Entry(_span(at), percent(least.gain.value), small=f"({_counted(at)})")
    return with_samples(entry, *dict.fromkeys((least.samples, most.samples)))


def _ends(at: Sequence[Level]) -> tuple[Level, Level]:
    """The levels with the least and the largest gain."""
    ordered = sorted(at, key=lambda part: part.gain.value)
    return ordered[0], ordered[-1]


def _span(at: Sequence[Level]) -> str:
    low, high = (f"{100 * part.gain.value:+.1f}" for part in _ends(at))
    return low if low == high else f"{low} to {high}"


def _change(at: Sequence[Level]) -> str:
    """One gain or loss with its interval, or the range of several; their intervals are in the tables."""
    if len(at) == 1:
        return change(at[0].gain)
    least, most = _ends(at)
    if most.gain.value < 0:
        return f"loses {-100 * most.gain.value:.1f} to {-100 * least.gain.value:.1f} points"
    if least.gain.value < 0:
        return f"changes robust accuracy by {_span(at)} points"
    return f"gains {_span(at)} points"


def _significant(at: Sequence[Level]) -> str:
    """On how many of several networks the gain is significant, if not on all of them."""
    better = [part for part in at if gained(part.gain)]
    if len(at) == 1 or len(better) == len(at):
        return ""
    return f", significant on {_networks(better)}" if better else ", significant on none"


def _sentences(defence: str, group: Sequence[Level]) -> Iterator[str]:
    """The adaptive attack's result first, then the gains against other attackers."""
    adaptive = [part for part in group if part.access == Access.INTERNALS]
    yield _known(defence, adaptive)
    others = [
        f"{_change(at)} {IF[access]} ({_counted(at)}{_significant(at)})"
        for access in IF
        if (at := [part for part in group if part.access == access])
    ]
    yield f"{OTHERS} it {join(others) if others else 'was not tested'}."
    tried = {(part.data, part.model, part.ball) for part in adaptive}
    alone = [part for part in group if (part.data, part.model, part.ball) not in tried]
    if adaptive and alone:
        yield f"On {_counted(alone)}, no adaptive attack was run in some of the balls."


def _known(defence: str, adaptive: Sequence[Level]) -> str:
    """What is known about an attacker who knows the defence."""
    if not adaptive:
        reason = "no adaptive attack is stored both with and without it"
        return f"Nothing is known about {defence} against {ADAPTIVE}: {reason}."
    found, networks = _change(adaptive), _counted(adaptive)
    better = [part for part in adaptive if gained(part.gain)]
    unclear = [part for part in adaptive if unsure(part.gain)]
    if better:
        return f"{defence} {found} against {ADAPTIVE} ({networks}), significant on {_counted(better)}."
    if unclear:
        few = f"On {_counted(unclear)} the samples are too few to tell whether it protects"
        return f"{defence} {found} against {ADAPTIVE} ({networks}). {few}."
    return f"{defence} does not protect against {ADAPTIVE}: it {found} ({networks})."
