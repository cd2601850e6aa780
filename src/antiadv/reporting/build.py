"""Build the complete report of a store: every cell, the gains, figures, flags and images.

build_document(store)                        →  Document, which `folder.write` writes to files
build_document(store, sections=[…])             with what other packages add, such as the paper's tables
build_document(store, images=8)                 with a gallery of images that are attacked now
build_document(store, sets=[…])                 with stored attacked images next to the clean ones of these data sets
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from antiadv import __version__, defences
from antiadv.data import Dataset
from antiadv.evaluation.cell import Receipt
from antiadv.evaluation.store import Store
from antiadv.reporting import gallery, report_of
from antiadv.reporting.curves import by_access, by_cost, by_queries, by_radius
from antiadv.reporting.document import Document, Section, raised
from antiadv.reporting.floor import floors
from antiadv.reporting.rows import NOT_ATTACKED, Row, rows
from antiadv.reporting.samples import collected
from antiadv.reporting.summary import by_defence, headline
from antiadv.reporting.table import Entry, Table, code, counted, measured, ratio, samples_of, with_samples
from antiadv.reporting.temperature import of_store
from antiadv.reporting.wording import count

LAYER, TITLE, OTHER = "anti_adversary", "What the anti-adversary layer is worth", "What the attacks found"
GAIN = "A gain is robust accuracy with the defence minus robust accuracy without it, on the same images."
NUMBERS = ("n", "clean %", "robust %", "median queries", "gain", "× queries")
CELLS = ("data", "model", "defence", "attack", "threat", "precision", "seed", *NUMBERS)
RUN = ("cell", "command", "weights", "images", "seed", "precision", "agreement %", "samples")
SOURCES = (*RUN, "forward", "backward", "judge's queries", "device", "versions", "revision")


def build_document(
    store: Store | str | Path,
    sections: Sequence[Section] = (),
    images: int = 0,
    sets: Sequence[Dataset] = (),
) -> Document:
    facts = Store.of(store)
    cells = rows(facts)
    made = report_of(cells, of_store(facts.root))
    receipts = [facts.receipts(row.cell) for row in cells]
    figures = (*by_access(made.levels), *by_queries(cells), *by_radius(cells), *by_cost(cells))
    figures, gains = (*figures, *floors(facts, cells)), headline(made.levels)
    more = [*([GAIN] if gains else []), *(text for s in sections for text in s.sentences)]
    return Document(
        title=TITLE if any(row.cell.defence.startswith(LAYER) for row in cells) else OTHER,
        facts=(("Store", str(facts.root)), *_facts(cells, receipts)),
        summary=(*gains, *more, *_flagged(len(made.flags))),
        verdict=tuple(made.verdict),
        confidence=tuple(map(str, made.confidence)),
        defences=by_defence(made.levels),
        claims=tuple(claim for s in sections for claim in s.claims),
        tables=tuple(table for s in sections for table in s.tables),
        absent=tuple(text for s in sections for text in s.absent),
        figures=(*(figure for s in sections for figure in s.figures), *figures),
        gallery=gallery.made(images) if images else gallery.kept(facts, cells, sets),
        flags=raised(made.flags),
        cells=_cells(cells),
        sources=_sources(cells, receipts),
        samples=collected(facts, cells, sets),
    )


def _flagged(flags: int) -> Iterator[str]:
    if flags:
        verb = "was" if flags == 1 else "were"
        yield f"{count(flags, 'flag')} {verb} raised. The section “Flags” explains {'it' if flags == 1 else 'them'}."


# ---------------------------------------------------------------- facts


def _facts(cells: Sequence[Row], receipts: Sequence[Sequence[Receipt]]) -> Iterator[tuple[str, str]]:
    yield "Cells", f"{len(cells):,}"
    yield "Records, one for each sample of a cell", f"{sum(len(row.records) for row in cells):,}"
    yield "Queries asked by the attacks", f"{sum(r.queries for row in cells for r in row.records):,}"
    yield "Images sent by the judge", judged_images([receipt for each in receipts for receipt in each])
    yield "Data", _listed(row.data for row in cells)
    yield "Networks", f"{len({row.model for row in cells})}"
    yield "Defences", f"{len({row.cell.defence for row in cells} - {defences.BARE})}"
    yield "Searched in; judged in float32", _listed(row.cell.precision for row in cells)
    yield "Run on", _listed(receipt.device for each in receipts for receipt in each)
    yield "Run with", _listed(_versions(receipt) for each in receipts for receipt in each)
    yield "Rendered with", f"antiadv {__version__}"


def judged_images(receipts: Sequence[Receipt]) -> str:
    """How many images the judge sent, in words."""
    known = [r.judge_queries for r in receipts if r.judge_queries is not None]
    unknown = len(receipts) - len(known)
    more = f" (of {len(known):,} shards; {unknown:,} older ones did not count them)" if unknown else ""
    return f"{sum(known):,}{more}" if known else "not counted when these were run"


def judge_sentence(facts: Store, rows: Sequence[Row]) -> str:
    """The judge's own looks, which no row counts."""
    receipts = [receipt for row in rows for receipt in facts.receipts(row.cell)]
    return f"Images sent by the judge, besides the queries: {judged_images(receipts)}."


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(sorted(set(texts)))


