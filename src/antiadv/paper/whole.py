"""The whole of a store as one report: the paper's tables and claims beside every cell, put together for a reader.

    whole(store)                   →  Document: `report.folder.write` makes files of it
    whole(store, names, images)       those tables alone; with a gallery of so many images, attacked here and now
    whole(store, sets=…)              kept images shown beside those of these data sets

A table of the paper is shown where at least one of its cells is stored, and says what is missing of it; those of which
nothing is stored are named. A store of somebody's own cells makes a report too, without a word of the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from antiadv import __version__, defences
from antiadv import paper as experiments
from antiadv.data import Dataset
from antiadv.evaluation.cell import Receipt
from antiadv.evaluation.store import Store
from antiadv.paper import layer_against_noise, steps_too_far
from antiadv.paper.agreement import agreement
from antiadv.paper.claims import Claim, claims
from antiadv.paper.filled_table import FilledTable, fill
from antiadv.paper.networks import Source
from antiadv.paper.store_index import StoreIndex
from antiadv.reporting import gallery, report_of
from antiadv.reporting.curves import by_access, by_cost, by_queries, by_radius
from antiadv.reporting.document import Claimed, Document, Shown, raised
from antiadv.reporting.figures import Figure, Panel, Series
from antiadv.reporting.grid import count, join
from antiadv.reporting.render.rows import NOT_ATTACKED
from antiadv.reporting.sheet import Entry, Sheet, code, measured, of_grid, ratio
from antiadv.reporting.sheet import count as counted
from antiadv.reporting.summary import by_defence, headline
from antiadv.reporting.table import Row, rows, searched
from antiadv.reporting.temperature import beside

LAYER, TITLE, OTHER = "anti_adversary", "What the anti-adversary layer is worth", "What the attacks found"
NUMBERS = ("n", "clean %", "robust %", "median queries", "gain", "× queries")
CELLS = ("data", "model", "defence", "attack", "threat", "precision", "seed", *NUMBERS)
SOURCES = (
    *("cell", "command", "weights", "images", "seed", "precision", "agreement %", "samples", "forward", "backward"),
    "judge's queries",
)
VERDICTS = {  # what is said of one claim, and of several
    "holds": ("holds", "hold"),
    "holds so far": ("holds so far", "hold so far"),
    "holds partly": ("holds partly", "hold partly"),
    "does not hold so far": ("does not hold so far", "do not hold so far"),
    "does not hold": ("does not hold", "do not hold"),
    "not measured yet": ("is not measured yet", "are not measured yet"),
}
DRAWN = ("clean", "Square", "AA", "adaptive")  # of the ablations


def build_document(
    store: Store | str | Path,
    names: Sequence[str] = (),
    images: int = 0,
    source: Source | None = None,
    sets: Sequence[Dataset] = (),
) -> Document:
    source = Source() if source is None else source
    facts = store if isinstance(store, Store) else Store(store)
    found = rows(facts)
    made, shelf = report_of(found, beside(facts.root)), StoreIndex(facts)
    receipts = [facts.receipts(row.cell) for row in found]
    asked = {name: fill(experiments.find(name).layout(source), shelf) for name in names or experiments.EXPERIMENTS}
    tables = {name: filled for name, filled in asked.items() if filled.used}
    checked = claims(shelf, source)
    checked = checked if any(claim.measured for claim in checked) else []
    return Document(
        title=TITLE if any(row.cell.defence.startswith(LAYER) for row in found) else OTHER,
        facts=(("Store", str(facts.root)), *_facts(found, receipts)),
        summary=tuple(_summary(headline(made.levels), checked, len(made.flags))),
        verdict=tuple(made.verdict),
        confidence=tuple(map(str, made.confidence)),
        defences=by_defence(made.levels),
        claims=tuple(map(_claimed, checked)),
        tables=(*(_shown(name, filled) for name, filled in tables.items()), *_behind(shelf, source, names)),
        absent=tuple(_absent(asked)) if tables or names else (),
        figures=(*_ablations(tables), *by_access(made.levels), *by_queries(found), *by_radius(found), *by_cost(found)),
        gallery=gallery.made(images) if images else gallery.kept(facts, found, sets),
        flags=raised(made.flags),
        cells=_cells(found),
        sources=_sources(found, receipts),
    )


def _summary(gains: Sequence[str], checked: Sequence[Claim], flags: int) -> Iterator[str]:
    """The verdict first."""
    yield from gains
    if checked:
        counts = [(sum(c.verdict == verdict for c in checked), *words) for verdict, words in VERDICTS.items()]
        said = [f"{n} {one if n == 1 else many}" for n, one, many in counts if n]
        yield f"Of the paper's {len(checked)} claims {join(said)}."
    if flags:
        yield f"{count(flags, 'warning sign')} {'was' if flags == 1 else 'were'} raised; each says where to look."


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


# ---------------------------------------------------------------- the paper


def _claimed(claim: Claim) -> Claimed:
    passed, failed = (tuple(str(k) for k in claim.measured if k.passes == good) for good in (True, False))
    missing = tuple(str(k) for k in claim.checks if k.found is None)
    why = claim.why.replace("*", "") if failed else ""
    told = claim.name, claim.verdict, f"The paper: {claim.paper}", claim.rule
    return Claimed(*told, passed, failed, missing, claim.settled, why)


def _shown(name: str, filled: FilledTable) -> Shown:
    grid = filled.grid()
    said = (*agreement(filled), *grid.sentences)
    keys = tuple(cell.key for cell in filled.used)
    missing = tuple(str(ask) for ask in filled.missing)
    return Shown(of_grid(name, grid), f"antiadv reproduce {name}", said, keys, missing)


def _behind(shelf: StoreIndex, source: Source, names: Sequence[str]) -> Iterator[Shown]:
    """Beside the whole only: they explain claims, and are made of tables' cells."""
    for name, part in (("behind", steps_too_far), ("noise", layer_against_noise)):
        grid, used = part.grid(shelf, source)
        if grid.lines and not names:
            yield Shown(of_grid(name, grid), "antiadv report", grid.sentences, tuple(cell.key for cell in used), ())


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
        said = [(i, number.paper) for i, number in at if number.paper is not None]
        if said and heading == "AA":
            xs, ys = tuple(i for i, _ in said), tuple(p for _, p in said)
            series.append(Series(f"{heading}, the paper's", xs, ys, kind="marks", mark="o", hue=hue))
    if not series:
        return None
    symbol = settings[0][0].partition(" = ")[0]
    ticks = tuple((float(i), label.partition(" = ")[2]) for i, (label, _) in enumerate(settings))
    return Panel(filled.layout.title, symbol, "accuracy, %", tuple(series), ticks=ticks)


