"""Records to rows: every stored cell, each defended one beside the bare classifier it came from.

    rows(store)    one Row per cell, bare before defended, with what the terminal table and the JSON show
    fullest(rows)  those that speak, where some were searched in several precisions

Two networks may go by one name: files of one name, or one that was trained again. They are two by their digests, and
then the names that rows have (`model`, `data`) end in the beginning of these. One network may go by two, where its file
was renamed: it has the first. A defence that was judged by several numbers of looks is one for each (`defence`).

In which precision an attack searched says how it was found, not what was: the judge decides in float32 always. So a
defended cell may stand beside a bare one of another precision, and of cells that differ in that alone the one with the
most samples speaks, of equals the finest (`fuller`).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from antiadv import attacks, data, defences, models
from antiadv.attacks.adaptive.eot import EOT
from antiadv.core.attack import never_ran
from antiadv.core.errors import BadInput
from antiadv.core.threat import Access
from antiadv.engine.precision import PRECISIONS
from antiadv.evaluation.cell import LOOKS, Cell, Record
from antiadv.evaluation.judge import idle
from antiadv.evaluation.store import Store
from antiadv.reporting.digits import weak
from antiadv.reporting.grid import count, join
from antiadv.reporting.measures import (
    Difference,
    Ratio,
    Share,
    clean_accuracy,
    median_queries,
    paired,
    query_ratio,
    robust_accuracy,
)

Read = tuple[Cell, list[Record]]
K = TypeVar("K", bound=Hashable)

IN_HAND = "in hand"  # the data of a cell whose images no data set holds: it has no key, and no command makes it again


@dataclass(frozen=True)
class Names:
    """What a row's network, data and defence are called, where not as in its cell."""

    model: str = ""
    data: str = ""
    defence: str = ""
    place: str = ""


NAMELESS = Names()


@dataclass(frozen=True)
class Row:
    """One cell's records and numbers; `gain` and `ratio`, of median queries, are against the bare classifier under the
    same attack, on the same samples, in whatever precision either was searched.

    Where the attack never ran there is no robust accuracy, nor anything that is made of it.
    """

    cell: Cell
    clean: Share
    robust: Share | None
    queries: float | None
    gain: Difference | None
    ratio: Ratio | None = None
    records: Sequence[Record] = field(default=(), repr=False, compare=False)
    called: Names = NAMELESS

    @property
    def model(self) -> str:
        """What to call the network, and tell it from others by."""
        return self.called.model or self.cell.model

    @property
    def data(self) -> str:
        return self.called.data or self.cell.data

    @property
    def defence(self) -> str:
        return self.called.defence or self.cell.defence

    @property
    def place(self) -> str:
        """The network, and its data too where that alone tells two places apart: for a sentence that names no data."""
        return self.called.place or self.model

    @property
    def never_ran(self) -> str:
        """Why the attack tried nothing on some of the samples; nothing where it did."""
        return never_ran(attacks.parse(self.cell.attack), self.cell.threat) if self.robust is None else ""

    def json(self) -> dict[str, Any]:
        said = words(self.cell)
        if self.cell.data != IN_HAND:
            said |= {"key": self.cell.key}
            said |= {"command": command} if (command := self.cell.command) else {}
        numbers = {k: _plain(getattr(self, k)) for k in ("clean", "robust", "gain", "ratio")}
        idle = {"not_attacked": self.never_ran} if self.robust is None else {}
        return {**said, **numbers, "median_queries": self.queries, **idle}


def words(cell: Cell) -> dict[str, Any]:
    """All that tells a cell from others, as plain values."""
    named = ("data", "images", "model", "weights", "defence", "attack", "seed", "precision", "looks")
    return {**{k: getattr(cell, k) for k in named}, "threat": str(cell.threat)}


def _plain(value: Share | Difference | Ratio | None) -> dict[str, Any] | None:
    return None if value is None else dataclasses.asdict(value)


def rows(store: Store, cells: Iterable[Cell] | None = None) -> list[Row]:
    """A row for each cell, or for each stored one. Cells of which nothing is stored are left out."""
    read = [(cell, store.read(cell)) for cell in (store.cells() if cells is None else cells)]
    found = {cell.key: (cell, records) for cell, records in read if records}
    if not found:
        raise BadInput(f"the store {store.root} holds no records; run antiadv evaluate or antiadv demo first.")
    bare: dict[str, list[Read]] = {}
    for cell, records in found.values():
        if cell.defence == defences.BARE:
            bare.setdefault(ignoring_precision(cell).key, []).append((cell, records))
    names = _named(cell for cell, records in read if records)
    made = [_row(cell, names[_network(cell)], found, bare) for cell, records in read if records]
    return disambiguated(sorted(made, key=lambda row: _order(row.cell)))


def _network(cell: Cell) -> tuple[str, str]:
    return models.canonical(cell.model), cell.weights


def _named(cells: Iterable[Cell]) -> dict[tuple[str, str], str]:
    """What each network is called: of the names that one file has had, the first."""
    found: dict[tuple[str, str], str] = {}
    for cell in cells:
        name = models.label(cell.model)
        found[_network(cell)] = min(name, found.get(_network(cell), name))
    return found


