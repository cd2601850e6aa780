"""The table of a league, the Pareto front, and what to deploy. A pure function of records and clean traffic.

    clean      right in more than half of the judge's draws, on the attacked samples, before the attack
    gain       robust accuracy minus the bare network's under the same attack, on the same samples (Newcombe, 95 %)
    front      of the entrants that lose at most a point of clean accuracy. One is dominated if another costs no more
               passes and is more robust, or is as robust and cheaper
    hides only a gain under some attack is settled, and none is under the attack that knows the defence
    to deploy  of the entrants that lose at most a point of clean accuracy, and whose gain against scores is settled:
               the cheapest of those that are not surely weaker than the strongest; then the least shift of scores.
               A defence without a stored adaptive attack is named only if there is no other

An attack with a budget stops at the first wrong answer, so one wrong answer of a randomised defence is a success there.
What the majority of the judge's draws says is shown beside it.

A difference is settled if its interval does not hold 0. The rival that dominates is the best of several, so there the
p-value (McNemar), times the number of rivals compared (Bonferroni), must be below 5 % as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from antiadv import defences
from antiadv.core.errors import BadInput
from antiadv.core.threat import Threat
from antiadv.evaluation.cell import Cell, Record
from antiadv.reporting.league_entrants import ADAPTIVE, COLUMNS, GRADIENTS, SCORES
from antiadv.reporting.league_traffic import Traffic
from antiadv.reporting.measures import (
    Difference,
    Median,
    Share,
    by_first_error,
    clean_accuracy,
    paired,
    paired_by,
    queries_to_fall,
    right,
    robust_accuracy,
)
from antiadv.reporting.table import Table, text_table
from antiadv.reporting.wording import NOTHING, join

FEW = 50  # attacked samples, below which nothing is recommended
LEVEL = 0.05  # of p, corrected for the number of rivals, below which a difference is sure
LOSS = 0.01  # of clean accuracy, at most, for an entrant to be recommended, and to dominate another
HIDES, KEEPS, NONE = "hides only", "not undone yet", "no gain"
FLAT = ("rounded_scores", "jpeg", "bit_depth")  # they round, so their gradient is zero and APGD finds nothing to follow
REMEMBERS = "stateful"

Read = tuple[Cell, Sequence[Record]]


@dataclass(frozen=True)
class Proof:
    """The share of images whose class no attack within this L2 radius can change (docs/certify.md)."""

    radius: float
    share: Share

    def __str__(self) -> str:
        return f"{self.share} at L2 {self.radius:g}"


@dataclass(frozen=True)
class Line:
    """One entrant: its clean traffic, the records of each column, and what is proven."""

    name: str
    spec: str
    traffic: Traffic | None
    cells: Mapping[str, Read] = field(repr=False)
    certified: Proof | None = None

    @property
    def kind(self) -> str:
        """The name of the defence."""
        return self.spec.partition(":")[0]

    @property
    def passes(self) -> float | None:
        return None if self.traffic is None else round(self.traffic.passes, 2)

    @property
    def clean(self) -> Share | None:
        """Clean accuracy as the judge sees it, on the samples of the first column."""
        return next((clean_accuracy(records) for _, records in self.cells.values()), None)

    def seen(self, column: str) -> Read:
        """The cell and its records, in which one wrong answer of a randomised defence is a success of its attacker."""
        cell, records = self.cells[column]
        return cell, by_first_error(records, cell.threat.queries)

    def robust(self, column: str) -> Share | None:
        if column not in self.cells:
            return None
        cell, records = self.seen(column)
        return robust_accuracy(records, cell.threat.ball)

    def judged(self, column: str) -> str:
        """Robust accuracy if the majority of the judge's draws decides, where that is another number."""
        cell, records = self.cells[column]
        most, first = (robust_accuracy(some, cell.threat.ball).value for some in (records, self.seen(column)[1]))
        return "" if most == first else f" (majority {100 * most:.1f})"

    def queries(self, column: str = SCORES) -> Median | None:
        """The median number of queries that break a sample."""
        if column not in self.cells:
            return None
        cell, records = self.seen(column)
        return queries_to_fall(records, cell.threat.ball)


@dataclass(frozen=True)
class Place:
    """Where an entrant lies in one column: on the front or not, and the rival that decides, minus the entrant."""

    on_front: bool
    settled: bool
    rival: str = ""
    difference: Difference | None = None
    flat: bool = False  # the rival stands only because its gradient is zero

    def __str__(self) -> str:
        if self.difference is None:
            return "on the front"
        said = f"`{self.rival}` {self.difference.points}{', whose gradient is zero' if self.flat else ''}"
        if self.on_front:
            return f"on the front, not settled: {said}"
        return f"dominated by {said}" if self.settled else f"dominated, not settled: {said}"


