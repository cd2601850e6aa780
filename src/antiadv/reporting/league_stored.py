"""The leagues in a store: its cells, and beside them `traffic.json` with the clean traffic of each network's entrants.

    leagues(store)                   →  a League for each network of traffic.json whose bare network was attacked
    read_traffic(path), put_traffic(path, name, facts)
    certified(folders, weights, spec) →  what a stored run of `antiadv certify` proves of an entrant

A store may hold a league in its folder `league`. Cells of the same networks and images also count if they lie in the
store around that folder, or in the folder `gate` beside it. So a report and docs/league.md show the same.

A column compares equal attacks with equal budgets only, on the same samples. If a store holds several attacks, budgets
or sets of samples, those that most entrants have are taken, and of several such the largest. Editions of one attack
count as equal: a later one adds to the attacks behind a defence, and leaves the bare network as it was. Of the editions
of an entrant the latest counts, if it has as many samples; `League.notes` names the entrants with an earlier one.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any  # what a JSON file holds

from antiadv import attacks, defences, models
from antiadv.core import spec
from antiadv.core.errors import AntiadvError, BadInput, first_line
from antiadv.core.files import atomic_write
from antiadv.core.threat import Threat
from antiadv.evaluation.cell import Cell
from antiadv.evaluation.certify_stored import stored_runs
from antiadv.evaluation.store import Store
from antiadv.reporting.floor import FOLDER as CERTIFY
from antiadv.reporting.league_entrants import ADAPTIVE, COLUMNS, ENTRANTS, normal
from antiadv.reporting.league_table import League, Line, Proof, Read, described
from antiadv.reporting.league_traffic import Traffic
from antiadv.reporting.measures import Share
from antiadv.reporting.select import rank

TRAFFIC, LEAGUE, GATE = "traffic.json", "league", "gate"
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


def leagues(store: Store) -> list[League]:
    """One for each network of which the bare cell under some attack is stored."""
    home, *others = folders(store.root)
    traffic = read_traffic(home / TRAFFIC)
    cells: dict[tuple[str, str], Kept] = {}
    for folder in (home, *others) if traffic else ():
        _collect(Store(folder), traffic, cells)
    made = []
    for name, facts in traffic.items():
        found = _league(name, facts, cells.get((name, facts["weights"]), {}))
        if found is not None:
            proofs = {line.spec: certified((home, *others), facts["weights"], line.spec) for line in found.lines}
            lines = (dataclasses.replace(line, certified=proofs[line.spec]) for line in found.lines)
            made.append(dataclasses.replace(found, lines=tuple(lines)))
    return made


def folders(root: Path) -> list[Path]:
    """The folder of the league in this store, and those with more of its cells."""
    home = root / LEAGUE if (root / LEAGUE / TRAFFIC).exists() else root
    beside = [home.with_name(GATE), home.parent] if home.name == LEAGUE else []
    return [home, *(folder for folder in beside if folder.is_dir())]


def certified(folders: Iterable[Path], weights: str, text: str) -> Proof | None:
    """What is proven of `smoothing` with this noise at a radius of its noise; None without a run on this network."""
    if text.partition(":")[0] != "smoothing":
        return None
    std = float(spec.read(text, defences.DEFENCES, "defence").options["std"])
    for folder in folders:
        for identity, made in stored_runs(folder / CERTIFY):
            if identity["weights"] == weights and made.setting.std == std:
                (at,) = made.curve([std])
                return Proof(std, Share(at.certified, at.low, at.high, len(made.records)))
    return None


def _collect(store: Store, traffic: Mapping[str, Facts], cells: dict[tuple[str, str], Kept]) -> None:
    """Add the cells of these networks and images with their records, by network and weights."""
    shown = {attacks.full_text(attacks.parse(t)) for c, text in ATTACKS.items() for t in (text, *LONGER.get(c, ()))}
    for cell in store.cells():
        try:
            name = models.canonical(cell.model)
            key = defences.full_text(cell.defence), attacks.full_text(attacks.parse(cell.attack))
        except AntiadvError:
            continue  # made with something that this version does not have
        if name not in traffic or key[1] not in shown or traffic[name].get("images", cell.images) != cell.images:
            continue
        if records := store.read(cell):
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
    lines = on_the_same_samples(lines, list(columns))
    used = {column: described(_text(attack, column), threat) for column, (attack, threat) in columns.items()}
    return League(name, tuple(lines), used, dict(facts.get("refused", {})), str(facts.get("settings", "")))


def on_the_same_samples(lines: Sequence[Line], columns: Sequence[str]) -> list[Line]:
    """The lines with the samples that most entrants of a column have, so that its numbers rest on the same images."""
    kept = list(lines)
    for column in columns:
        sets = Counter(frozenset(r.sample for r in line.cells[column][1]) for line in kept if column in line.cells)
        usual = max(sets, key=lambda ids: (sets[ids], len(ids)), default=frozenset())
        for place, line in enumerate(kept):
            if column in line.cells:
                cell, records = line.cells[column]
                some = [r for r in records if r.sample in usual] or records
                kept[place] = dataclasses.replace(line, cells={**line.cells, column: (cell, some)})
    return kept


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
    """The best of the cells with this threat, which differ in edition, precision or seed."""

    def key(read: Read) -> tuple[int, bool, str, int]:
        samples, fineness = rank(*read)
        return samples, not read[0].earlier, read[0].earlier, fineness

    return max((read for read in reads if read[0].threat == threat), key=key, default=None)


def sizes(league: League) -> tuple[int, int]:
    """The least and the greatest number of attacked samples of a cell."""
    found = {len(records) for line in league.lines for _, records in line.cells.values()}
    return min(found), max(found)


def cell_of(league: League) -> Cell:
    """A cell of the bare network, for what all cells share."""
    return next(cell for cell, _ in league.bare.cells.values())
