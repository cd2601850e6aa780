"""docs/fast.md: `fast` against everything that is stored for the same network, images and ball."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from antiadv import attacks
from antiadv.attacks.white_box.autoattack import stages
from antiadv.attacks.white_box.fast import Fast
from antiadv.core.spec import text
from antiadv.evaluation import Cell, Store
from antiadv.reporting.measures import standing
from tools.docs.markdown import render, table

PARTS = {text(stage) for stage in stages()}
Stored = dict[Cell, dict[int, bool]]  # which samples stand


def page(root: Path) -> str:
    folder = root / "results" / "fast"
    fresh = Store(folder) if folder.is_dir() else None
    cells = fresh.cells() if fresh is not None else []
    if fresh is None or not cells:
        return render("fast", table="Nothing is stored yet.")
    stored = read(Store(root / "results"))
    lines = [table_row(cell, fresh, stored) for cell in sorted(cells, key=lambda c: (c.defence, c.attack, c.model))]
    return render("fast", table=table([line for line in lines if line]))


def read(store: Store) -> Stored:
    return {c: stands(c, store) for c in store.cells() if not c.threat.targeted and not c.seed}


def stands(cell: Cell, store: Store) -> dict[int, bool]:
    return {r.sample: standing(r, cell.threat.ball) for r in store.read(cell)}


def table_row(cell: Cell, store: Store, stored: Stored) -> dict[str, str]:
    """Compare a cell with the others of its network, on the samples that all of them have."""
    mine = stands(cell, store)
    others = [(c, s) for c, s in stored.items() if place(c) == place(cell) and mine.keys() <= s.keys()]
    every = worst(mine, [s for _, s in others])
    auto = [s for c, s in others if c.attack in PARTS]
    bill = sum(r.forwards + 2 * r.backwards for r in store.receipts(cell))
    attack = attacks.parse(cell.attack)
    most = attack.most_queries if isinstance(attack, Fast) else None
    alarmed = sum(r.queries > most for r in store.read(cell)) if most is not None else None
    return {
        "network": f"`{cell.model}`",
        "defence": "" if cell.defence == "none" else f"`{cell.defence}`",
        "attack": f"`{cell.attack}`" + (", earlier edition" if cell.earlier else ""),
        "n": str(len(mine)),
        "standing": str(sum(mine.values())),
        "AutoAttack": str(sum(worst(mine, auto).values())) if len(auto) == len(PARTS) else "not stored",
        "all stored": str(sum(every.values())) if others else "not stored",
        "missed": str(sum(mine[i] and not every[i] for i in mine)) if others else "",
        "found alone": str(sum(every[i] and not mine[i] for i in mine)) if others else "",
        "alarm": "" if alarmed is None else str(alarmed),
        "passes": f"{bill / len(mine):,.0f}",
        "searched in": cell.precision,
    }


def worst(mine: dict[int, bool], others: Sequence[dict[int, bool]]) -> dict[int, bool]:
    return {i: all(s[i] for s in others) for i in mine}


def place(cell: Cell) -> tuple[object, ...]:
    return cell.data, cell.images, cell.model, cell.weights, cell.defence, cell.threat.ball
