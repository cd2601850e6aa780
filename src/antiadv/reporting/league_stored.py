"""The leagues in a store: its cells, and beside them `traffic.json` with the clean traffic of each network's entrants.

    leagues(store)                   →  a League for each network of traffic.json whose bare network was attacked
    read_traffic(path), put_traffic(path, name, facts)

A column compares equal budgets only. If a store holds several, the one that most entrants have is taken, and of
several such the largest.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any  # what a JSON file holds

from antiadv import attacks, defences, models
from antiadv.core.errors import AntiadvError, BadInput, first_line
from antiadv.core.files import atomic_write
from antiadv.core.threat import Threat
from antiadv.evaluation.cell import Cell
from antiadv.evaluation.store import Store
from antiadv.reporting.league_entrants import COLUMNS, ENTRANTS, normal
from antiadv.reporting.league_table import League, Line, Read, described
from antiadv.reporting.league_traffic import Traffic
from antiadv.reporting.select import rank

TRAFFIC = "traffic.json"
NES = "scores, NES"
ATTACKS = {**COLUMNS, NES: "nes"}

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


def leagues(store: Store) -> list[League]:
    """One for each network of which the bare cell under some attack is stored."""
    traffic = read_traffic(store.root / TRAFFIC)
    cells = _cells(store, traffic)
    made = [_league(name, facts, cells.get((name, facts["weights"]), {})) for name, facts in traffic.items()]
    return [found for found in made if found is not None]


def _cells(store: Store, networks: Iterable[str]) -> dict[tuple[str, str], Kept]:
    """Cells with their records, by network and weights."""
    known = set(networks)
    cells: dict[tuple[str, str], Kept] = {}
    for cell in store.cells() if known else []:
        try:
            name = models.canonical(cell.model)
            key = defences.full_text(cell.defence), attacks.full_text(attacks.parse(cell.attack))
        except AntiadvError:
            continue  # made with something that this version does not have
        if name in known and (records := store.read(cell)):
            cells.setdefault((name, cell.weights), {}).setdefault(key, []).append((cell, records))
    return cells


def _league(name: str, facts: Facts, kept: Kept) -> League | None:
    order = {entrant: place for place, entrant in enumerate(ENTRANTS)}
    specs = dict(sorted(facts["defences"].items(), key=lambda pair: order.get(pair[0], len(order))))
    specs = {"bare": defences.BARE} | {entrant: text for entrant, text in specs.items() if text != defences.BARE}
    columns = {column: attacks.full_text(attacks.parse(text)) for column, text in ATTACKS.items()}
    threats = {column: _threat(kept, text, list(specs.values())) for column, text in columns.items()}

    def line(entrant: str, text: str) -> Line:
        found = {
            column: _best(reads, threats[column])
            for column, attack in columns.items()
            if (reads := kept.get((text, attack)))
        }
        seen = facts["found"].get(entrant)
        cells = {column: read for column, read in found.items() if read is not None}
        short = normal(text.rpartition("@")[0] or text)
        return Line(entrant, short, None if seen is None else Traffic(**seen), cells)

    lines = [made for made in map(line, specs, specs.values()) if made.cells or made.spec == defences.BARE]
    if not lines[0].cells:
        return None
    used = {column: described(ATTACKS[column], threat) for column, threat in threats.items() if threat is not None}
    return League(name, tuple(lines), used, dict(facts.get("refused", {})), str(facts.get("settings", "")))


def _threat(kept: Kept, attack: str, specs: Sequence[str]) -> Threat | None:
    """The threat that most entrants have under this attack; of several, the one with most queries."""
    found = Counter(threat for text in specs for threat in {cell.threat for cell, _ in kept.get((text, attack), ())})
    return max(found, key=lambda threat: (found[threat], threat.queries or 0), default=None)


def _best(reads: Sequence[Read], threat: Threat | None) -> Read | None:
    """The best of the cells with this threat, which differ in precision or seed."""
    return max((read for read in reads if read[0].threat == threat), key=lambda read: rank(*read), default=None)


def sizes(league: League) -> tuple[int, int]:
    """The least and the greatest number of attacked samples of a cell."""
    found = {len(records) for line in league.lines for _, records in line.cells.values()}
    return min(found), max(found)


def cell_of(league: League) -> Cell:
    """A cell of the bare network, for what all cells share."""
    return next(cell for cell, _ in league.bare.cells.values())
