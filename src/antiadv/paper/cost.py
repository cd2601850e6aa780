"""What a cell costs to run, in passes, before it is run."""

from __future__ import annotations

from antiadv import attacks, defences
from antiadv.attacks.adaptive.adaptive import Adaptive
from antiadv.attacks.score_based.square import Square
from antiadv.attacks.white_box.apgd import APGD
from antiadv.attacks.white_box.fab import FAB
from antiadv.core import spec
from antiadv.evaluation.cell import make_threat
from antiadv.paper.table_layout import CellRequest

APGD_QUERIES, MARGIN_QUERIES = 101, 64  # of one run of APGD, and of the minimum margin
FAST_PASSES = 500  # of `fast` on the base network, with which the adaptive attack begins


def passes(request: CellRequest) -> float:
    """Passes through the base for one sample that is never broken. A backward pass counts like a forward pass."""
    attack = attacks.parse(request.attack)
    queries = make_threat(request.threat, attack).queries
    per_query = _passes_per_query(request.defence)
    if isinstance(attack, Adaptive):
        # two APGD runs, a search of margins, Square and rays on the defence itself
        direct = (2 * APGD_QUERIES + MARGIN_QUERIES) * (per_query + 1) + 2 * attack.steps * per_query
        draws = 0 if request.defence == defences.BARE else _draws(request.defence, attack.samples)
        return FAST_PASSES + direct * draws
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
    if parsed.name == "hedge":
        return 1 + 2 * float(parsed.options["steps"])
    if parsed.name == "smoothing":
        return float(parsed.options["samples"])
    return float(parsed.options.get("passes", 1))


def _draws(defence: str, samples: int) -> int:
    """How many predictions the adaptive attack averages for one query."""
    known = defences.DEFENCES.get(defence.partition(":")[0])
    return samples if known is not None and known.randomised else 1
