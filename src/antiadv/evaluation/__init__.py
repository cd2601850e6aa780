"""Evaluation: Cell → Shard → Oracle → Attack → Judge → Record → Store.

attack(model, x, y, "square", Linf(8/255), queries=1000)  →  Outcome          for a batch in hand; nothing is stored
evaluate(cells, store)                                    →  None             runs what is missing and stores it
"""

from antiadv.evaluation.cell import Cell
from antiadv.evaluation.outcome import Outcome, attack
from antiadv.evaluation.plan import make_cell
from antiadv.evaluation.progress import Progress, Tally
from antiadv.evaluation.resources import Resources
from antiadv.evaluation.run import evaluate
from antiadv.evaluation.runners import parse_runner
from antiadv.evaluation.store import Store

__all__ = [
    "Cell",
    "Outcome",
    "Progress",
    "Resources",
    "Store",
    "Tally",
    "attack",
    "evaluate",
    "make_cell",
    "parse_runner",
]
