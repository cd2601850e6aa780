"""antiadv: the anti-adversary layer, and the test bench that tells what it is worth.

>>> import antiadv
>>> net = antiadv.models.load("compact:trades")
>>> defended = antiadv.AntiAdversary(net, steps=2, step_size=0.15)
"""

from antiadv import data, models
from antiadv.core import errors
from antiadv.core.ball import L2, Ball, Linf
from antiadv.core.threat import Access, Threat
from antiadv.defences.anti_adversary import AntiAdversary
from antiadv.evaluate import Cell, Outcome, Store, World, attack, evaluate, make_cell
from antiadv.evaluate.speed import Replayed
from antiadv.experiments.trial import verdict
from antiadv.report import report

__all__ = [
    "L2",
    "Access",
    "AntiAdversary",
    "Ball",
    "Cell",
    "Linf",
    "Outcome",
    "Replayed",
    "Store",
    "Threat",
    "World",
    "attack",
    "data",
    "errors",
    "evaluate",
    "make_cell",
    "models",
    "report",
    "verdict",
]

__version__ = "0.1.0"
