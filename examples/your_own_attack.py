"""Write an attack of your own in one file. About 3 seconds on a CPU.

An attack is a frozen dataclass. Its fields are its options; four class constants say what it needs. It gets an oracle
instead of the model, so that every query is counted, and it returns images. The judge decides whether they fool.
`docs/adding.md` says how to add it to the library, and which helper stops samples that are already fooled.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

import antiadv


@dataclass(frozen=True)
class RandomCorners:
    """Try random corners of the ball, and keep the one with the lowest margin of the true class."""

    steps: int = 20

    access: ClassVar[antiadv.Access] = antiadv.Access.SCORES
    norms: ClassVar[frozenset[float]] = frozenset({math.inf})
    minimal: ClassVar[bool] = False  # it works inside a given radius
    edition: ClassVar[int] = 1

    def __call__(self, oracle: Any, x: Tensor, y: Tensor, ball: antiadv.Ball, draws: Any) -> Tensor:
        best, lowest = x, torch.full((len(x),), math.inf)
        for step in range(self.steps):
            if oracle.left().min() < 1:
                break  # the query budget is spent
            # random numbers are keyed by sample and step, so results do not depend on the batch
            corner = (ball.random(x, draws.fold(step)) - x).sign()
            z = ball.project(x, x + ball.eps * corner)
            margin = oracle.margin(oracle.scores(z), y)
            better = margin < lowest
            best = torch.where(better[:, None, None, None], z, best)
            lowest = torch.where(better, margin, lowest)
        return best


model = antiadv.models.load("compact:standard")
data = antiadv.data.load("cifar10")
x, y = data.images(range(16)), data.labels(range(16))

outcome = antiadv.attack(model, x, y, RandomCorners(), antiadv.Linf(16 / 255), queries=15)
print(f"robust accuracy {outcome.robust_accuracy:.1%}, {int(outcome.fooled.sum())} of {len(x)} samples broken")
print(f"queries for each sample: {sorted({record.queries for record in outcome.records})}")
