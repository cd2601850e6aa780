"""docs/theory.md: what the paper proves, with exact numbers from losses for which everything is known."""

from __future__ import annotations

from pathlib import Path

from antiadv.paper import theory
from tools.docs.markdown import render, table


def page(root: Path) -> str:
    experiments = list(theory.experiments())
    points = [
        {
            "c": f"{p.c:g}",
            "G(c)": f"{p.factor:.6f}",
            "bound K_g": f"{p.enough:.2f}",
            "steps in the proof": f"{p.needed}",
            "steps in the system": f"{p.in_system}",
        }
        for p in theory.black_box.points()
    ]
    rows = [
        {
            "name": e.name,
            "result": e.result,
            "the paper says": e.says,
            "tested on": e.where,
            "found": e.found,
            "holds": e.verdict,
        }
        for e in experiments
    ]
    numbers = {e.name: dict(e.numbers) for e in experiments}
    return render("theory", points=table(points), rows=table(rows), c=0.5, **numbers)
