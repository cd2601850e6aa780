"""A layout filled with what a store holds: nothing is run, no network is loaded.

    Shelf(store)               the cells of a store, found by their words
    fill(layout, shelf)        →  Filled: our numbers beside the paper's, and the cells that are not stored
    Filled.table()             →  the table to print

A stored cell counts for a table if its words are those asked for, its seed is 0, a randomised defence was judged by ten
looks and, where the network has a card, its weights are the card's: results of a network that was trained anew since
are not taken for those of the new one, nor those of the authors' checkpoint of the same name, which count where that is
asked for. Where there are still several networks, or sets of images, of one name, one of them counts throughout: that
with the most samples. Of several precisions the one with the most samples counts, of equals the finest; all samples
stored count, so a line may rest on more than the table asks for. The table says which precision it was.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from antiadv import attacks, defences, models
from antiadv.core.ball import Ball
from antiadv.evaluation.cell import LOOKS, Cell, Record
from antiadv.evaluation.store import Store
from antiadv.paper.layout import Ask, Column, Layout, Line, Words
from antiadv.reporting.measures import (
    Difference,
    Share,
    difference,
    right,
    search_judge_mismatch,
    share,
    standing,
    standing_by,
    unseen_by,
)
from antiadv.reporting.select import rank, searched
from antiadv.reporting.table import Number, Table, number_table
from antiadv.reporting.wording import count, join

LABELS = ("data", "network", "setting")
K = TypeVar("K", bound=Hashable)


class StoreIndex:
    """Reads each cell once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._cells: dict[Words, list[Cell]] = {}
        self._read: dict[Cell, list[Record]] = {}
        self._good: dict[tuple[Cell, bool, int | None, float | None, bool], dict[int, bool]] = {}
        for cell in store.cells() if store.root.is_dir() else []:
            if (cell.seed, cell.looks) == (0, LOOKS):
                self._cells.setdefault(words(cell), []).append(cell)
        self._told: dict[tuple[str, str, bool], tuple[str, str]] = {}
        self._weights = {models.canonical(card.spec): card.weights for card in models.cards()}

    def find(self, ask: Ask) -> Cell | None:
        """The stored cell that answers, if one does."""
        data, model, *_ = ask.words
        digests = self._digests(data, model, ask.network.size == "official")
        found = [c for c in self._cells.get(ask.words, []) if (c.images, c.weights) == digests]
        return max(found, key=lambda c: rank(c, self.records(c)), default=None)

    def _digests(self, data: str, model: str, official: bool) -> tuple[str, str]:
        """Of the images and the network of these names: no number is of two."""
        asked, due = (data, model, official), self._weights.get(model)
        if asked not in self._told:
            counts = Counter[tuple[str, str]]()
            for cell in (c for words, cells in self._cells.items() if words[:2] == asked[:2] for c in cells):
                if due is None or (cell.weights == due) != official:
                    counts[cell.images, cell.weights] += len(cell.samples)
            self._told[asked] = max(counts, key=lambda digests: counts[digests], default=("", ""))
        return self._told[asked]

    def records(self, cell: Cell) -> list[Record]:
        if cell not in self._read:
            self._read[cell] = self.store.read(cell)
        return self._read[cell]

    def good(self, ask: Ask, column: Column) -> dict[int, bool] | None:
        """Which samples are right, or withstand, as the column measures it; None where nothing is stored."""
        cell = self.find(ask)
        if cell is None or (column.radius is not None and self.search_judge_mismatch(cell, column.radius)):
            return None
        how = cell, column.measure.startswith("clean"), column.queries, column.radius, column.one_look
        if how not in self._good and column.one_look and cell.threat.queries is not None:
            self._good[how] = unseen_by(self.records(cell), cell.threat.queries, column.queries)
        elif how not in self._good:
            ball = cell.threat.ball if column.radius is None else Ball(cell.threat.ball.p, column.radius)
            self._good[how] = {r.sample: _good(r, ball, column) for r in self.records(cell)}
        return self._good[how]

    def search_judge_mismatch(self, cell: Cell, radius: float = math.inf) -> int:
        """How many samples ended within this radius, beyond the run's, at an image that fooled the search and not the
        judge, of an attack that looks for the closest."""
        if not attacks.parse(cell.attack).minimal:
            return 0
        return sum(search_judge_mismatch(r, cell.threat.ball) and r.distance <= radius for r in self.records(cell))


def _good(record: Record, ball: Ball, column: Column) -> bool:
    if column.measure.startswith("clean"):
        return right(record)
    return standing(record, ball) if column.queries is None else standing_by(record, ball, column.queries)


def words(cell: Cell) -> Words:
    """What an `Ask` for this cell would be called."""
    said = cell.identity
    return str(said["data"]), str(said["model"]), str(said["defence"]), str(said["attack"]), str(said["threat"])


# ---------------------------------------------------------------- numbers


def worst(shelf: StoreIndex, asks: Sequence[Ask], column: Column) -> dict[int, bool] | None:
    """The samples that all of these cells have, and whether each is good in all; None unless all are stored."""
    each = [shelf.good(ask, column) for ask in asks]
    found = [one for one in each if one is not None]
    if len(found) < len(each) or not (common := set.intersection(*map(set, found))):
        return None
    return {i: all(one[i] for one in found) for i in sorted(common)}


def compare(shelf: StoreIndex, before: Sequence[Ask], after: Sequence[Ask], column: Column) -> Difference | None:
    """How much better the second does, sample by sample; None unless both are stored on some common samples."""
    first, second = worst(shelf, before, column), worst(shelf, after, column)
    if first is None or second is None or not first.keys() & second.keys():
        return None
    return difference(first, second)


