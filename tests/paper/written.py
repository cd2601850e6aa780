"""Cells of the paper's tables with written records, so that their numbers are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from antiadv import attacks, models, paper
from antiadv.evaluation import Resources, Store
from antiadv.evaluation.cell import Cell, make_threat, normal_attack
from antiadv.paper import settings
from antiadv.paper.missing_cells import resolve
from antiadv.paper.networks import Source, of_method
from antiadv.paper.store_index import StoreIndex
from antiadv.paper.table_layout import CellRequest
from tests.engine.probes import RECEIPT, record


def request(attack: str, threat: str = settings.EPS, defence: str = "none", samples: int = 2) -> CellRequest:
    return CellRequest(of_method(Source(), "cifar10", "trades")[0], defence, attack, threat, samples)


def put(store: Store, cell: Cell, fell: int, queries: int = 7, n: int = 40, luck: int = 0) -> None:
    """Store n records. The first `fell` samples are broken. Only the attacker saw the last `luck` fall."""
    most = cell.threat.queries or queries

    def spent(i: int) -> int:
        return queries if i < fell or i >= n - luck else most

    broken: dict[str, Any] = {"attacked": 5, "distance": 1e-3, "attacked_right": 0}
    facts = [record(i, queries=spent(i), **(broken if i < fell else {})) for i in range(n)]
    store.append(cell, facts, RECEIPT)


def cells_of(name: str, model: str, resources: Resources) -> list[Cell]:
    requests = [r for r in paper.layout(name, samples=40).requests if r.network.name == model]
    return resolve(requests, "float32", resources)[0]


def stored(root: Path, resources: Resources) -> Store:
    """TRADES of table 3: each attack breaks 20 of 40 bare and 10 with the layer; the adaptive attack breaks 21."""
    store = Store(root)
    for cell in cells_of("table-3", "compact:trades", resources):
        put(store, cell, 21 if cell.attack == "adaptive" else 20 if cell.defence == "none" else 10)
    return store


def store_cells(index: StoreIndex, requests: Sequence[CellRequest]) -> list[Cell]:
    found = [index.find(request) for request in requests]
    assert all(found)
    return [cell for cell in found if cell is not None]


def like(cell: Cell, asked: CellRequest) -> Cell:
    """A cell for a request whose data set or network may be missing here."""
    weights = {models.canonical(card.spec): card.weights for card in models.cards()}
    images, model, *_ = asked.names
    attack = attacks.parse(asked.attack)
    return dataclasses.replace(
        cell,
        data=images,
        model=model,
        weights=weights.get(model) or cell.weights,
        defence=asked.defence,
        attack=normal_attack(attack),
        threat=make_threat(asked.threat, attack),
        precision="mixed",
    )
