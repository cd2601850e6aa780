"""The paper's part of a report: its claims, tables and figures, as one section.

A table of the paper is shown if at least one of its cells is stored, and says what is missing. Tables without a stored
cell are named. For a store without any cell of the paper the section is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from antiadv import defences
from antiadv import paper as experiments
from antiadv.evaluation.store import Store
from antiadv.paper import layer_against_noise, steps_too_far
from antiadv.paper.agreement import agreement
from antiadv.paper.claims import Claim, claims
from antiadv.paper.filled_table import FilledTable, fill
from antiadv.paper.networks import Source
from antiadv.paper.store_index import StoreIndex
from antiadv.reporting.document import Claimed, Section, Shown
from antiadv.reporting.figures import Figure, Panel, Series
from antiadv.reporting.select import searched
from antiadv.reporting.wording import join

VERDICTS = {  # the wording for one claim, and for several
    "holds": ("holds", "hold"),
    "holds so far": ("holds so far", "hold so far"),
    "holds partly": ("holds partly", "hold partly"),
    "does not hold so far": ("does not hold so far", "do not hold so far"),
    "does not hold": ("does not hold", "do not hold"),
    "not measured yet": ("is not measured yet", "are not measured yet"),
}
DRAWN = ("clean", "Square", "AA", "adaptive")  # columns of the ablations that are drawn


def paper_section(store: Store | str | Path, names: Sequence[str] = (), source: Source | None = None) -> Section:
    """Make the section of these tables, or of all of them."""
    source = Source() if source is None else source
    index = StoreIndex(Store.of(store))
    asked = {name: fill(experiments.find(name).layout(source), index) for name in names or experiments.EXPERIMENTS}
    tables = {name: filled for name, filled in asked.items() if filled.used}
    checked = claims(index, source)
    checked = checked if any(claim.measured for claim in checked) else []
    extra = () if names else _explaining(index, source)
    return Section(
        sentences=tuple(claims_sentence(checked)),
        claims=tuple(map(_claimed, checked)),
        tables=(*(_shown(name, filled) for name, filled in tables.items()), *extra),
        figures=tuple(_ablations(tables)),
        absent=tuple(_absent(asked)) if tables or names else (),
    )


def claims_sentence(checked: Sequence[Claim]) -> Iterator[str]:
    """Count the claims by their verdict."""
    if checked:
        counts = [(sum(c.verdict == verdict for c in checked), *words) for verdict, words in VERDICTS.items()]
        parts = [f"{n} {one if n == 1 else many}" for n, one, many in counts if n]
        yield f"Of the paper's {len(checked)} claims {join(parts)}."


def _absent(asked: dict[str, FilledTable]) -> Iterator[str]:
    nothing = [f"`{name}`" for name, filled in asked.items() if not filled.used]
    if nothing:
        yield f"Nothing is stored of {join(nothing)}; `antiadv reproduce NAME` runs it."
    begun = {f"`{name}`": filled for name, filled in asked.items() if filled.used}
    missing = [f"{len(filled.missing)} of {name}" for name, filled in begun.items() if filled.missing]
    short = [f"{len(filled.short)} of {name}" for name, filled in begun.items() if filled.short]
    for what, some in (("not stored", missing), ("stored with fewer samples than asked for", short)):
        if some:
            yield f"Cells that are {what}: {join(some)}."


def _claimed(claim: Claim) -> Claimed:
    passed, failed = (tuple(str(k) for k in claim.measured if k.passes == good) for good in (True, False))
    missing = tuple(str(k) for k in claim.checks if k.found is None)
    why = claim.why.replace("*", "") if failed else ""
    words = claim.name, claim.verdict, f"The paper: {claim.paper}", claim.rule
    behind = {str(check): check.behind for check in claim.measured if check.behind}
    return Claimed(*words, passed, failed, missing, claim.settled, why, behind)


def _shown(name: str, filled: FilledTable) -> Shown:
    table = filled.table(name)
    table = replace(table, sentences=(*agreement(filled), *table.sentences))
    keys = tuple(cell.key for cell in filled.used)
    return Shown(table, f"antiadv reproduce {name}", keys, tuple(str(ask) for ask in filled.missing))


def _explaining(index: StoreIndex, source: Source) -> Iterator[Shown]:
    """Tables that explain claims. They are made of cells of the other tables."""
    for part in (steps_too_far, layer_against_noise):
        table, used = part.table(index, source)
        if table.lines:
            yield Shown(table, "antiadv report", tuple(cell.key for cell in used))


def _ablations(tables: dict[str, FilledTable]) -> Iterator[Figure]:
    """The paper's figures: accuracy against α, and against K."""
    drawn = {name: filled for name, filled in tables.items() if name.startswith("figure-")}
    panels = [panel for filled in drawn.values() if (panel := _ablation(filled)) is not None]
    caption = (
        "With 95 % intervals; dotted, the bare network; rings, what is known of the paper's figures. AA is the worst "
        "case of AutoAttack's four, adaptive that of these and of the attack that knows the defence."
    )
    if panels:
        cells = {cell.key: cell for filled in drawn.values() for cell in filled.used}
        caption += f" {searched(cells.values())}"
        title = "Ablations: the step size α and the number of steps K"
        yield Figure("ablations", title, caption, tuple(panels), (*cells,))


def _ablation(filled: FilledTable) -> Panel | None:
    """The settings in the order of the paper, at equal distances: its two smallest α all but touch."""
    lines = list(zip(filled.layout.lines, filled.numbers, strict=True))
    bare = next((numbers for line, numbers in lines if line.defence == defences.BARE), {})
    settings = [(line.label, numbers) for line, numbers in lines if line.defence != defences.BARE]
    series = []
    for hue, heading in enumerate(DRAWN):
        at = [(float(i), n[heading]) for i, (_, n) in enumerate(settings) if heading in n]
        found = [(i, number.ours) for i, number in at if number.ours is not None]
        if not found:
            continue
        value, low, high = (tuple(100 * getattr(ours, k) for _, ours in found) for k in ("value", "low", "high"))
        series.append(Series(heading, tuple(i for i, _ in found), value, low, high, "dots", hue=hue))
        before = bare.get(heading)
        if before is not None and before.ours is not None:
            series.append(Series(f"{heading}, bare", (), (100 * before.ours.value,), kind="level", hue=hue))
        published = [(i, number.paper) for i, number in at if number.paper is not None]
        if published and heading == "AA":
            xs, ys = tuple(i for i, _ in published), tuple(p for _, p in published)
            series.append(Series(f"{heading}, the paper's", xs, ys, kind="marks", mark="o", hue=hue))
    if not series:
        return None
    symbol = settings[0][0].partition(" = ")[0]
    ticks = tuple((float(i), label.partition(" = ")[2]) for i, (label, _) in enumerate(settings))
    return Panel(filled.layout.title, symbol, "accuracy, %", tuple(series), ticks=ticks)
