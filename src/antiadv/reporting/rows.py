"""Rows: the numbers of every stored cell, each defended one compared with the bare classifier.

Names. Two networks may have the same name: two files of one name, or one that was trained again. Then `model` and
`data` end in the first digits of their digests. One network may have two names, if its file was renamed: then the
first in alphabetical order is used. A defence that was judged with several numbers of draws has one name for each.

Precision. A defended cell may be compared with a bare one of another precision, because the judge always decides in
float32. `select.py` says which precision counts.
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
from antiadv.evaluation.cell import LOOKS, Cell, Record
from antiadv.evaluation.judge import idle
from antiadv.evaluation.store import Store
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
from antiadv.reporting.select import coarseness, ignoring_precision, nearest
from antiadv.reporting.table import Table, text_table
from antiadv.reporting.wording import NOTHING, count

Read = tuple[Cell, list[Record]]
K = TypeVar("K", bound=Hashable)

IN_HAND = "in hand"  # the data of a cell whose images are in memory only: it has no key, and no command repeats it
NOT_ATTACKED = "not attacked"


@dataclass(frozen=True)
class Names:
    """The names of a row's network, data and defence, where they differ from its cell's."""

    model: str = ""
    data: str = ""
    defence: str = ""
    place: str = ""


NAMELESS = Names()


@dataclass(frozen=True)
class Row:
    """One cell's records and numbers.

    `gain` and `ratio` (of median queries) compare with the bare classifier under the same attack, on the same samples.
    If the attack never ran, there is no robust accuracy, and nothing that is computed from it.
    """

    cell: Cell
    clean: Share
    robust: Share | None
    queries: float | None
    gain: Difference | None
    ratio: Ratio | None = None
    records: Sequence[Record] = field(default=(), repr=False, compare=False)
    called: Names = NAMELESS
    key: str = field(default="", compare=False)  # the key of the stored cell, and of the bare one beside it
    bare_key: str = field(default="", compare=False)

    @property
    def model(self) -> str:
        """The name of the network, different from the name of every other network."""
        return self.called.model or self.cell.model

    @property
    def data(self) -> str:
        return self.called.data or self.cell.data

    @property
    def defence(self) -> str:
        return self.called.defence or self.cell.defence

    @property
    def place(self) -> str:
        """The network, with its data if the network was tried on several data sets: for sentences without the data."""
        return self.called.place or self.model

    @property
    def never_ran(self) -> str:
        """Why the attack tried nothing on some of the samples; empty if it ran."""
        return never_ran(attacks.parse(self.cell.attack), self.cell.threat) if self.robust is None else ""

    def json(self) -> dict[str, Any]:
        plain = identity(self.cell)
        if self.cell.data != IN_HAND:
            plain |= {"key": self.cell.key}
            plain |= {"command": command} if (command := self.cell.command) else {}
        values = {k: getattr(self, k) for k in ("clean", "robust", "gain", "ratio")}
        numbers = {k: None if v is None else dataclasses.asdict(v) for k, v in values.items()}
        idle = {"not_attacked": self.never_ran} if self.robust is None else {}
        return {**plain, **numbers, "median_queries": self.queries, **idle}


def identity(cell: Cell) -> dict[str, Any]:
    """Everything that distinguishes a cell from others, as plain values."""
    named = ("data", "images", "model", "weights", "defence", "attack", "seed", "precision", "looks")
    return {**{k: getattr(cell, k) for k in named}, "threat": str(cell.threat)}


def rows(store: Store, cells: Iterable[Cell] | None = None) -> list[Row]:
    """Return a row for each of these cells, or for each stored one. Bare rows come before defended ones."""
    read = [(cell, store.read(cell)) for cell in (store.cells() if cells is None else cells)]
    read = [(cell, records) for cell, records in read if records]
    if not read:
        raise BadInput(f"the store {store.root} holds no records; run antiadv evaluate or antiadv demo first.")
    by_key = {cell.key: (cell, records) for cell, records in read}  # two names of one model or data set are one cell
    bare: dict[str, list[Read]] = {}
    for cell, records in by_key.values():
        if cell.defence == defences.BARE:
            bare.setdefault(ignoring_precision(cell).key, []).append((cell, records))
    names = _named(cell for cell, _ in read)
    made = [_row(cell, names[_network(cell)], by_key[cell.key][1], bare) for cell, _ in read]
    return disambiguated(sorted(made, key=lambda row: _order(row.cell)))


def _network(cell: Cell) -> tuple[str, str]:
    return models.canonical(cell.model), cell.weights


def _named(cells: Iterable[Cell]) -> dict[tuple[str, str], str]:
    """The name of each network: the first of the names that its file has had."""
    names: dict[tuple[str, str], str] = {}
    for cell in cells:
        name = models.label(cell.model)
        names[_network(cell)] = min(name, names.get(_network(cell), name))
    return names


def disambiguated(rows: Sequence[Row]) -> list[Row]:
    """Add digests to the names that several networks or data sets share, and the draws to those of defences."""
    networks = _shared((r.cell.model, r.cell.weights) for r in rows)
    sets = _shared((r.cell.data, r.cell.images) for r in rows)
    judged = _shared((r.cell.defence, r.cell.looks) for r in rows)
    on_several = _shared(((r.cell.model, r.cell.weights), (r.cell.data, r.cell.images)) for r in rows)

    def named(cell: Cell) -> Names:
        model = f"{cell.model} ({_short(cell.weights)})" if cell.model in networks else ""
        data = f"{cell.data} ({_short(cell.images)})" if cell.data in sets else ""
        defence = f"{cell.defence} ({count(cell.looks, 'look')})" if cell.defence in judged else ""
        several = (cell.model, cell.weights) in on_several
        return Names(model, data, defence, f"{model or cell.model} ({data or cell.data})" if several else "")

    return [dataclasses.replace(r, called=named(r.cell)) for r in rows]


def _shared(pairs: Iterable[tuple[K, Hashable]]) -> set[K]:
    """The names that several things have."""
    return {name for name, n in Counter(name for name, _ in set(pairs)).items() if n > 1}


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:8]


def _row(cell: Cell, model: str, records: Sequence[Record], bare: Mapping[str, Sequence[Read]]) -> Row:
    others = bare.get(ignoring_precision(bare_cell(cell)).key, []) if cell.defence != defences.BARE else []
    named = dataclasses.replace(cell, data=data.canonical(cell.data), model=model)
    beside, compared = nearest(cell, records, others)
    return dataclasses.replace(make_row(named, records, compared), key=cell.key, bare_key=beside.key if others else "")


def make_row(cell: Cell, records: Sequence[Record], bare: Sequence[Record]) -> Row:
    """Make the row of a cell with these records, compared with the bare classifier's records if there are any."""
    ball, attack = cell.threat.ball, attacks.parse(cell.attack)
    if any(idle(records, attack, cell.threat)):
        return Row(cell, clean_accuracy(records), None, None, None, None, tuple(records))
    bare = [] if any(idle(bare, attack, cell.threat)) else bare
    common = {r.sample for r in bare} & {r.sample for r in records}
    gain, ratio = (paired(bare, records, ball), query_ratio(bare, records, ball)) if common else (None, None)
    clean, robust = clean_accuracy(records), robust_accuracy(records, ball)
    return Row(cell, clean, robust, median_queries(records, ball), gain, ratio, tuple(records))


