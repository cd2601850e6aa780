"""`antiadv list`: attacks, defences, recipes, models and data sets, by the names used in specs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiadv.cli import options as shared
from antiadv.cli import show

if TYPE_CHECKING:
    from antiadv.core import spec


class Kind(StrEnum):
    attacks = "attacks"
    defences = "defences"
    recipes = "recipes"
    models = "models"
    datasets = "datasets"


def command(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    json: shared.Json = False,
    debug: shared.Debug = False,
) -> None:
    """List attacks, defences, recipes, models or data.

    Each line shows a name, its options with their defaults, and a short description.
    """
    found = lines(kind)
    if json:
        show.print_json({kind.value: found})
    elif found:
        show.print_table(list(found[0]), [list(line.values()) for line in found])


def lines(kind: Kind) -> list[dict[str, str]]:
    """Return a row for each entry: column name to text."""
    from antiadv import data, models
    from antiadv.defences import DEFENCES
    from antiadv.train import RECIPES

    if kind == Kind.models:
        return models.catalogue()
    if kind == Kind.attacks:
        return _attacks()
    registries: dict[Kind, spec.Registry] = {
        Kind.defences: DEFENCES,
        Kind.recipes: RECIPES,
        Kind.datasets: data.DATASETS,
    }
    return [{"name": name, **_rest(factory)} for name, factory in registries[kind].items()]


def _attacks() -> list[dict[str, str]]:
    from antiadv.attacks import ATTACKS

    def line(name: str, cls: Any) -> dict[str, str]:
        attack = cls()
        norms = " ".join(sorted("linf" if p == math.inf else f"l{p:g}" for p in attack.norms))
        return {"name": name, "access": str(attack.access), "norms": norms, **_rest(cls)}

    return [line(name, cls) for name, cls in ATTACKS.items()]


def _rest(factory: spec.Factory) -> dict[str, str]:
    """Return the options with their defaults, and the first line of the docstring."""
    from antiadv.core import spec

    known: Mapping[str, spec.Parameter] = spec.parameters(factory)
    empty = inspect.Parameter.empty
    options = [k if p.default is empty else f"{k}={spec.show(p.default)}" for k, p in known.items()]
    about = (inspect.getdoc(inspect.getmodule(factory)) if isinstance(factory, type) else inspect.getdoc(factory)) or ""
    return {"options": ", ".join(options), "about": about.partition("\n")[0]}
