"""Which attacks are known to break less in fewer digits, and in which precisions: measured, in docs/precision.md.

    WEAK               attack → precisions
    weak(cell)         the attacks inside the cell's that are: {"bandits"} of `bandits:tile=8` searched in half
    known_weak()       the same in words, for pages

One that compares two scores at a time loses small differences. The two images of a pair of Bandits lie σ·2|e|/|v| apart
once its prior v is long, and what the loss changes over that is then less than what half's rounding does: it turns the
sign of a good part of the pairs.
"""

from __future__ import annotations

import re

from antiadv.evaluation.cell import Cell
from antiadv.reporting.grid import join

WEAK = {"bandits": ("half", "mixed"), "qeba": ("half",), "simba": ("mixed",)}


def weak(cell: Cell) -> set[str]:
    return {name for name in re.findall(r"\w+", cell.attack) if cell.precision in WEAK.get(name, ())}


def known_weak() -> str:
    return join([f"`{name}` in {join([f'`{p}`' for p in precisions])}" for name, precisions in WEAK.items()])
