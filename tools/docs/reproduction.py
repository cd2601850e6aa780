"""docs/reproduction.md: the paper's tables beside ours, from the stored results."""

from __future__ import annotations

from pathlib import Path

from antiadv import experiments


def page(root: Path) -> str:
    return experiments.page(root / "results")