@dataclass(frozen=True)
class League:
    """The lines of one network, the bare network first; `left_out` says why others do not take part.

    `postponed` has the minutes of those for which there was no time; with `enough` minutes all take part.
    """

    network: str
    lines: tuple[Line, ...]
    columns: Mapping[str, str]  # the attack of each, in words
    left_out: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""
    postponed: Mapping[str, float] = field(default_factory=dict)
    enough: int = 0

    def __post_init__(self) -> None:
        if not self.lines or self.lines[0].spec != defences.BARE:
            raise BadInput("the first line of a league is the bare network; add the entrant none.")

    def __repr__(self) -> str:
        return f"League({self.network}: {', '.join(line.name for line in self.lines)})"

    @property
    def bare(self) -> Line:
        return self.lines[0]

    # ---------------------------------------------------------------- comparisons

    def difference(self, first: Line, second: Line, column: str) -> Difference | None:
        """Robust accuracy of the second minus that of the first, on the samples that both have."""
        if column not in first.cells or column not in second.cells:
            return None
        (cell, a), (_, b) = first.seen(column), second.seen(column)
        return paired(a, b, cell.threat.ball) if {r.sample for r in a} & {r.sample for r in b} else None

    def gain(self, line: Line, column: str) -> Difference | None:
        return None if line is self.bare else self.difference(self.bare, line, column)

    def clean_loss(self, line: Line) -> Difference | None:
        """Clean accuracy minus the bare network's, on the attacked samples of the first column that both have."""
        column = next((c for c in self.columns if self.difference(self.bare, line, c) is not None), None)
        return None if column is None else paired_by(self.bare.cells[column][1], line.cells[column][1], right)

    def fair(self, line: Line) -> bool:
        """Whether it loses at most a point of clean accuracy, so that it may be recommended or dominate another."""
        return _value(self.clean_loss(line)) >= -LOSS

    def label(self, line: Line) -> str:
        """Empty for the bare network, and while the attack that knows the defence is not stored."""
        knowing = self.gain(line, ADAPTIVE)
        if knowing is None:
            return ""
        if knowing.low > 0:
            return KEEPS
        others = (self.gain(line, column) for column in self.columns if column != ADAPTIVE)
        return HIDES if any(d is not None and d.low > 0 for d in others) else NONE

    def place(self, line: Line, column: str = SCORES) -> Place | None:
        """Compare a line with all that cost no more; None if cost or accuracy is not known, or it is not `fair`."""
        if line.passes is None or column not in line.cells or not self.fair(line):
            return None
        found = [
            (other, d)
            for other in self.lines
            if other is not line and other.passes is not None and other.passes <= line.passes
            if (d := self.difference(line, other, column)) is not None and self.fair(other)
        ]
        better = [(o, d) for o, d in found if d.value > 0 or (d.value == 0 and o.passes != line.passes)]
        if better:
            rival, most = max(better, key=lambda pair: pair[1].value)
            surely = most.low > 0 and most.p * len(found) < LEVEL
            return Place(False, surely, rival.name, most, column == GRADIENTS and rival.kind in FLAT)
        close = [(o, d) for o, d in found if d.high >= 0]
        if close:
            rival, most = max(close, key=lambda pair: pair[1].high)
            return Place(True, False, rival.name, most)
        return Place(True, True)

    def front(self, column: str = SCORES) -> list[Line]:
        """The lines that no other dominates, the cheapest first."""
        kept = [line for line in self.lines if (p := self.place(line, column)) is not None and p.on_front]
        return sorted(kept, key=lambda line: line.passes or 0.0)

    # ---------------------------------------------------------------- what to do

    @property
    def choice(self) -> Line | None:
        """The entrant to deploy: the bare network if no other gains anything; None while nothing can be said."""
        if self._compared < FEW:
            return None
        able = [line for line in self.lines if self._able(line)]
        if not able:
            return self.bare
        able = [line for line in able if ADAPTIVE in line.cells] or able  # first those whose worst case is known
        strongest = max(able, key=lambda line: _value(line.robust(SCORES)))
        equal = [line for line in able if line is strongest or self._keeps_up(strongest, line)]
        return min(equal, key=lambda line: (line.passes, (line.traffic.shift or 0.0) if line.traffic else 0.0))

    @property
    def _compared(self) -> int:
        """The samples of the score attack on the bare network that the entrant with the most of them shares."""
        gains = (self.gain(line, SCORES) for line in self.lines)
        return max((gain.n for gain in gains if gain is not None), default=0)

    def _able(self, line: Line) -> bool:
        gain = self.gain(line, SCORES)
        settled = gain is not None and gain.n >= FEW and gain.low > 0
        return line.traffic is not None and settled and self.fair(line)

    def _keeps_up(self, strongest: Line, line: Line) -> bool:
        d = self.difference(strongest, line, SCORES)
        return d is not None and d.high >= 0

    @property
    def sentences(self) -> list[str]:
        """What to deploy, what it costs, and what is left when the attacker knows."""
        chosen, attack = self.choice, self.columns.get(SCORES, "")
        if chosen is None:
            return [
                f"On {self.network} nothing is recommended yet: {attack or 'the score attack'} had {self._compared} "
                f"images, and a comparison needs {FEW} or more. Run again, with more minutes if some were postponed."
            ]
        if chosen is self.bare:
            said = f"On {self.network} deploy the bare network: no entrant has a settled gain against {attack}"
            return [f"{said} without losing more than a point of clean accuracy.", self._holders()]
        return [self._deploy(chosen, attack), self._holders()]

    def _deploy(self, chosen: Line, attack: str) -> str:
        robust, bare, gain = chosen.robust(SCORES), self.bare.robust(SCORES), self.gain(chosen, SCORES)
        seen, loss = chosen.traffic, self.clean_loss(chosen)
        if robust is None or bare is None or gain is None or seen is None or loss is None:
            return ""  # it would not have been chosen
        cost = f"{seen.passes:.2g} {'pass' if seen.passes == 1 else 'passes'} per clean image{self._slower(seen)}"
        return (
            f"On `{self.network}` deploy `{chosen.spec}`: under {attack} {100 * robust.value:.1f} % of the images "
            f"stand instead of {100 * bare.value:.1f} % ({gain.points}). It costs {cost}. Clean accuracy changes by "
            f"{loss.points} points. {self._known(chosen)}"
        )

    def _slower(self, seen: Traffic) -> str:
        """The time of an image that comes alone, as an API gets them; where it is not stored, the time in batches."""
        alone = self._alone(seen)
        times, where = (
            (seen.time, "in batches")
            if alone is None
            else (alone, f"for an image that comes alone ({seen.alone_ms:.2g} ms)")
        )
        if times is None:
            return ""
        return f" and {'no more' if times < 1.05 else f'{times:.2g} times the'} time {where}"

    def _known(self, chosen: Line) -> str:
        left, bare, gain = chosen.robust(ADAPTIVE), self.bare.robust(ADAPTIVE), self.gain(chosen, ADAPTIVE)
        if left is None or bare is None or gain is None:
            return "The attack that knows the defence was not run."
        said = f"leaves {100 * left.value:.1f} %, and {100 * bare.value:.1f} % of the bare network ({gain.points})"
        verdict = "the defence only hides" if gain.low <= 0 else "it did not undo all of the gain"
        return f"An attacker who knows the defence {said}: {verdict}."

    def _holders(self) -> str:
        gains = [(line.name, d) for line in self.lines if (d := self.gain(line, ADAPTIVE)) is not None]
        if not gains:
            return "No entrant was attacked by someone who knows it."
        kept = [f"`{name}` {d.points}" for name, d in gains if d.low > 0]
        if not kept:
            return "No entrant has a settled gain against an attacker who knows it."
        return f"Not undone yet by an attacker who knows the defence: {'; '.join(kept)}. {self._short}"

    @property
    def _short(self) -> str:
        """How little was tried, so that nobody reads a gain as a proof."""
        attack = self.columns.get(ADAPTIVE, "")
        said = f"That attack was short ({attack}). " if attack == COLUMNS[ADAPTIVE] else ""
        return f"{said}A longer one may take the gain: this is no proof."

    # ---------------------------------------------------------------- as a table

    @property
    def table(self) -> Table:
        head = ["defence", "clean %", "calibration error", "shift", "passes", "time", "time alone", *self.columns]
        head += ["queries", "certified", "front", "label"]
        return text_table(head, [self._texts(line) for line in self.lines])

    def _texts(self, line: Line) -> list[str]:
        seen, place, median = line.traffic, self.place(line), line.queries()
        costs = [NOTHING] * 5
        if seen is not None:
            timeless = line.kind == REMEMBERS and seen.alone_ms is None  # as it was timed before its memory was
            costs = [
                NOTHING if seen.error is None else f"{seen.error:.3f}",
                NOTHING if seen.shift is None else f"{seen.shift:.3f}",
                f"{line.passes:g}",
                NOTHING if seen.time is None else f"{seen.time:.2g}{' without its memory' if timeless else ''}",
                NOTHING if (alone := self._alone(seen)) is None else f"{alone:.2g}",
            ]
        return [
            line.name,
            NOTHING if line.clean is None else str(line.clean),
            *costs,
            *(self.result(line, column) for column in self.columns),
            NOTHING if median is None else str(median),
            NOTHING if line.certified is None else str(line.certified),
            NOTHING if place is None else "yes" if place.on_front else "no",
            self.label(line),
        ]

    def _alone(self, seen: Traffic) -> float | None:
        """The time of an image that comes alone, divided by that of the bare network."""
        bare = self.bare.traffic
        if seen.alone_ms is None or bare is None or bare.alone_ms is None:
            return None
        return seen.alone_ms / bare.alone_ms

    def result(self, line: Line, column: str) -> str:
        """Robust accuracy in per cent: with its interval for the bare network, else with the gain and its interval."""
        robust, gain = line.robust(column), self.gain(line, column)
        if robust is None:
            return NOTHING
        judged = line.judged(column)
        return f"{robust}{judged}" if gain is None else f"{100 * robust.value:.1f}, {gain.points}{judged}"

    @property
    def notes(self) -> list[str]:
        """What was run, where the layer and the others lie, and who is left out."""
        n = max((len(records) for line in self.lines for _, records in line.cells.values()), default=0)
        ran = "; ".join(f"{column}: {attack}" for column, attack in self.columns.items())
        out = [f"{name} is left out: {why}" for name, why in self.left_out.items()]
        if self.postponed:
            needed = ", ".join(f"{name} {minutes:.2g}" for name, minutes in self.postponed.items())
            again = f"Run again with --minutes {self.enough}."
            out.append(f"Postponed for lack of time (minutes needed): {needed}. {again}")
        front = ", ".join(f"{line.name} ({line.passes:g})" for line in self.front())
        labels = {self.label(line) for line in self.lines}
        if HIDES in labels:
            out.append(
                f"{HIDES}: a gain under some attack is settled, and none under the attack that knows the defence."
            )
        if KEEPS in labels:
            out.append(f"{KEEPS}: a gain is settled under the attack that knows the defence, too. {self._short}")
        if self.earlier:
            out.append(self.earlier)
        chosen = f" Settings: {self.settings}." if self.settings else ""
        first = f"At most {n} samples. {ran}.{chosen}{self._bare_time}"
        return [first, f"Pareto front of passes against scores: {front}.", *out]

    @property
    def _bare_time(self) -> str:
        seen = self.bare.traffic
        if seen is None or seen.alone_ms is None:
            return ""
        return f" An image that comes alone takes the bare network {seen.alone_ms:.2g} ms."

    @property
    def earlier(self) -> str:
        """Which entrants met an earlier edition of the attack that knows the defence; empty if none did.

        It has fewer attacks behind most defences. On the bare network both are the same.
        """
        old = [line.name for line in self.lines[1:] if ADAPTIVE in line.cells and line.cells[ADAPTIVE][0].earlier]
        if not old:
            return ""
        return (
            f"Under {ADAPTIVE} these met an earlier edition: {join(old)}. The present one has more attacks behind most "
            "defences, and may leave less of their gains."
        )

    def json(self) -> dict[str, Any]:
        named = {"network": self.network, "settings": self.settings, "columns": dict(self.columns)}
        lines = [self._line_json(line) for line in self.lines]
        front = [line.name for line in self.front()]
        choice = self.choice
        said = {"front": front, "deploy": None if choice is None else choice.spec, "sentences": self.sentences}
        return {**named, "lines": lines, "left_out": dict(self.left_out), "postponed": dict(self.postponed), **said}

    def _line_json(self, line: Line) -> dict[str, Any]:
        def plain(value: Any) -> Any:
            return None if value is None else dataclasses.asdict(value)

        under = {c: {"robust": plain(line.robust(c)), "gain": plain(self.gain(line, c))} for c in self.columns}
        place = {c: None if (p := self.place(line, c)) is None else str(p) for c in self.columns}
        rest = {"median_queries": plain(line.queries()), "label": self.label(line)}
        clean = {"clean": plain(line.traffic), "clean_accuracy": plain(line.clean), "certified": plain(line.certified)}
        return {"name": line.name, "defence": line.spec, **clean, **under, "place": place, **rest}


def described(attack: str, threat: Threat) -> str:
    return attack if threat.queries is None else f"{attack} with {threat.queries} queries"


def _value(measured: Share | Difference | None) -> float:
    return -1.0 if measured is None else measured.value