def disambiguated(rows: Sequence[Row]) -> list[Row]:
    """The same, of which networks, or data, that go by one name are called by their digests too, defences by looks."""
    networks = _several((r.cell.model, r.cell.weights) for r in rows)
    sets = _several((r.cell.data, r.cell.images) for r in rows)
    judged = _several((r.cell.defence, r.cell.looks) for r in rows)
    found = _several(((r.cell.model, r.cell.weights), (r.cell.data, r.cell.images)) for r in rows)

    def named(cell: Cell) -> Names:
        model = f"{cell.model} ({_short(cell.weights)})" if cell.model in networks else ""
        data = f"{cell.data} ({_short(cell.images)})" if cell.data in sets else ""
        defence = f"{cell.defence} ({count(cell.looks, 'look')})" if cell.defence in judged else ""
        several = (cell.model, cell.weights) in found
        return Names(model, data, defence, f"{model or cell.model} ({data or cell.data})" if several else "")

    return [dataclasses.replace(r, called=named(r.cell)) for r in rows]


def _several(pairs: Iterable[tuple[K, Hashable]]) -> set[K]:
    """The names that several things go by."""
    return {name for name, n in Counter(name for name, _ in set(pairs)).items() if n > 1}


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:8]


def _row(cell: Cell, model: str, found: Mapping[str, Read], bare: Mapping[str, Sequence[Read]]) -> Row:
    """`found` holds the records of each cell by its key: two texts of one data set or model are one cell."""
    records = found[cell.key][1]
    beside = bare.get(ignoring_precision(bare_cell(cell)).key, []) if cell.defence != defences.BARE else []
    named = dataclasses.replace(cell, data=data.canonical(cell.data), model=model)
    return make_row(named, records, _nearest(cell, records, beside))


def _nearest(cell: Cell, records: Sequence[Record], beside: Sequence[Read]) -> Sequence[Record]:
    """Of bare cells in several precisions the one that shares the most samples; of equals its own, or the finest."""
    mine = {r.sample for r in records}

    def shared(other: Read) -> tuple[int, bool, int]:
        who, theirs = other
        return sum(r.sample in mine for r in theirs), who.precision == cell.precision, -coarse(who.precision)

    return max(beside, key=shared, default=(cell, list[Record]()))[1]


def make_row(cell: Cell, records: Sequence[Record], bare: Sequence[Record]) -> Row:
    """The row of a cell with these records, beside those of the bare classifier if there are any."""
    ball, attack = cell.threat.ball, attacks.parse(cell.attack)
    if any(idle(records, attack, cell.threat)):
        return Row(cell, clean_accuracy(records), None, None, None, None, tuple(records))
    bare = [] if any(idle(bare, attack, cell.threat)) else bare
    common = {r.sample for r in bare} & {r.sample for r in records}
    gain, ratio = (paired(bare, records, ball), query_ratio(bare, records, ball)) if common else (None, None)
    clean, robust = clean_accuracy(records), robust_accuracy(records, ball)
    return Row(cell, clean, robust, median_queries(records, ball), gain, ratio, tuple(records))


def bare_cell(cell: Cell) -> Cell:
    """The same cell without its defence: judged by one look, however many the defence was given."""
    return dataclasses.replace(cell, defence=defences.BARE, looks=LOOKS)


def ignoring_precision(cell: Cell) -> Cell:
    """What cells that differ in their precision alone have in common."""
    return dataclasses.replace(cell, precision=PRECISIONS[0])


def coarse(precision: str) -> int:
    return PRECISIONS.index(precision) if precision in PRECISIONS else len(PRECISIONS)


def fuller(cell: Cell, records: Sequence[Record]) -> tuple[int, int]:
    """Of cells that differ in their precision alone, the greatest by this speaks."""
    return len(records), -coarse(cell.precision)


def fullest(rows: Iterable[Row]) -> list[Row]:
    """One row for all cells that differ in their precision alone."""
    best: dict[Cell, Row] = {}
    for row in rows:
        words = ignoring_precision(row.cell)
        if words not in best or fuller(row.cell, row.records) > fuller(best[words].cell, best[words].records):
            best[words] = row
    return list(best.values())


def searched(cells: Iterable[Cell]) -> str:
    """`Searched in tf32 (9) and half (1), judged in float32.`, and what is known to break less so."""
    cells = list(cells)
    counts = sorted(Counter(cell.precision for cell in cells).items(), key=lambda item: coarse(item[0]))
    said = join([f"{p} ({n})" if len(counts) > 1 else p for p, n in counts])
    known = sorted(Counter((name, cell.precision) for cell in cells for name in weak(cell)).items())
    less = [f" {count(n, 'cell')} of {name} in {p}: it is known to break less so." for (name, p), n in known]
    return f"Searched in {said}, judged in float32.{''.join(less)}"


def level(cell: Cell) -> Access:
    """The level of access at which a cell counts. Who averages a defence's dice out knows it, whatever it answers."""
    return Access.INTERNALS if isinstance(attacks.parse(cell.attack), EOT) else cell.threat.access


def _order(cell: Cell) -> tuple[str | int, ...]:
    defended, place = cell.defence != defences.BARE, (cell.data, cell.images, cell.model, cell.weights)
    dice = cell.looks, cell.seed, coarse(cell.precision)
    return *place, level(cell), cell.attack, str(cell.threat), defended, cell.defence, *dice
