"""Find the stored cell that a table needs, and read which samples it kept. Nothing is run, no network is loaded.

A stored cell is used if all of this is true:
    its names match, its seed is 0, and a randomised defence was judged by ten draws
    its weights are those of the network's card, if there is one (for `official:DIR`: if they are not)
If several networks or sets of images still have the same name, the one with the most samples is used everywhere. If a
cell is stored in several precisions or editions, the one with the most samples is used, of equals the latest edition,
and of these the finest precision.
All stored samples count, so a line may use more samples than its table needs.
"""

from __future__ import annotations

import math
from collections import Counter

from antiadv import attacks, models
from antiadv.core.ball import Ball
from antiadv.evaluation.cell import LOOKS, Cell, Record
from antiadv.evaluation.store import Store
from antiadv.paper.table_layout import CellNames, CellRequest, Column
from antiadv.reporting.measures import right, search_judge_mismatch, standing, standing_by, unseen_by
from antiadv.reporting.select import rank


class StoreIndex:
    """The cells of a store by their names. Each cell is read once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._cells: dict[CellNames, list[Cell]] = {}
        self._records: dict[Cell, list[Record]] = {}
        self._correct: dict[tuple[Cell, bool, int | None, float | None, bool], dict[int, bool]] = {}
        for cell in store.cells() if store.root.is_dir() else []:
            if (cell.seed, cell.looks) == (0, LOOKS):
                self._cells.setdefault(names_of(cell), []).append(cell)
        self._chosen: dict[tuple[str, str, bool], tuple[str, str]] = {}
        self._weights = {models.canonical(card.spec): card.weights for card in models.cards()}

    def find(self, request: CellRequest) -> Cell | None:
        """The stored cell for a request, or None."""
        data, model, *_ = request.names
        digests = self._digests(data, model, request.network.size == "official")
        cells = [c for c in self._cells.get(request.names, []) if (c.images, c.weights) == digests]
        return max(cells, key=self._rank, default=None)

    def _rank(self, cell: Cell) -> tuple[int, bool, int]:
        samples, fineness = rank(cell, self.records(cell))
        return samples, not cell.earlier, fineness

    def _digests(self, data: str, model: str, official: bool) -> tuple[str, str]:
        """Digests of the images and weights that are used for these names. Other digests are ignored."""
        key, own_weights = (data, model, official), self._weights.get(model)
        if key not in self._chosen:
            samples = Counter[tuple[str, str]]()
            for cell in (c for names, cells in self._cells.items() if names[:2] == key[:2] for c in cells):
                if own_weights is None or (cell.weights == own_weights) != official:
                    samples[cell.images, cell.weights] += len(cell.samples)
            self._chosen[key] = max(samples, key=lambda digests: samples[digests], default=("", ""))
        return self._chosen[key]

    def records(self, cell: Cell) -> list[Record]:
        if cell not in self._records:
            self._records[cell] = self.store.read(cell)
        return self._records[cell]

    def correct(self, request: CellRequest, column: Column) -> dict[int, bool] | None:
        """Which samples are correct, or robust, as the column measures it. None if nothing usable is stored."""
        cell = self.find(request)
        if cell is None or (column.radius is not None and self.search_judge_mismatch(cell, column.radius)):
            return None
        key = cell, column.measure.startswith("clean"), column.queries, column.radius, column.first_error
        if key not in self._correct:
            self._correct[key] = self._evaluate(cell, column)
        return self._correct[key]

    def _evaluate(self, cell: Cell, column: Column) -> dict[int, bool]:
        if column.first_error and cell.threat.queries is not None:
            return unseen_by(self.records(cell), cell.threat.queries, column.queries)
        ball = cell.threat.ball if column.radius is None else Ball(cell.threat.ball.p, column.radius)
        return {r.sample: _is_correct(r, ball, column) for r in self.records(cell)}

    def search_judge_mismatch(self, cell: Cell, radius: float = math.inf) -> int:
        """Count samples where the search in lower precision was fooled and the judge was not.

        Only attacks that search for the closest image have such samples. Their images lie outside the radius of the
        run; those within `radius` are counted.
        """
        if not attacks.parse(cell.attack).minimal:
            return 0
        return sum(search_judge_mismatch(r, cell.threat.ball) and r.distance <= radius for r in self.records(cell))


def _is_correct(record: Record, ball: Ball, column: Column) -> bool:
    if column.measure.startswith("clean"):
        return right(record)
    return standing(record, ball) if column.queries is None else standing_by(record, ball, column.queries)


def names_of(cell: Cell) -> CellNames:
    """The `CellRequest.names` that this cell answers."""
    identity = cell.identity
    data, model, defence, threat = (str(identity[k]) for k in ("data", "model", "defence", "threat"))
    return data, model, defence, attacks.full_text(attacks.parse(cell.attack)), threat
