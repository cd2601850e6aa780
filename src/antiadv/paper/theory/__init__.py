"""The paper's theory: each result a function with its assumptions checked, and experiments that try it exactly.

    proposition_1 · corollary_1 · theorem_1     SimBA: STP, its bound, and what the layer makes of it
    theorem_2 · theorem_3                       gradient ascent: its bound, and what the layer makes of it
    composition                                 what the proofs let the attacker do, and what it does
    experiments()                               a statement of the paper, what is computed, and whether it holds

>>> from antiadv import theory
>>> [e.name for e in theory.experiments() if not e.holds and e.result == "Corollary 1"]
[]
"""

from __future__ import annotations

from collections.abc import Iterator

from antiadv.paper.theory import black_box, white_box
from antiadv.paper.theory.corollary_1 import BlackBox
from antiadv.paper.theory.experiment import Experiment
from antiadv.paper.theory.theorem_2 import WhiteBox

__all__ = ["BlackBox", "Experiment", "WhiteBox", "experiments"]


def experiments() -> Iterator[Experiment]:
    """All of them, SimBA first, in the order of the paper."""
    for make in (*black_box.EXPERIMENTS, *white_box.EXPERIMENTS):
        yield make()