def _versions(receipt: Receipt) -> str:
    return " ".join(f"{name} {version}" for name, version in receipt.versions.items())


# ---------------------------------------------------------------- tables of all cells


def _cells(cells: Sequence[Row]) -> Table:
    lines = tuple(
        (
            Entry(row.data),
            code(row.model),
            code(row.defence),
            code(row.cell.attack, link=f"cell-{row.cell.key}"),
            Entry(str(row.cell.threat)),
            Entry(row.cell.precision),
            counted(row.cell.seed),
            *_numbers(row),
        )
        for row in cells
    )
    return Table("cells", "Every cell", CELLS, lines, labels=6, pin=1)


def _numbers(row: Row) -> Iterator[Entry]:
    """The numbers of a row, each with its samples."""
    mine, both = samples_of([row.key]), samples_of([row.key], [row.bare_key])
    robust = Entry(NOT_ATTACKED) if row.robust is None else measured(row.robust)
    gain = measured(row.gain, "" if row.gain is None else f" p {row.gain.p:.2g}")
    yield with_samples(counted(row.clean.n), mine)
    yield with_samples(measured(row.clean), samples_of([row.key], clean=True))
    yield from (with_samples(entry, mine) for entry in (robust, counted(row.queries)))
    yield from (with_samples(entry, both) for entry in (gain, ratio(row.ratio)))


def _sources(cells: Sequence[Row], receipts: Sequence[Sequence[Receipt]]) -> Table:
    lines = tuple(_source(row, each) for row, each in zip(cells, receipts, strict=True))
    return Table("sources", "How each was made", SOURCES, lines)


def _source(row: Row, receipts: Sequence[Receipt]) -> tuple[Entry, ...]:
    cell, agreement = row.cell, min(r.agreement for r in receipts)
    judged = [r.judge_queries for r in receipts if r.judge_queries is not None]
    return (
        code(cell.key, anchor=f"cell-{cell.key}"),
        code(cell.command) if cell.command else Entry("in Python, with a model or images in memory"),
        *(code(digest.removeprefix("sha256:")[:12]) for digest in (cell.weights, cell.images)),
        counted(cell.seed),
        Entry(cell.precision),
        Entry(f"{100 * agreement:.2f}", round(100 * agreement, 4)),
        with_samples(counted(len(row.records)), samples_of([row.key])),
        counted(sum(r.forwards for r in receipts)),
        counted(sum(r.backwards for r in receipts)),
        counted(sum(judged) if len(judged) == len(receipts) else None),
        Entry(_listed(r.device for r in receipts)),
        Entry(_listed(_versions(r) for r in receipts)),
        Entry(_listed(r.revision[:13] for r in receipts)),
    )
