"""Old names of arguments, methods and modules, accepted with a warning for one release.

@renamed(world="resources")                  `world=…` is passed on as `resources=…`
beside = renamed_method("on_own_model")      `.beside(…)` calls `.on_own_model(…)`
moved(__name__, "antiadv.paper")             importing this module gives `antiadv.paper`
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def renamed(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Accept old names of arguments: `renamed(old="new")`."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **named: P.kwargs) -> R:
            for old in names.keys() & named.keys():
                new = names[old]
                warnings.warn(
                    f"the argument {old} of {function.__name__} is now called {new}; the old name goes in 0.3.",
                    DeprecationWarning,
                    stacklevel=2,
                )
                named[new] = named.pop(old)
            return function(*args, **named)

        return call

    return decorate


def renamed_method(new: str) -> Callable[..., Any]:
    """The old name of a method: `old = renamed_method("new")` in the body of its class."""

    def call(self: object, *args: Any, **named: Any) -> Any:
        warnings.warn(f"this method is now called {new}; the old name goes in 0.3.", DeprecationWarning, stacklevel=2)
        return getattr(self, new)(*args, **named)

    return call


def moved(old: str, new: str) -> None:
    """Put the module `new` in the place of the module `old`, which is being imported."""
    warnings.warn(f"the module {old} is now {new}; the old name goes in 0.3.", DeprecationWarning, stacklevel=3)
    sys.modules[old] = import_module(new)
