"""The layer against small noise (SND) in table 1: which samples are broken, and why.

    layer                robust accuracy with the layer
    only g wrong         samples that are broken although f still predicts the attacked image correctly
    layer, f's label     robust accuracy if those samples were not broken, that is, if g always kept f's label
    SND, first error     robust accuracy with SND, if one wrong prediction breaks a sample
    by chance            samples that this counts as broken, but most of ten predictions are correct

There is one line for every network, attack and budget of table 1 whose cells are stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from antiadv.evaluation.cell import Cell
from antiadv.paper import table_1
from antiadv.paper.filled_table import labels, samples, worst_case
from antiadv.paper.networks import Source
from antiadv.paper.steps_too_far import share_of
from antiadv.paper.store_index import StoreIndex
from antiadv.paper.table_layout import CellRequest, Column, Layout, Line
from antiadv.reporting.select import searched
from antiadv.reporting.table import Number, NumberLine, Table, number_table

TITLE = "The layer against small noise"
LABELS = ("data", "network", "attack")
HEADINGS = ("layer", "only g wrong", "layer, f's label", "SND, first error", "by chance")
NOTES = (
    "“SND, first error” counts a sample as broken after one wrong prediction. “By chance” are samples broken in this "
    "way that most of ten predictions get right: most of the broken samples on the CIFAR-10 networks, about half of "
    "them on ResNet-50. The attack has stopped there and does not search for a better image.",
    "On ResNet-50 with the layer, NES finds about as many images that f still predicts correctly as others. There a "
    "step of 0.01 in pixels goes too far. (The authors' code steps after the normalisation, where 0.01 is about a "
    "quarter of that.) On the CIFAR-10 networks this hardly happens.",
)


def table(index: StoreIndex, source: Source | None = None) -> tuple[Table, list[Cell]]:
    """The table and the cells it uses. It has no lines if nothing is stored."""
    used, rows = dict[str, Cell](), list[NumberLine]()
    for snd, layer, column in comparisons(table_1.layout(Source() if source is None else source)):
        row = _row(index, snd, layer, column)
        if row is not None:
            rows.append(row)
            cells = (index.find(request) for request in (*snd.requests(column), *layer.requests(column)))
            used |= {cell.key: cell for cell in cells if cell is not None}
    notes = (*NOTES, searched(used.values())) if used else NOTES
    return number_table("layer-against-noise", TITLE, LABELS, HEADINGS, rows, notes), [*used.values()]


def comparisons(nominal: Layout) -> Iterator[tuple[Line, Line, Column]]:
    """From table 1: the SND line and the layer line of each network, with each column of an attack."""
    for snd, layer in pairwise(nominal.lines):
        if (snd.label, layer.label) == ("+ SND", "+ Anti-Adv") and snd.network == layer.network:
            yield from ((snd, layer, c) for c in layer.columns if c.heading.startswith(("Bandits", "NES")))


def _row(index: StoreIndex, snd: Line, layer: Line, column: Column) -> NumberLine | None:
    (request,), first_error = layer.requests(column), replace(column, first_error=True)
    robust = worst_case(index, (request,), column)
    unseen, judged = (worst_case(index, snd.requests(c), c) for c in (first_error, column))
    if robust is None or unseen is None or judged is None:
        return None
    only_g = _only_g_wrong(index, request, robust)
    data, network, _ = labels(layer)
    on_layer = samples(index, (request,), (), column)
    on_snd = samples(index, snd.requests(first_error), (), first_error)
    numbers = {
        "layer": Number(share_of(robust.values()), samples=on_layer),
        "only g wrong": Number(share_of(only_g.values()), samples=on_layer),
        "layer, f's label": Number(share_of(robust[i] or only_g[i] for i in robust), samples=on_layer),
        "SND, first error": Number(share_of(unseen.values()), samples=on_snd),
        "by chance": Number(share_of(judged[i] and not unseen[i] for i in unseen), samples=on_snd),
    }
    return (data, network, column.heading), numbers


def _only_g_wrong(index: StoreIndex, request: CellRequest, robust: dict[int, bool]) -> dict[int, bool]:
    """For each sample, whether g is wrong on the attacked image where f is right."""
    cell = index.find(request)
    assert cell is not None  # `robust` was computed from it
    records = [r for r in index.records(cell) if r.sample in robust]
    return {r.sample: not robust[r.sample] and r.base_attacked == r.label for r in records}
