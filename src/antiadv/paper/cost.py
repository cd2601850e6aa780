"""What a cell costs to run, before it is run.

passes(request)    passes through the base network for one sample that withstands the attack: about the most
cost(request)      passes of all samples, weighted by the size of the network
Pace               predicts seconds from costs and earlier runs
"""

from __future__ import annotations

from antiadv import attacks, defences
from antiadv.attacks.adaptive.adaptive import Adaptive
from antiadv.attacks.score_based.square import Square
from antiadv.attacks.white_box.apgd import APGD
from antiadv.attacks.white_box.fab import FAB
from antiadv.core import spec
from antiadv.evaluation.cell import make_threat
from antiadv.paper.table_layout import CellRequest

# multiplications of one forward pass of one image, in units of 1e9
WEIGHT = {"compact": 0.04, "resnet18": 0.56, "wrn16-4": 0.39, "wrn28-10": 5.2, "wrn34-10": 6.7, "resnet50": 4.1}

APGD_QUERIES = 101  # of one APGD run; the adaptive attack makes ten on the base network and sends their images


def passes(request: CellRequest) -> float:
    """Passes for one sample that is never broken. A backward pass counts like a forward pass."""
    attack = attacks.parse(request.attack)
    queries = make_threat(request.threat, attack).queries
    per_query = _passes_per_query(request.defence)
    if isinstance(attack, Adaptive):
        # two APGD runs, Square and rays on the defence itself
        direct = 2 * APGD_QUERIES * (per_query + 1) + 2 * attack.steps * per_query
        draws = 0 if request.defence == defences.BARE else _draws(request.defence, attack.samples)
        return 2 * 10 * APGD_QUERIES + direct * draws
    if isinstance(attack, APGD):
        return (attack.steps + 1) * max(1, attack.targets) * (per_query + 1) + per_query * bool(attack.targets)
    if isinstance(attack, FAB):
        return 2 * attack.steps * max(1, attack.targets) * (per_query + 0.5) + per_query * bool(attack.targets)
    most = attack.steps + 1 if isinstance(attack, Square) else 10_000
    return (most if queries is None else min(queries, most)) * per_query


def _passes_per_query(defence: str) -> float:
    if defence == defences.BARE:
        return 1
    parsed = spec.read(defence, defences.DEFENCES, "defence")
    if parsed.name == "anti_adversary":
        return 1 + 2 * float(parsed.options["steps"]) + float(parsed.options["gate"] < 1)  # at most
    return float(parsed.options.get("passes", 1))


def _draws(defence: str, samples: int) -> int:
    """How many predictions the adaptive attack averages for one query."""
    known = defences.DEFENCES.get(defence.partition(":")[0])
    return samples if known is not None and known.randomised else 1


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