# ---------------------------------------------------------------- the store


def _facts(found: Sequence[Row], receipts: Sequence[Sequence[Receipt]]) -> Iterator[tuple[str, str]]:
    yield "Cells", f"{len(found):,}"
    yield "Records, one for each sample of a cell", f"{sum(len(row.records) for row in found):,}"
    yield "Queries asked by the attacks", f"{sum(r.queries for row in found for r in row.records):,}"
    yield "Images sent by the judge", _looked([receipt for each in receipts for receipt in each])
    yield "Data", _several(row.data for row in found)
    yield "Networks", f"{len({row.model for row in found})}"
    yield "Defences", f"{len({row.cell.defence for row in found} - {defences.BARE})}"
    yield "Searched in; judged in float32", _several(row.cell.precision for row in found)
    yield "Run on", _several(receipt.device for each in receipts for receipt in each)
    yield "Run with", _several(_versions(receipt) for each in receipts for receipt in each)
    yield "Rendered with", f"antiadv {__version__}"


def _looked(receipts: Sequence[Receipt]) -> str:
    known = [r.judge_queries for r in receipts if r.judge_queries is not None]
    lost = len(receipts) - len(known)
    more = f" (of {len(known):,} shards; {lost:,} older ones did not count them)" if lost else ""
    return f"{sum(known):,}{more}" if known else "not counted when these were run"


def _several(said: Iterable[str]) -> str:
    return ", ".join(sorted(set(said)))


def _versions(receipt: Receipt) -> str:
    return " ".join(f"{name} {version}" for name, version in receipt.versions.items())


def _cells(found: Sequence[Row]) -> Sheet:
    lines = tuple(
        (
            Entry(row.data),
            code(row.model),
            code(row.defence),
            code(row.cell.attack, link=f"cell-{row.cell.key}"),
            Entry(str(row.cell.threat)),
            Entry(row.cell.precision),
            counted(row.cell.seed),
            counted(row.clean.n),
            measured(row.clean),
            Entry(NOT_ATTACKED) if row.robust is None else measured(row.robust),
            counted(row.queries),
            measured(row.gain, "" if row.gain is None else f" p {row.gain.p:.2g}"),
            ratio(row.ratio),
        )
        for row in found
    )
    return Sheet("cells", "Every cell", CELLS, lines, labels=6, pin=1)


def _sources(found: Sequence[Row], receipts: Sequence[Sequence[Receipt]]) -> Sheet:
    lines = tuple(_made(row, each) for row, each in zip(found, receipts, strict=True))
    return Sheet("sources", "How each was made", (*SOURCES, "device", "versions", "revision"), lines)


def _made(row: Row, receipts: Sequence[Receipt]) -> tuple[Entry, ...]:
    cell, least = row.cell, min(r.agreement for r in receipts)
    return (
        code(cell.key, place=f"cell-{cell.key}"),
        code(cell.command) if cell.command else Entry("in Python, of what is in hand"),
        *(code(digest.removeprefix("sha256:")[:12]) for digest in (cell.weights, cell.images)),
        counted(cell.seed),
        Entry(cell.precision),
        Entry(f"{100 * least:.2f}", round(100 * least, 4)),
        counted(len(row.records)),
        counted(sum(r.forwards for r in receipts)),
        counted(sum(r.backwards for r in receipts)),
        counted(None if None in (seen := [r.judge_queries for r in receipts]) else sum(n or 0 for n in seen)),
        Entry(_several(r.device for r in receipts)),
        Entry(_several(_versions(r) for r in receipts)),
        Entry(_several(r.revision[:13] for r in receipts)),
    )
