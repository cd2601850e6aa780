"""The paper's theory: a function for each result, which checks its assumptions, and experiments that compute exactly.

    proposition_1 · corollary_1 · theorem_1     SimBA: its equality with STP, its bound, and the bound with the layer
    theorem_2 · theorem_3                       gradient ascent: its bound, and the bound with the layer
    composition                                 the attack of the proofs, and the attack on the real layer
    experiments()                               statements of the paper, what we computed, and whether they hold

>>> from antiadv.paper import theory
>>> [e.name for e in theory.experiments() if not e.holds and e.result == "Corollary 1"]
[]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from antiadv.paper.theory import black_box, white_box
from antiadv.paper.theory.corollary_1 import BlackBox
from antiadv.paper.theory.experiment import Experiment
from antiadv.paper.theory.theorem_2 import WhiteBox

__all__ = ["BlackBox", "Experiment", "WhiteBox", "experiments"]


def experiments() -> Iterator[Experiment]:
    """All experiments in the order of the paper."""
    for make in (*black_box.EXPERIMENTS, *white_box.EXPERIMENTS):
        yield replace(make(), name=make.__name__)
