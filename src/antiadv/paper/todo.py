"""From a layout to work: which of its cells can be run here, in which order, and about how much each costs.

    resolve(asks, precision, world)   →  cells, and for what cannot be run the sentence that says why
    as_stored(cell, store)            →  the cell in the precision that has it whole, so that it is not run again
    in_order(layouts)                 →  the cells of several tables, each once: the cheap and telling ones first
    passes(ask)                       →  images through the bare network for one sample that withstands: about the most

The order: TRADES and AWP of table 3, its other compact networks, table 2, table 4, the text, the figures, tables 5, 6
and 1, and the larger networks last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from antiadv import attacks, defences
from antiadv.attacks.adaptive.adaptive import Adaptive
from antiadv.attacks.score_based.square import Square
from antiadv.attacks.white_box.apgd import APGD
from antiadv.attacks.white_box.fab import FAB
from antiadv.core import spec
from antiadv.core.errors import AntiadvError
from antiadv.engine.precision import PRECISIONS
from antiadv.evaluation.cell import Cell, make_threat
from antiadv.evaluation.plan import make_cell
from antiadv.evaluation.resources import Resources
from antiadv.evaluation.store import Store
from antiadv.paper.layout import Ask, Layout, Words

STAGES = (
    "table-3",
    "table-2",
    "table-4",
    "text",
    "figure-3",
    "figure-4",
    "figure-5",
    "table-5",
    "table-6",
    "table-1",
)
FIRST = ("TRADES", "AWP")  # of table 3

# multiplications of one forward pass, in units of 1e9: what one image costs
WEIGHT = {"compact": 0.04, "resnet18": 0.56, "wrn16-4": 0.39, "wrn28-10": 5.2, "wrn34-10": 6.7, "resnet50": 4.1}

CLIMB = 101  # queries of one climb of apgd; an adaptive attacker makes ten on the bare network, and sends the images


@dataclass(frozen=True)
class Missing:
    """What was asked and cannot be run here, and why."""

    ask: Ask
    why: str


def resolve(
    asks: Iterable[Ask], precision: str = "float32", resources: Resources | None = None
) -> tuple[list[Cell], list[Missing]]:
    """The cells that can be run, in the same order, and those that cannot."""
    resources = Resources() if resources is None else resources
    cells, missing = [], []
    for ask in asks:
        made = ask.network.absent or cell_of(ask, precision, resources)
        if isinstance(made, Cell):
            cells.append(made)
        else:
            missing.append(Missing(ask, made))
    return cells, missing


def as_stored(cell: Cell, store: Store) -> Cell:
    """The cell as another precision has stored it, if that is whole; else as it was asked."""
    others = [dataclasses.replace(cell, precision=p) for p in PRECISIONS]
    return next((other for other in others if set(other.samples) <= store.done(other)), cell)


def cell_of(ask: Ask, precision: str, resources: Resources) -> Cell | str:
    """The cell, or why there is none: a data set that was not imported, too few images, a file that is damaged."""
    try:
        return make_cell(
            model=ask.network.model,
            data=ask.network.data,
            defence=ask.defence,
            attack=ask.attack,
            threat=ask.threat,
            samples=range(ask.samples),
            precision=precision,
            resources=resources,
        )
    except AntiadvError as error:
        return str(error)


# ---------------------------------------------------------------- order


def in_order(layouts: Mapping[str, Layout]) -> list[Ask]:
    """Each cell once, at the first of its places, asking for the most samples that any table wants of it."""
    ranked = [
        (_stage(name, ask), place, ask) for name, layout in layouts.items() for place, ask in enumerate(layout.asks)
    ]
    most: dict[Words, Ask] = {}
    for _, _, ask in sorted(ranked, key=lambda item: item[:2]):
        before = most.get(ask.words)
        most[ask.words] = ask if before is None else _larger(before, ask)
    return list(most.values())


def _stage(name: str, ask: Ask) -> tuple[bool, int, bool]:
    first = name == STAGES[0] and ask.network.title in FIRST and ask.words[0] == "cifar10:test"
    return ask.network.size == "larger", STAGES.index(name), not first


def _larger(one: Ask, other: Ask) -> Ask:
    return dataclasses.replace(one, samples=max(one.samples, other.samples))


# ---------------------------------------------------------------- cost


def passes(ask: Ask) -> float:
    """Of a sample that withstands to the end; a backward pass counts as a forward one."""
    attack = attacks.parse(ask.attack)
    queries = make_threat(ask.threat, attack).queries
    answer = _answer(ask.defence)
    if isinstance(attack, Adaptive):
        direct = 2 * CLIMB * (answer + 1) + 2 * attack.steps * answer  # two climbs, square and rays
        return 2 * 10 * CLIMB + (0 if ask.defence == defences.BARE else direct * _draws(ask.defence, attack.samples))
    if isinstance(attack, APGD):
        return (attack.steps + 1) * max(1, attack.targets) * (answer + 1) + answer * bool(attack.targets)
    if isinstance(attack, FAB):
        return 2 * attack.steps * max(1, attack.targets) * (answer + 0.5) + answer * bool(attack.targets)
    most = attack.steps + 1 if isinstance(attack, Square) else 10_000
    return (most if queries is None else min(queries, most)) * answer


def _answer(defence: str) -> float:
    """Passes of the bare network for one answer."""
    if defence == defences.BARE:
        return 1
    said = spec.read(defence, defences.DEFENCES, "defence")
    inner = 2 * said.options["steps"] if said.name == "anti_adversary" else said.options.get("passes", 1) - 1
    return 1 + float(inner)


def _draws(defence: str, samples: int) -> int:
    """How many answers an adaptive attacker averages for one."""
    known = defences.DEFENCES.get(defence.partition(":")[0])
    return samples if known is not None and known.randomised else 1


def cost(ask: Ask) -> float:
    """Passes of all its samples, weighed by what one costs: in units of 1e9 multiplications."""
    return ask.samples * passes(ask) * WEIGHT[ask.network.model.partition(":")[0]]


class Pace:
    """Seconds for a piece of work, from its cost and what pieces like it took: `tell` what was, `guess` what will be.

    A `kind` is a few words, the telling ones first: the last pieces that share most of them speak; at first, a rate.
    """

    def __init__(self, rate: float) -> None:
        self._rate, self._seen = rate, list[tuple[tuple[str, ...], float, float]]()

    def tell(self, kind: tuple[str, ...], cost: float, seconds: float) -> None:
        self._seen.append((kind, cost, seconds))

    def guess(self, kind: tuple[str, ...], cost: float) -> float:
        for words in range(len(kind), -1, -1):
            like = [(c, s) for k, c, s in self._seen if k[:words] == kind[:words]][-3:]
            if like:
                return cost * sum(s for _, s in like) / sum(c for c, _ in like)
        return cost / self._rate
