"""Stores to report on: one really run on a network of the package, one of written records with known numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from antiadv import paper
from antiadv.evaluation import Cell, Resources, Store, evaluate, make_cell
from antiadv.paper.claims import CLAIMS
from antiadv.paper.sections import VERDICTS, paper_section
from antiadv.reporting.build import build_document
from antiadv.reporting.document import Document
from tests.engine.probes import RECEIPT, record

HOLDS, HOLDS_SO_FAR, PARTLY, FAILS_SO_FAR, FAILS, UNMEASURED = VERDICTS  # on a claim, whatever they are called

RUN = (
    ("square", "linf:8/255,queries=30"),
    ("fab:steps=3", "linf:8/255"),
    ("transfer:attack=(pgd:steps=5)", "linf:8/255"),
)


AnyClaim = TypeVar("AnyClaim")


def by_function(claims: Sequence[AnyClaim]) -> dict[str, AnyClaim]:
    """The paper's claims by the function that makes each, whatever they are called."""
    return {make.__name__: claim for make, claim in zip(CLAIMS, claims, strict=True)}


def document(store: Store | Path, names: Sequence[str] = (), images: int = 0) -> Document:
    """The report that `antiadv report --out` writes."""
    return build_document(store, [paper_section(store, names)], images)


def really_run(root: Path, resources: Resources, samples: int = 8) -> Store:
    """compact:trades bare and with the layer, really attacked; the attacked images are stored."""
    how = {"model": "compact:trades", "precision": "float32", "samples": range(samples), "resources": resources}
    cells = [
        make_cell(**how, defence=d, attack=a, threat=t)  # type: ignore[arg-type]
        for a, t in RUN
        for d in ("none", "anti_adversary")
    ]
    evaluate(cells, root, resources=resources, keep_images=True)
    return Store(root)


def written(root: Path, name: str, resources: Resources, fell: Callable[[Cell], int], n: int = 40) -> list[Cell]:
    """The cells of a table of the paper; the first `fell(cell)` of n samples fell, each after ten queries more."""
    cells = paper.cells(name, samples=n, resources=resources)
    for cell in cells:
        near: dict[str, Any] = {"attacked": 5, "distance": 0.5 * cell.threat.ball.eps}
        facts = [record(i, queries=10 * (i + 1), **(near if i < fell(cell) else {})) for i in range(n)]
        Store(root).append(cell, facts, RECEIPT)
    return cells


def weaker(cell: Cell) -> int:
    """20 of 40 fall bare and under the adaptive attack; 8 fall with the defence; square alone breaks at most 4."""
    most = 20 if cell.defence == "none" or cell.attack == "adaptive" else 8
    return min(4, most) if cell.attack == "square" else most
