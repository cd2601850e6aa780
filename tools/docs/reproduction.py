"""docs/reproduction.md: the paper's tables beside ours, from the stored results."""

from __future__ import annotations

from pathlib import Path

from antiadv import paper


def page(root: Path) -> str:
    return paper.page(root / "results")
