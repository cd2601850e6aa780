"""Behind the gains: what the layer does to a network's answers, and where one of its steps goes too far.

    confidence       mean probability of the predicted class on clean images, of f and of g: a gain needs g surer than f
    labels differ    clean images to which g gives another label than f
    f right          samples that fall though f still gets the attacked image right: x + γ has left the class, not x
    AA gain, f's     the gain under AutoAttack had those samples stood: had g always f's label

One line for every network and setting of tables 3, 5 and 6 and of the figures whose cells are stored, over the samples
on which f and g both met all of AutoAttack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from statistics import fmean

from antiadv import defences
from antiadv.core import spec
from antiadv.evaluation.cell import Cell, Record
from antiadv.paper import figure_3, figure_4, figure_5, table_3, table_5, table_6
from antiadv.paper.fill import StoreIndex, compare, labels, worst
from antiadv.paper.layout import Ask, Column, Line
from antiadv.paper.networks import Source
from antiadv.reporting.measures import Share, difference, right, share, standing
from antiadv.reporting.select import searched
from antiadv.reporting.table import Number, NumberLine, Table, number_table

TITLE = "Behind the gains: confidence, and steps that go too far"
LABELS = ("data", "network", "setting", "confidence, f → g")
HEADINGS = ("labels differ", "f right", "AA gain", "AA gain, f's", "adaptive gain")
TABLES = (table_3, table_5, table_6, figure_3, figure_4, figure_5)
NOTES = (
    "A gain follows confidence: where a short step or a single one leaves g hardly surer than f, its scores still show "
    "the way; from K = 3 on more steps still make g surer, and gain little.",
    "A step may go too far: γ moves every pixel by α at a time, and where f bends within that, x + γ leaves the class "
    "that x is in. g then errs where f is right: a second way in for an attacker, adaptive or not, and the adaptive "
    "gain falls below zero. The paper's lower bound takes g's label for f's. A single step of 0.15 may do it, and two "
    "of 0.3; a second step of 0.15 mostly brings x + γ back. MART and ImageNet-Pre bend most, and lose a little with "
    "two steps of 0.15 too.",
)


def table(shelf: StoreIndex, source: Source | None = None) -> tuple[Table, list[Cell]]:
    """The table, and the cells it is made of; no lines where nothing is stored."""
    made = [(_line(shelf, line), line) for line in _lines(Source() if source is None else source)]
    lines = [(found, line) for found, line in made if found is not None]
    used = {cell.key: cell for _, line in lines for ask in _asks(line) if (cell := shelf.find(ask)) is not None}
    said = (*NOTES, searched(used.values())) if used else NOTES
    numbers = [found for found, _ in lines]
    return number_table("behind", TITLE, LABELS, HEADINGS, numbers, said), [*used.values()]


def _lines(source: Source) -> Iterator[Line]:
    """Each network behind each setting, once."""
    seen = set()
    for table in TABLES:
        for line in table.layout(source).lines:
            if line.defence != defences.BARE and (line.network.name, line.defence) not in seen:
                seen.add((line.network.name, line.defence))
                yield line


def _asks(line: Line) -> Iterator[Ask]:
    for heading in ("AA", "adaptive"):
        gain = _gain(line, heading)
        yield from (*line.asks(gain), *line.against(gain))


def _gain(line: Line, heading: str) -> Column:
    return next(c for c in line.columns if c.heading == heading).as_gain


def _line(shelf: StoreIndex, line: Line) -> NumberLine | None:
    aa, adaptive = _gain(line, "AA"), _gain(line, "adaptive")
    bare, behind = (worst(shelf, asks, aa) for asks in (line.against(aa), line.asks(aa)))
    if bare is None or behind is None or not (both := bare.keys() & behind.keys()):
        return None
    f, g = ([r for _, r in _each(shelf, asks[:1], both)] for asks in (line.against(aa), line.asks(aa)))
    met = list(_each(shelf, line.asks(aa), both))
    numbers = {
        "labels differ": Number(share_of(r.clean != r.base_clean for r in g)),
        "f right": Number(share_of(_too_far(met).values())),
        "AA gain": Number(difference(bare, behind), signed=True),
        "AA gain, f's": Number(difference(bare, _kept(met)), signed=True),
        "adaptive gain": Number(compare(shelf, line.against(adaptive), line.asks(adaptive), adaptive), signed=True),
    }
    data, network, _ = labels(line)
    sure = " → ".join(f"{fmean(r.clean_confidence for r in records):.2f}" for records in (f, g))
    return (data, network, setting(line.defence), sure), numbers


def setting(defence: str) -> str:
    """
    >>> setting("anti_adversary:steps=1,step_size=10/255")
    'K = 1, α = 10/255'
    """
    options = spec.read(defence, defences.DEFENCES, "defence").options
    alpha = options["step_size"]
    said = "+".join(map(spec.show_number, alpha)) if isinstance(alpha, tuple) else spec.show_number(alpha)
    return f"K = {options['steps']}, α = {said}"


def share_of(found: Iterable[bool]) -> Share:
    """How many of these."""
    every = list(found)
    return share(sum(every), len(every))


def _each(shelf: StoreIndex, asks: Iterable[Ask], samples: Collection[int]) -> Iterator[tuple[Cell, Record]]:
    for ask in asks:
        cell = shelf.find(ask)
        if cell is not None:
            yield from ((cell, record) for record in shelf.records(cell) if record.sample in samples)


def _beyond(cell: Cell, r: Record) -> bool:
    """Whether this sample is lost by the layer alone: g wrong, f right."""
    if not right(r):
        return r.base_clean == r.label
    return not standing(r, cell.threat.ball) and r.base_attacked == r.label


def _too_far(met: Iterable[tuple[Cell, Record]]) -> dict[int, bool]:
    """Of each sample, whether one of these attacks finds it lost so."""
    found = dict[int, bool]()
    for cell, r in met:
        found[r.sample] = found.get(r.sample, False) or _beyond(cell, r)
    return found


def _kept(met: Iterable[tuple[Cell, Record]]) -> dict[int, bool]:
    """Of each sample, whether it stands against all of them, had those stood that are lost so."""
    found = dict[int, bool]()
    for cell, r in met:
        found[r.sample] = found.get(r.sample, True) and (standing(r, cell.threat.ball) or _beyond(cell, r))
    return found
