"""How long cells take to run: their cost, and a prediction from earlier runs."""

from __future__ import annotations

from antiadv.paper.cost import passes
from antiadv.paper.table_layout import CellRequest

# multiplications of one forward pass of one image, in units of 1e9
WEIGHT = {"compact": 0.04, "resnet18": 0.56, "wrn16-4": 0.39, "wrn28-10": 5.2, "wrn34-10": 6.7, "resnet50": 4.1}


def cost(request: CellRequest) -> float:
    """Multiplications of all samples of a cell, in units of 1e9."""
    return request.samples * passes(request) * WEIGHT[request.network.model.partition(":")[0]]


class Pace:
    """Predict how many seconds a job takes, from its cost and from earlier jobs.

    A job has a `kind`: a few words, the most important first. The last three jobs that share the most words are used.
    Before any job is recorded, `rate` (cost per second) is used.
    """

    def __init__(self, rate: float) -> None:
        self._rate, self._jobs = rate, list[tuple[tuple[str, ...], float, float]]()

    def record(self, kind: tuple[str, ...], cost: float, seconds: float) -> None:
        self._jobs.append((kind, cost, seconds))

    def predict(self, kind: tuple[str, ...], cost: float) -> float:
        for words in range(len(kind), -1, -1):
            similar = [(c, s) for k, c, s in self._jobs if k[:words] == kind[:words]][-3:]
            if similar:
                return cost * sum(s for _, s in similar) / sum(c for c, _ in similar)
        return cost / self._rate
