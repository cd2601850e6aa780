"""docs/theory.md: what the paper proves, with numbers computed exactly on losses for which everything is known."""

from __future__ import annotations

from pathlib import Path

from antiadv.paper import theory
from tools.docs.markdown import render, table


def page(root: Path) -> str:
    found = list(theory.experiments())
    points = [
        {
            "c": f"{p.c:g}",
            "G(c)": f"{p.factor:.6f}",
            "enough": f"{p.enough:.2f}",
            "needed": f"{p.needed}",
            "honest": f"{p.honest}",
        }
        for p in theory.black_box.points()
    ]
    rows = [
        {
            "name": e.name,
            "result": e.result,
            "the paper says": e.says,
            "tried on": e.where,
            "found": e.found,
            "holds": e.verdict,
        }
        for e in found
    ]
    numbers = {e.name: dict(e.numbers) for e in found}
    return render("theory", points=table(points), rows=table(rows), c=0.5, **numbers)
