"""Tables and documents as Markdown. Names may come from a stranger's store, so every text is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from antiadv.core.printable import in_markdown, in_table
from antiadv.reporting.document import Document, Exhibit
from antiadv.reporting.render.names import checks, pictures
from antiadv.reporting.table import Entry, Table, text_table


def table_as_markdown(table: Table, trusted: bool = False) -> str:
    """Render a table. `trusted` keeps links and HTML: only for texts that this project wrote itself."""

    def text(cell: str) -> str:
        return cell.replace("|", "\\|") if trusted else in_table(cell)

    lines = [table.head, ("---",) * len(table.head), *(tuple(map(_marked, line)) for line in table.lines)]
    return "".join("| " + " | ".join(map(text, line)) + " |\n" for line in lines)


def _marked(entry: Entry) -> str:
    return f"`{entry}`" if entry.code and entry.text else str(entry)


def document_as_markdown(document: Document) -> str:
    """Render the same parts in the same order as the HTML page. Figures and images are files next to it."""
    return "\n".join(_parts(document)).rstrip() + "\n"


def _parts(d: Document) -> Iterator[str]:
    yield f"# {d.title}\n"
    yield _listed(d.summary)
    yield "".join(f"- {name}: {in_markdown(text)}\n" for name, text in d.facts)
    yield _listed(d.absent)
    if d.claims:
        claims = [(c.name, f"**{c.verdict}**", checks(c)) for c in d.claims]
        yield f"## Claims\n\n{table_as_markdown(text_table(('claim', 'verdict', 'checks'), claims))}"
    if d.defences.lines:
        yield f"## Gains\n\n{d.defences.title}.\n\n{table_as_markdown(d.defences)}"
        yield _listed(d.verdict)
        yield _listed(d.confidence)
    if d.tables:
        yield "## Tables\n"
    for shown in d.tables:
        yield f"### {shown.table.title}\n\n`{shown.command}`\n\n{table_as_markdown(shown.table)}"
        yield _listed(shown.table.sentences)
    yield from _pictures(d)
    if d.flags:
        yield "## Flags\n"
    for part in d.flags:
        flag = part.explained
        yield f"### `{part.name}`\n\nRaised if {flag.raised}\n\n{flag.means} {flag.todo}\n"
        yield _listed(part.sentences)
    yield f"## {d.cells.title}\n\n{table_as_markdown(d.cells)}"
    yield f"## {d.sources.title}\n\n{table_as_markdown(d.sources)}"


def _pictures(d: Document) -> Iterator[str]:
    if d.figures:
        yield "## Figures\n"
    for figure in d.figures:
        yield f"### {in_markdown(figure.title)}\n\n{in_markdown(figure.caption)}\n"
        panels = zip(figure.panels, figure.places, strict=True)
        yield "".join(f"![{in_markdown(panel.title)}](figures/{name}.svg)\n" for panel, name in panels)
    if d.gallery.about:
        yield f"## Gallery\n\n{in_markdown(d.gallery.about)}\n"
    if d.gallery.exhibits:
        yield _gallery(d.gallery.exhibits)


def _listed(sentences: Sequence[str]) -> str:
    return "".join(f"- {in_markdown(sentence)}\n" for sentence in sentences)


def _gallery(exhibits: Sequence[Exhibit]) -> str:
    classifiers = chain.from_iterable((f"{name} before", f"{name} after") for name in exhibits[0].answers)
    lines = []
    for place, e in enumerate(exhibits, 1):
        images = [f"![{name}](gallery/{name})" for name in pictures(e, place)]
        texts = [f"{e.sample}, {e.truth}", f"`{e.attack}` on {e.on}", *map(str, chain(*e.answers.values()))]
        lines.append([*images, *map(in_markdown, texts)])
    head = ["image", "change, magnified", "attacked", "sample", "attack", *classifiers]
    return table_as_markdown(text_table(head, lines), trusted=True)  # the links are ours, the texts are escaped
