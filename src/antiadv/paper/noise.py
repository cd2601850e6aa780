"""Beside small noise: what falls behind the layer and behind SND in table 1, and why.

    layer              accuracy behind the layer
    f right            samples that fall there though f still gets the attacked image right: the step went too far
    layer, f's         that accuracy had those samples stood: had g always f's label
    SND, one look      accuracy behind small noise in the attacker's counting, where one wrong answer is enough
    lucky              samples that fell so, and of which most of ten looks are right: the answer was luck

One line for every network, attack and budget of table 1 whose cells are stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from antiadv.evaluation.cell import Cell
from antiadv.paper import table_1
from antiadv.paper.behind import share_of
from antiadv.paper.fill import StoreIndex, labels, worst
from antiadv.paper.layout import Ask, Column, Layout, Line
from antiadv.paper.networks import Source
from antiadv.reporting.select import searched
from antiadv.reporting.table import Number, NumberLine, Table, number_table

TITLE = "Beside small noise: luck, and steps that go too far"
LABELS = ("data", "network", "attack")
HEADINGS = ("layer", "f right", "layer, f's", "SND, one look", "lucky")
NOTES = (
    "Behind noise much of what falls, falls by luck: looked at ten times, most of it is right again on the networks "
    "for CIFAR-10, about half of it on ResNet-50. The attack has stopped there, and never looks for better.",
    "Behind the layer on ResNet-50, NES finds images that f itself still gets right as often as others: there a step "
    "of 0.01 in pixels goes too far. (The authors' code steps behind the normalisation, where 0.01 is about a quarter "
    "of that.) On the networks for CIFAR-10 this hardly happens.",
)


def table(shelf: StoreIndex, source: Source | None = None) -> tuple[Table, list[Cell]]:
    """The table, and the cells it is made of; no lines where nothing is stored."""
    used, lines = dict[str, Cell](), list[NumberLine]()
    for snd, layer, column in races(table_1.layout(Source() if source is None else source)):
        found = _line(shelf, snd, layer, column)
        if found is not None:
            lines.append(found)
            asked = (shelf.find(ask) for ask in (*snd.asks(column), *layer.asks(column)))
            used |= {cell.key: cell for cell in asked if cell is not None}
    said = (*NOTES, searched(used.values())) if used else NOTES
    return number_table("noise", TITLE, LABELS, HEADINGS, lines, said), [*used.values()]


def races(nominal: Layout) -> Iterator[tuple[Line, Line, Column]]:
    """Of table 1, both defences of a network, and an attack on them."""
    for snd, layer in pairwise(nominal.lines):
        if (snd.label, layer.label) == ("+ SND", "+ Anti-Adv") and snd.network == layer.network:
            yield from ((snd, layer, c) for c in layer.columns if c.heading.startswith(("Bandits", "NES")))


def _line(shelf: StoreIndex, snd: Line, layer: Line, column: Column) -> NumberLine | None:
    (ask,), hasty = layer.asks(column), replace(column, one_look=True)
    stands = worst(shelf, (ask,), column)
    seen, judged = (worst(shelf, snd.asks(c), c) for c in (hasty, column))
    if stands is None or seen is None or judged is None:
        return None
    too_far = _too_far(shelf, ask, stands)
    data, network, _ = labels(layer)
    numbers = {
        "layer": Number(share_of(stands.values())),
        "f right": Number(share_of(too_far.values())),
        "layer, f's": Number(share_of(stands[i] or too_far[i] for i in stands)),
        "SND, one look": Number(share_of(seen.values())),
        "lucky": Number(share_of(judged[i] and not seen[i] for i in seen)),
    }
    return (data, network, column.heading), numbers


def _too_far(shelf: StoreIndex, ask: Ask, stands: dict[int, bool]) -> dict[int, bool]:
    """Of each sample, whether it is lost by the layer alone: g wrong, f right."""
    cell = shelf.find(ask)
    assert cell is not None  # it has just been read
    records = [r for r in shelf.records(cell) if r.sample in stands]
    return {r.sample: not stands[r.sample] and r.base_attacked == r.label for r in records}
