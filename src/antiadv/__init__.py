"""antiadv: the anti-adversary layer, and the test bench that tells what it is worth.

>>> import antiadv
>>> net = antiadv.models.load("compact:trades")
>>> defended = antiadv.AntiAdversary(net, steps=2, step_size=0.15)

Each public name is imported when it is first used, so `import antiadv` and `antiadv --help` do not wait for torch.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiadv import data, models
    from antiadv.core import errors
    from antiadv.core.ball import L2, Ball, Linf
    from antiadv.core.defence import Defence
    from antiadv.core.threat import Access, Threat
    from antiadv.defences.anti_adversary import AntiAdversary
    from antiadv.engine.fast import Replayed
    from antiadv.evaluation import Cell, Outcome, Resources, Store, attack, evaluate, make_cell
    from antiadv.evaluation.certify import certify
    from antiadv.models.remote import Remote
    from antiadv.models.wrap import wrap
    from antiadv.reporting import report
    from antiadv.reporting.league import league
    from antiadv.reporting.trial import verdict
    from antiadv.reporting.tune import tune
    from antiadv.serving.bundle import open_bundle
    from antiadv.serving.export import export

__all__ = [
    "L2",
    "Access",
    "AntiAdversary",
    "Ball",
    "Cell",
    "Defence",
    "Linf",
    "Outcome",
    "Remote",
    "Replayed",
    "Resources",
    "Store",
    "Threat",
    "attack",
    "certify",
    "data",
    "errors",
    "evaluate",
    "export",
    "league",
    "make_cell",
    "models",
    "open_bundle",
    "report",
    "tune",
    "verdict",
    "wrap",
]

__version__ = "0.2.0.dev0"

# where each public name is defined; a test compares it with the imports above
_HOMES = {
    "Access": "antiadv.core.threat",
    "AntiAdversary": "antiadv.defences.anti_adversary",
    "Ball": "antiadv.core.ball",
    "Cell": "antiadv.evaluation",
    "Defence": "antiadv.core.defence",
    "L2": "antiadv.core.ball",
    "Linf": "antiadv.core.ball",
    "Outcome": "antiadv.evaluation",
    "Remote": "antiadv.models.remote",
    "Replayed": "antiadv.engine.fast",
    "Resources": "antiadv.evaluation",
    "Store": "antiadv.evaluation",
    "Threat": "antiadv.core.threat",
    "attack": "antiadv.evaluation",
    "certify": "antiadv.evaluation.certify",
    "evaluate": "antiadv.evaluation",
    "export": "antiadv.serving.export",
    "league": "antiadv.reporting.league",
    "make_cell": "antiadv.evaluation",
    "open_bundle": "antiadv.serving.bundle",
    "report": "antiadv.reporting",
    "tune": "antiadv.reporting.tune",
    "verdict": "antiadv.reporting.trial",
    "wrap": "antiadv.models.wrap",
}
_MODULES = {name: f"antiadv.{name}" for name in ("attacks", "core", "data", "defences", "models", "paper")}
_MODULES["errors"] = "antiadv.core.errors"
# names of 0.1, which work in all 0.2 releases
_RENAMED = {"World": "Resources", "experiments": "paper", "theory": "paper.theory"}


def __getattr__(name: str) -> object:
    """Import a public name at its first use (PEP 562); afterwards it is an ordinary attribute.

    An old name warns at its first use only, because Python asks twice for `from antiadv import World`.
    """
    if name in _RENAMED:
        warnings.warn(
            f"antiadv.{name} is now antiadv.{_RENAMED[name]}; the old name goes in 0.3.",
            DeprecationWarning,
            stacklevel=2,
        )
        value = import_module("antiadv.paper.theory") if name == "theory" else __getattr__(_RENAMED[name])
    elif name in _MODULES:
        value = import_module(_MODULES[name])
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'antiadv' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
