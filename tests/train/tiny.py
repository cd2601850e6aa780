"""A problem that every recipe learns in seconds: four colours, 8 x 8 pixels, and a network of two layers.

The colours are 0.6 apart, so a ball of 8/255 never reaches the next one, and a crop changes no colour.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from antiadv.train import RECIPES, Batch, Recipe, Sets

COLOURS = torch.tensor([[0.2, 0.2, 0.2], [0.8, 0.2, 0.2], [0.2, 0.8, 0.2], [0.2, 0.2, 0.8]])


def colours(text: str = "cifar10", n: int = 64) -> Sets:
    """Replace `read_sets`. The name decides how many of the four colours there are."""
    classes = 4 if text.startswith("cifar10:") or text == "cifar10" else 3
    dice = torch.Generator().manual_seed(classes)
    y = torch.arange(n) % classes
    x = (COLOURS[y][:, None, None] + 0.1 * torch.rand(n, 8, 8, 3, generator=dice)).mul(255).to(torch.uint8)
    return Sets(
        text.partition(":")[0], classes, f"sha256:{classes}", f"sha256:{classes}t", x, y, x[: n // 2], y[: n // 2]
    )


def network(noise: float = 0.0, classes: int = 4) -> nn.Module:
    from antiadv.models.noise import GaussianNoise

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            GaussianNoise(noise),
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, classes),
        )


def batch(n: int = 16, t: float = 0.5) -> Batch:
    sets = colours(n=n)
    d = torch.randn(n, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return Batch(sets.x.permute(0, 3, 1, 2) / 255, sets.y, d, torch.tensor(t))


def scores(n: int = 16, k: int = 5, scale: float = 3.0, seed: int = 0) -> Tensor:
    return scale * torch.randn(n, k, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class Case:
    name: str
    recipe: Recipe
    noise: float = 0.0


CASES = [Case(name, recipe(), 0.1 if name == "self_ensemble" else 0.0) for name, recipe in RECIPES.items()]
