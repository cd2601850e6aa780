"""Adversarial training: one file for each recipe, one loop for all. `RECIPES` lists all names.

train(parse("trades:beta=6"), "preact18:width=16", "cifar10", Path("trades.safetensors"), Settings(epochs=40))
"""

from __future__ import annotations

from antiadv.core import spec
from antiadv.train.awp import AWP
from antiadv.train.gaussian import Gaussian
from antiadv.train.hydra import Hydra
from antiadv.train.loop import Progress, train
from antiadv.train.mart import MART
from antiadv.train.measure import accuracy, interval, pgd_accuracy
from antiadv.train.pgd import PGD
from antiadv.train.pretraining import Pretraining
from antiadv.train.recipe import Batch, Loss, Phase, Recipe
from antiadv.train.self_ensemble import SelfEnsemble, average_predictions
from antiadv.train.sets import Sets, read_sets
from antiadv.train.standard import Standard
from antiadv.train.step import SPEEDS, Settings
from antiadv.train.trades import TRADES

__all__ = [
    "RECIPES", "SPEEDS", "Batch", "Loss", "Phase", "Progress", "Recipe", "Sets", "Settings",
    "accuracy", "average_predictions", "interval", "parse", "pgd_accuracy", "read_sets", "train",
]  # fmt: skip

RECIPES: dict[str, type[Recipe]] = {
    "standard": Standard,
    "pgd": PGD,
    "trades": TRADES,
    "mart": MART,
    "awp": AWP,
    "hydra": Hydra,
    "pretraining": Pretraining,
    "self_ensemble": SelfEnsemble,
    "gaussian": Gaussian,
}


def parse(text: str) -> Recipe:
    """Return the recipe of a spec: `parse("awp:recipe=(trades:beta=6),gamma=0.005")`."""
    recipe: Recipe = spec.parse(text, RECIPES, "recipe")
    return recipe