def bare_cell(cell: Cell) -> Cell:
    """The same cell without its defence. The bare classifier is judged with the default number of draws."""
    return dataclasses.replace(cell, defence=defences.BARE, looks=LOOKS)


def level(cell: Cell) -> Access:
    """The level of access at which a cell counts. Averaging over a defence's random numbers needs to know it."""
    return Access.INTERNALS if isinstance(attacks.parse(cell.attack), EOT) else cell.threat.access


def _order(cell: Cell) -> tuple[str | int, ...]:
    defended, place = cell.defence != defences.BARE, (cell.data, cell.images, cell.model, cell.weights)
    run = cell.looks, cell.seed, coarseness(cell.precision)
    return *place, level(cell), cell.attack, str(cell.threat), defended, cell.defence, *run


# ---------------------------------------------------------------- as a table

LABELS = ("data", "model", "defence", "attack", "threat", "budget", "seed", "precision", "n")
NUMBERS = ("clean %", "robust % [95 %]", "median queries", "gain (p)", "× queries")
IF_DIFFERENT = ("data", "seed")  # columns that are left out if all rows agree


def row_table(rows: Sequence[Row], budget: bool = False) -> Table:
    """Return the rows as a table. `budget` shows the budget of queries in a column of its own."""
    names = (*LABELS, *NUMBERS)
    lines = [_texts(row, budget) for row in rows]
    columns = dict(zip(names, zip(*lines, strict=True), strict=True)) if lines else {}
    hidden = {name for name in IF_DIFFERENT if len({*columns.get(name, ())}) < 2} | (set() if budget else {"budget"})
    kept = [i for i, name in enumerate(names) if name not in hidden]
    labels = sum(i < len(LABELS) for i in kept)
    return text_table([names[i] for i in kept], [[line[i] for i in kept] for line in lines], labels)


def _texts(row: Row, budget: bool) -> tuple[str, ...]:
    """The text of each column. With a budget column, the threat is the ball, and the access if it is unusual."""
    cell, threat = row.cell, row.cell.threat
    access = "" if threat.access == attacks.parse(cell.attack).access else f", access={threat.access}"
    return (
        *(row.data, row.model, row.defence, cell.attack),
        f"{threat.ball}{access}" if budget else str(threat),
        "" if threat.queries is None else f"{threat.queries:,}",
        str(cell.seed),
        cell.precision,
        str(row.clean.n),
        f"{100 * row.clean.value:.1f}",
        NOT_ATTACKED if row.robust is None else str(row.robust),
        NOTHING if row.queries is None else f"{row.queries:g}",
        "" if row.gain is None else str(row.gain),
        "" if row.ratio is None else str(row.ratio),
    )
