"""Why the layer gains, and where its steps go too far: a table of what it does to a network's predictions.

    confidence          mean probability of the predicted class on clean images, of f and of g
    label changed       clean images to which g gives another label than f
    only g wrong        samples that are broken although f still predicts the attacked image correctly: x + γ left the
                        class, x did not
    AA gain, f's label  the gain under AutoAttack if those samples were not broken, that is, if g always kept f's label

There is one line for every network and setting of tables 3, 5, 6 and the figures whose cells are stored. It uses the
samples on which f and g both met all attacks of AutoAttack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from statistics import fmean

from antiadv import defences
from antiadv.core import spec
from antiadv.evaluation.cell import Cell, Record
from antiadv.paper import table_3
from antiadv.paper.ablations import FIGURE_3, FIGURE_4, FIGURE_5, TABLE_5, TABLE_6
from antiadv.paper.filled_table import gain, labels, worst_case
from antiadv.paper.filled_table import samples as behind
from antiadv.paper.networks import Source
from antiadv.paper.store_index import StoreIndex
from antiadv.paper.table_layout import CellRequest, Layout, Line
from antiadv.reporting.measures import Share, difference, right, share, standing
from antiadv.reporting.select import searched
from antiadv.reporting.table import Number, NumberLine, Table, number_table

TITLE = "Why the layer gains, and where its steps go too far"
LABELS = ("data", "network", "setting", "confidence, f → g")
HEADINGS = ("label changed", "only g wrong", "AA gain", "AA gain, f's label", "adaptive gain")
LAYOUTS = tuple(made.layout for made in (table_3, TABLE_5, TABLE_6, FIGURE_3, FIGURE_4, FIGURE_5))
NOTES = (
    "“Only g wrong” counts samples that are broken although f still predicts the attacked image correctly. “AA gain, "
    "f's label” is the gain if g always kept f's label, so that these samples were not broken.",
    "The gain follows confidence. Where a short step, or a single one, leaves g little more confident than f, its "
    "scores still guide an attack. From K = 3 on, more steps raise the confidence of g but hardly its gain.",
    "A step can go too far. γ moves every pixel by α in each step. If f changes its label within that distance, x + "
    "γ leaves the class of x: g is wrong where f is right. This is a second way to attack g, with or without "
    "knowledge of the layer, and the adaptive gain falls below zero. The paper's lower bound assumes that g keeps "
    "f's label.",
    "It can happen with one step of 0.15 and with two steps of 0.3. A second step of 0.15 mostly moves x + γ back. It "
    "happens most to MART and ImageNet-Pre, which lose a little with two steps of 0.15 too.",
)


def table(index: StoreIndex, source: Source | None = None) -> tuple[Table, list[Cell]]:
    """The table and the cells it uses. It has no lines if nothing is stored."""
    layouts = [layout(Source() if source is None else source) for layout in LAYOUTS]
    rows = [(row, line) for line in defended_lines(layouts) if (row := _row(index, line)) is not None]
    requests = [request for _, line in rows for request in _requests(line)]
    used = {cell.key: cell for request in requests if (cell := index.find(request)) is not None}
    notes = (*NOTES, searched(used.values())) if used else NOTES
    return number_table("steps-too-far", TITLE, LABELS, HEADINGS, [row for row, _ in rows], notes), [*used.values()]


def defended_lines(layouts: Iterable[Layout]) -> Iterator[Line]:
    """Every network with every defence once, from the first layout that has it."""
    seen = set()
    for line in (line for layout in layouts for line in layout.lines):
        if line.defence != defences.BARE and (line.network.name, line.defence) not in seen:
            seen.add((line.network.name, line.defence))
            yield line


def _requests(line: Line) -> Iterator[CellRequest]:
    for heading in ("AA", "adaptive"):
        column = line.column(heading).as_gain
        yield from (*line.requests(column), *line.bare_requests(column))


def _row(index: StoreIndex, line: Line) -> NumberLine | None:
    aa = line.column("AA").as_gain
    bare, defended = (worst_case(index, requests, aa) for requests in (line.bare_requests(aa), line.requests(aa)))
    if bare is None or defended is None or not (samples := bare.keys() & defended.keys()):
        return None
    f, g = (_first_records(index, requests, samples) for requests in (line.bare_requests(aa), line.requests(aa)))
    attacked = list(_records(index, line.requests(aa), samples))
    adaptive = line.column("adaptive").as_gain
    on_aa, on_adaptive = (
        behind(index, line.requests(column), line.bare_requests(column), column) for column in (aa, adaptive)
    )
    numbers = {
        "label changed": Number(share_of(r.clean != r.base_clean for r in g), samples=on_aa),
        "only g wrong": Number(share_of(_broken_by_layer(attacked).values()), samples=on_aa),
        "AA gain": Number(difference(bare, defended), None, True, on_aa),
        "AA gain, f's label": Number(difference(bare, _robust_with_own_label(attacked)), None, True, on_aa),
        "adaptive gain": Number(gain(index, line, adaptive), None, True, on_adaptive),
    }
    data, network, _ = labels(line)
    confidence = " → ".join(f"{fmean(r.clean_confidence for r in records):.2f}" for records in (f, g))
    return (data, network, setting(line.defence), confidence), numbers


def setting(defence: str) -> str:
    """K and α of a layer.

    >>> setting("anti_adversary:steps=1,step_size=10/255")
    'K = 1, α = 10/255'
    """
    options = spec.read(defence, defences.DEFENCES, "defence").options
    alpha = options["step_size"]
    text = "+".join(map(spec.show_number, alpha)) if isinstance(alpha, tuple) else spec.show_number(alpha)
    return f"K = {options['steps']}, α = {text}"


def share_of(values: Iterable[bool]) -> Share:
    """The share of values that are true."""
    counted = list(values)
    return share(sum(counted), len(counted))


def _records(
    index: StoreIndex, requests: Iterable[CellRequest], samples: Collection[int]
) -> Iterator[tuple[Cell, Record]]:
    """The records of these samples, each with its cell."""
    for request in requests:
        cell = index.find(request)
        if cell is not None:
            yield from ((cell, record) for record in index.records(cell) if record.sample in samples)


def _first_records(index: StoreIndex, requests: Sequence[CellRequest], samples: Collection[int]) -> list[Record]:
    """The records of the first cell. Clean predictions are the same in all cells."""
    return [record for _, record in _records(index, requests[:1], samples)]


def _only_g_wrong(cell: Cell, r: Record) -> bool:
    """Whether g is wrong on this sample, clean or attacked, where f is right."""
    if not right(r):
        return r.base_clean == r.label
    return not standing(r, cell.threat.ball) and r.base_attacked == r.label


def _broken_by_layer(attacked: Iterable[tuple[Cell, Record]]) -> dict[int, bool]:
    """For each sample, whether under one of the attacks only g is wrong."""
    broken = dict[int, bool]()
    for cell, r in attacked:
        broken[r.sample] = broken.get(r.sample, False) or _only_g_wrong(cell, r)
    return broken


def _robust_with_own_label(attacked: Iterable[tuple[Cell, Record]]) -> dict[int, bool]:
    """For each sample, whether it would withstand all attacks if g always kept f's label."""
    robust = dict[int, bool]()
    for cell, r in attacked:
        withstands = standing(r, cell.threat.ball) or _only_g_wrong(cell, r)
        robust[r.sample] = robust.get(r.sample, True) and withstands
    return robust