def value(shelf: StoreIndex, line: Line, column: Column) -> Share | Difference | None:
    if "gain" in column.measure:
        return compare(shelf, line.against(column), line.asks(column), column)
    found = worst(shelf, line.asks(column), column)
    return None if found is None else share(sum(found.values()), len(found))


def change(shelf: StoreIndex, line: Line, column: Column) -> Difference | None:
    """What the defence changes of a number, sample by sample: the two lines may be of different ones."""
    if line.defence == defences.BARE or "gain" in column.measure:
        return None
    return compare(shelf, line.against(column.as_gain), line.asks(column), column.as_gain)


@dataclass(frozen=True)
class Filled:
    """`changes` are what the defence of a line makes of its numbers, where the bare network's are stored too;
    `missing` are the cells of which nothing is stored; `short` those with fewer samples than asked for; `parted` how
    many samples of a cell ended, beyond its radius, at an image that fooled the search and not the judge."""

    layout: Layout
    numbers: tuple[Mapping[str, Number], ...]
    changes: tuple[Mapping[str, Difference], ...]
    missing: tuple[Ask, ...]
    short: tuple[Ask, ...]
    used: tuple[Cell, ...]
    search_judge_mismatch: Mapping[Cell, int]

    def table(self, name: str = "") -> Table:
        lines = [(labels(line), numbers) for line, numbers in zip(self.layout.lines, self.numbers, strict=True)]
        sentences = [*self.layout.notes, *self.sentences]
        return number_table(name, self.layout.title, LABELS, self.layout.headings, lines, sentences)

    def json(self) -> dict[str, Any]:
        lines = [
            {
                **dict(zip(LABELS, labels(line), strict=True)),
                "numbers": {heading: number.json() for heading, number in numbers.items()},
            }
            for line, numbers in zip(self.layout.lines, self.numbers, strict=True)
        ]
        return {"title": self.layout.title, "lines": lines, "sentences": [*self.layout.notes, *self.sentences]}

    @property
    def sentences(self) -> list[str]:
        """What the numbers rest on, and what is not there."""
        total = len(self.missing) + len(self.used)
        said = [f"{len(self.used)} of {total} cells are stored." + (f" {searched(self.used)}" if self.used else "")]
        said += self._counted
        if self.search_judge_mismatch:
            said.append(
                f"In {count(len(self.search_judge_mismatch), 'cell')} "
                f"{count(sum(self.search_judge_mismatch.values()), 'sample')} ended beyond the "
                "radius, at an image that fools the coarser search and not the judge. They may fall if searched again."
            )
        if self._uneven:
            said.append(
                "Lines that differ in n are of different images, and not to be subtracted from one another, gains "
                "neither; a gain is of the images that both its sides have."
            )
        for verb, asks in (("Nothing is stored", self.missing), ("Fewer samples than asked are stored", self.short)):
            if asks:
                counts = Counter(ask.network.name for ask in asks)
                said.append(f"{verb} of {join([count(n, 'cell') + ' of ' + name for name, n in counts.items()])}.")
        return said

    @property
    def _counted(self) -> list[str]:
        """Which numbers are of fewer samples, where that goes by columns."""
        groups: dict[int, list[str]] = {}
        for heading, sizes in self._sizes(lambda line, heading: heading).items():
            if len(sizes) > 1:
                return []
            groups.setdefault(min(sizes), []).append(heading)
        *fewer, most = sorted(groups) or [0]
        each = [f"{n} samples under {join(groups[n])}" for n in fewer]
        return [f"n is {join(each)}, and {most} under the others."] if fewer else []

    @property
    def _uneven(self) -> bool:
        """Whether some number of a network is of more samples in one line than in another."""
        sizes = self._sizes(lambda line, heading: (line.network.model, heading))
        return any(len(n) > 1 for n in sizes.values())

    def _sizes(self, key: Callable[[Line, str], K]) -> dict[K, set[int]]:
        """Of how many samples our numbers are, gathered by what `key` says of a line and a heading."""
        seen: dict[K, set[int]] = {}
        for line, numbers in zip(self.layout.lines, self.numbers, strict=True):
            for heading, number in numbers.items():
                if number.ours is not None:
                    seen.setdefault(key(line, heading), set()).add(number.ours.n)
        return seen


def labels(line: Line) -> tuple[str, str, str]:
    """Data set, network, and what stands before it."""
    data = line.asks(line.columns[0])[0].words[0].partition(":")[0]
    return data, f"{line.network.title}, {line.network.name.replace(f',data={data}', '')}", line.label


def fill(layout: Layout, shelf: StoreIndex) -> Filled:
    numbers = tuple(
        {c.heading: Number(value(shelf, line, c), line.paper.get(c.heading), "gain" in c.measure) for c in line.columns}
        for line in layout.lines
    )
    changes = tuple(
        {c.heading: d for c in line.columns if (d := change(shelf, line, c)) is not None} for line in layout.lines
    )
    found = {ask: shelf.find(ask) for ask in layout.asks}
    missing = tuple(ask for ask, cell in found.items() if cell is None)
    short = tuple(a for a, cell in found.items() if cell is not None and len(shelf.records(cell)) < a.samples)
    used = tuple(cell for cell in found.values() if cell is not None)
    apart = {cell: n for cell in used if (n := shelf.search_judge_mismatch(cell))}
    return Filled(layout, numbers, changes, missing, short, used, apart)
