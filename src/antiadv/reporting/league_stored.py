"""The leagues in a store: its cells, and beside them `traffic.json` with the clean traffic of each network's entrants.

    leagues(store)                   →  a League for each network of traffic.json whose bare network was attacked
    read_traffic(path), put_traffic(path, name, facts)

A column compares equal attacks with equal budgets only. If a store holds several, those that most entrants have are
taken, and of several such the largest budget.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any  # what a JSON file holds

from antiadv import attacks, defences, models
from antiadv.core.errors import AntiadvError, BadInput, first_line
from antiadv.core.files import atomic_write
from antiadv.core.threat import Threat
from antiadv.evaluation.cell import Cell
from antiadv.evaluation.store import Store
from antiadv.reporting.league_entrants import ADAPTIVE, COLUMNS, ENTRANTS, normal
from antiadv.reporting.league_table import League, Line, Read, described
from antiadv.reporting.league_traffic import Traffic
from antiadv.reporting.select import rank

TRAFFIC = "traffic.json"
NES = "scores, NES"
ATTACKS: dict[str, str] = {**COLUMNS, NES: "nes"}
LONGER: dict[str, tuple[str, ...]] = {
    ADAPTIVE: ("adaptive",)
}  # other cells that a column may show, if most entrants have them

Facts = Mapping[str, Any]
Kept = dict[tuple[str, str], list[Read]]  # by the full texts of defence and attack


def read_traffic(path: Path) -> dict[str, Facts]:
    """What is stored, by network; nothing before the first measurement."""
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())
        for facts in found.values():
            {name: Traffic(**seen) for name, seen in facts["found"].items()}
            facts["weights"], facts["defences"].items()
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"{path} holds no clean traffic ({first_line(error)}). Move it away, and run again.") from None
    return dict(found)


def put_traffic(path: Path, name: str, facts: Facts) -> None:
    """Store the facts of one network in place of the ones before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as part:
        part.write_text(json.dumps({**read_traffic(path), name: facts}, indent=2) + "\n")


def leagues(store: Store, *others: Store, traffic: Mapping[str, Facts] | None = None) -> list[League]:
    """One for each network of which the bare cell under some attack is stored.

    `others` hold more cells; `traffic` takes the place of the store's file.
    """
    traffic = read_traffic(store.root / TRAFFIC) if traffic is None else traffic
    cells: dict[tuple[str, str], Kept] = {}
    for each in (store, *others) if traffic else ():
        _collect(each, set(traffic), cells)
    made = [_league(name, facts, cells.get((name, facts["weights"]), {})) for name, facts in traffic.items()]
    return [found for found in made if found is not None]


def _collect(store: Store, networks: Collection[str], cells: dict[tuple[str, str], Kept]) -> None:
    """Add the cells of these networks with their records, by network and weights."""
    shown = {attacks.full_text(attacks.parse(t)) for c, text in ATTACKS.items() for t in (text, *LONGER.get(c, ()))}
    for cell in store.cells():
        try:
            name = models.canonical(cell.model)
            key = defences.full_text(cell.defence), attacks.full_text(attacks.parse(cell.attack))
        except AntiadvError:
            continue  # made with something that this version does not have
        if name in networks and key[1] in shown and (records := store.read(cell)):
            cells.setdefault((name, cell.weights), {}).setdefault(key, []).append((cell, records))


def _league(name: str, facts: Facts, kept: Kept) -> League | None:
    order = {entrant: place for place, entrant in enumerate(ENTRANTS)}
    specs = dict(sorted(facts["defences"].items(), key=lambda pair: order.get(pair[0], len(order))))
    specs = {"bare": defences.BARE} | {entrant: text for entrant, text in specs.items() if text != defences.BARE}
    settings = {column: _setting(kept, column, list(specs.values())) for column in ATTACKS}
    columns = {column: setting for column, setting in settings.items() if setting is not None}

    def line(entrant: str, text: str) -> Line:
        found = {column: _best(kept.get((text, attack), ()), threat) for column, (attack, threat) in columns.items()}
        seen = facts["found"].get(entrant)
        cells = {column: read for column, read in found.items() if read is not None}
        short = normal(text.rpartition("@")[0] or text)
        return Line(entrant, short, None if seen is None else Traffic(**seen), cells)

    lines = [made for made in map(line, specs, specs.values()) if made.cells or made.spec == defences.BARE]
    if not lines[0].cells:
        return None
    used = {column: described(_text(attack, column), threat) for column, (attack, threat) in columns.items()}
    return League(name, tuple(lines), used, dict(facts.get("refused", {})), str(facts.get("settings", "")))


def _setting(kept: Kept, column: str, specs: Sequence[str]) -> tuple[str, Threat] | None:
    """The attack of this column and its threat that most entrants have; of several, the one with most queries."""
    texts = [attacks.full_text(attacks.parse(text)) for text in (ATTACKS[column], *LONGER.get(column, ()))]
    found = Counter(
        (attack, threat)
        for text in specs
        for attack in texts
        for threat in {cell.threat for cell, _ in kept.get((text, attack), ())}
    )
    return max(found, key=lambda pair: (found[pair], pair[1].queries or 0), default=None)


def _text(attack: str, column: str) -> str:
    """The shortest text of an attack whose full text is known."""
    texts: tuple[str, ...] = (ATTACKS[column], *LONGER.get(column, ()))
    return next(text for text in texts if attacks.full_text(attacks.parse(text)) == attack)


def _best(reads: Sequence[Read], threat: Threat) -> Read | None:
    """The best of the cells with this threat, which differ in precision or seed."""
    return max((read for read in reads if read[0].threat == threat), key=lambda read: rank(*read), default=None)


def sizes(league: League) -> tuple[int, int]:
    """The least and the greatest number of attacked samples of a cell."""
    found = {len(records) for line in league.lines for _, records in line.cells.values()}
    return min(found), max(found)


def cell_of(league: League) -> Cell:
    """A cell of the bare network, for what all cells share."""
    return next(cell for cell, _ in league.bare.cells.values())
