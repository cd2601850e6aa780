"""Fill the layout of a table with the numbers that a store holds. Nothing is run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from antiadv import defences
from antiadv.core.ball import Ball
from antiadv.evaluation.cell import Cell
from antiadv.paper.store_index import StoreIndex
from antiadv.paper.table_layout import CellRequest, Column, Layout, Line
from antiadv.reporting.measures import Difference, Share, difference, share
from antiadv.reporting.select import searched
from antiadv.reporting.table import Number, Table, number_table, samples_of
from antiadv.reporting.wording import count, join

LABELS = ("data", "network", "setting")
K = TypeVar("K", bound=Hashable)


# ---------------------------------------------------------------- numbers


def worst_case(index: StoreIndex, requests: Sequence[CellRequest], column: Column) -> dict[int, bool] | None:
    """For each sample that all these cells have, whether it is correct in all of them. None unless all are stored."""
    cells = [correct for request in requests if (correct := index.correct(request, column)) is not None]
    if len(cells) < len(requests) or not (common := set.intersection(*map(set, cells))):
        return None
    return {i: all(correct[i] for correct in cells) for i in sorted(common)}


def compare(
    index: StoreIndex, before: Sequence[CellRequest], after: Sequence[CellRequest], column: Column
) -> Difference | None:
    """Worst case of `after` minus that of `before`, on the same samples. None if they have no samples in common."""
    first, second = worst_case(index, before, column), worst_case(index, after, column)
    if first is None or second is None or not first.keys() & second.keys():
        return None
    return difference(first, second)


def gain(index: StoreIndex, line: Line, column: Column) -> Difference | None:
    """What the defence of a line gains against the bare network, on the samples that both have."""
    column = column.as_gain
    return compare(index, line.bare_requests(column), line.requests(column), column)


def value(index: StoreIndex, line: Line, column: Column) -> Share | Difference | None:
    """The number of a line and a column. None if it cannot be computed from the store."""
    if "gain" in column.measure:
        return gain(index, line, column)
    correct = worst_case(index, line.requests(column), column)
    return None if correct is None else share(sum(correct.values()), len(correct))


def samples(
    index: StoreIndex,
    requests: Sequence[CellRequest],
    against: Sequence[CellRequest] = (),
    column: Column | None = None,
) -> str:
    """The samples behind a number of these cells, see `table.samples_of`."""
    found = [[cell for r in side if (cell := index.find(r)) is not None] for side in (requests, against)]
    sides = [[cell.key for cell in side] for side in found]
    if column is None or not found[0]:
        return samples_of(*sides)
    p, radius, clean = found[0][0].threat.ball.p, column.radius, column.measure.startswith("clean")
    reach = None if radius is None else Ball(p, radius).reach
    return samples_of(*sides, clean=clean, queries=column.queries, reach=reach, first=column.first_error)


# ---------------------------------------------------------------- table


@dataclass(frozen=True)
class FilledTable:
    """The numbers of a table.

    `numbers` and `changes` have an entry per line: its numbers by heading, and by how much the defence changes them.
    `missing` cells are not stored; `short` cells have fewer samples than needed; `used` cells are stored.
    `search_judge_mismatch` counts samples of `StoreIndex.search_judge_mismatch`, for the cells that have any.
    """

    layout: Layout
    numbers: tuple[Mapping[str, Number], ...]
    changes: tuple[Mapping[str, Difference], ...]
    missing: tuple[CellRequest, ...]
    short: tuple[CellRequest, ...]
    used: tuple[Cell, ...]
    search_judge_mismatch: Mapping[Cell, int]

    def table(self, name: str = "") -> Table:
        """The table to print, with its notes."""
        lines = [(labels(line), numbers) for line, numbers in zip(self.layout.lines, self.numbers, strict=True)]
        return number_table(name, self.layout.title, LABELS, self.layout.headings, lines, self._notes)

    def json(self) -> dict[str, Any]:
        """The table as plain values."""
        lines = [
            {
                **dict(zip(LABELS, labels(line), strict=True)),
                "numbers": {heading: number.json() for heading, number in numbers.items()},
            }
            for line, numbers in zip(self.layout.lines, self.numbers, strict=True)
        ]
        return {"title": self.layout.title, "lines": lines, "sentences": self._notes}

    @property
    def _notes(self) -> list[str]:
        return [*self.layout.notes, *self.sentences]

    @property
    def sentences(self) -> list[str]:
        """Which cells and precisions the numbers come from, and what is missing."""
        stored = f"{len(self.used)} of {len(self.missing) + len(self.used)} cells are stored."
        sentences = [f"{stored} {searched(self.used)}" if self.used else stored, *self._fewer_samples]
        if self.search_judge_mismatch:
            samples = count(sum(self.search_judge_mismatch.values()), "sample")
            sentences.append(
                f"In {count(len(self.search_judge_mismatch), 'cell')} {samples} ended at an image outside the radius "
                "that fooled the search in lower precision but not the judge. A new search may break them."
            )
        if self._uneven:
            sentences.append(
                "Rows with different n use different images: do not subtract them. A gain uses the images of both "
                "sides."
            )
        for text, requests in (("Not stored", self.missing), ("Stored with fewer samples than needed", self.short)):
            if requests:
                cells = Counter(request.network.name for request in requests)
                sentences.append(f"{text}: {join([count(n, 'cell') + ' of ' + name for name, n in cells.items()])}.")
        return sentences

    @property
    def _fewer_samples(self) -> list[str]:
        """A sentence that names the columns with fewer samples, if n depends on the column only."""
        headings: dict[int, list[str]] = {}
        for heading, sizes in self._sizes(lambda line, heading: heading).items():
            if len(sizes) > 1:
                return []
            headings.setdefault(min(sizes), []).append(heading)
        *fewer, most = sorted(headings) or [0]
        parts = [f"{n} samples under {join(headings[n])}" for n in fewer]
        return [f"n is {join(parts)}, and {most} under the others."] if fewer else []

    @property
    def _uneven(self) -> bool:
        """Whether two lines of a network have different n under the same heading."""
        return any(len(n) > 1 for n in self._sizes(lambda line, heading: (line.network.model, heading)).values())

    def _sizes(self, key: Callable[[Line, str], K]) -> dict[K, set[int]]:
        """All n of our numbers, grouped by a key of line and heading."""
        sizes: dict[K, set[int]] = {}
        for line, numbers in zip(self.layout.lines, self.numbers, strict=True):
            for heading, number in numbers.items():
                if number.ours is not None:
                    sizes.setdefault(key(line, heading), set()).add(number.ours.n)
        return sizes


def labels(line: Line) -> tuple[str, str, str]:
    """Data set, network, and setting of a line, as the table shows them."""
    data = line.requests(line.columns[0])[0].names[0].partition(":")[0]
    return data, f"{line.network.title}, {line.network.name.replace(f',data={data}', '')}", line.label


def fill(layout: Layout, index: StoreIndex) -> FilledTable:
    """Compute every number of a layout that the store has."""
    numbers = [{c.heading: _number(index, line, c) for c in line.columns} for line in layout.lines]
    changes = [_changes(index, line) for line in layout.lines]
    cells = {request: index.find(request) for request in layout.requests}
    stored = {request: cell for request, cell in cells.items() if cell is not None}
    used = tuple(stored.values())
    return FilledTable(
        layout,
        tuple(numbers),
        tuple(changes),
        missing=tuple(request for request in cells if request not in stored),
        short=tuple(r for r, cell in stored.items() if len(index.records(cell)) < r.samples),
        used=used,
        search_judge_mismatch={cell: n for cell in used if (n := index.search_judge_mismatch(cell))},
    )


def _number(index: StoreIndex, line: Line, column: Column) -> Number:
    behind = samples(index, line.requests(column), line.bare_requests(column), column)
    return Number(value(index, line, column), line.paper.get(column.heading), "gain" in column.measure, behind)


def _changes(index: StoreIndex, line: Line) -> dict[str, Difference]:
    """By how much the defence of a line changes each of its numbers."""
    columns = [] if line.defence == defences.BARE else [c for c in line.columns if "gain" not in c.measure]
    return {c.heading: change for c in columns if (change := gain(index, line, c)) is not None}
