"""antiadv: the anti-adversary layer, and the test bench that tells what it is worth.

>>> import antiadv
>>> net = antiadv.models.load("compact:trades")
>>> defended = antiadv.AntiAdversary(net, steps=2, step_size=0.15)

Each public name is imported when it is first used, so `import antiadv` and `antiadv --help` do not wait for torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

# where each public name is defined; a test compares it with the imports above
_HOMES = {
    "Access": "antiadv.core.threat",
    "AntiAdversary": "antiadv.defences.anti_adversary",
    "Ball": "antiadv.core.ball",
    "Cell": "antiadv.evaluate",
    "L2": "antiadv.core.ball",
    "Linf": "antiadv.core.ball",
    "Outcome": "antiadv.evaluate",
    "Replayed": "antiadv.evaluate.speed",
    "Store": "antiadv.evaluate",
    "Threat": "antiadv.core.threat",
    "World": "antiadv.evaluate",
    "attack": "antiadv.evaluate",
    "evaluate": "antiadv.evaluate",
    "make_cell": "antiadv.evaluate",
    "report": "antiadv.report",
    "verdict": "antiadv.experiments.trial",
}
_MODULES = {name: f"antiadv.{name}" for name in ("attacks", "core", "data", "defences", "experiments", "models")}
_MODULES["errors"] = "antiadv.core.errors"


def __getattr__(name: str) -> object:
    """Import a public name at its first use (PEP 562); afterwards it is an ordinary attribute."""
    if name in _MODULES:
        value = import_module(_MODULES[name])
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'antiadv' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})


class _Package(ModuleType):
    """Keeps `antiadv.evaluate` and `antiadv.report` the functions, whose packages have the same names.

    Python binds a package to its name in the parent when it is first imported. That would hide the function.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
