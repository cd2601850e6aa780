"""A document as Markdown: the same parts in the same order as the page, with figures and images as files beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from antiadv.core.printable import in_markdown, in_table
from antiadv.reporting.document import Claimed, Document, Exhibit


def markdown(document: Document) -> str:
    return "\n".join(_parts(document)).rstrip() + "\n"


def _parts(d: Document) -> Iterator[str]:
    yield f"# {d.title}\n"
    yield _listed(d.summary)
    yield "".join(f"- {name}: {in_markdown(said)}\n" for name, said in d.facts)
    yield _listed(d.absent)
    if d.claims:
        yield "## Claims\n"
        yield "| claim | verdict | checks |\n| --- | --- | --- |"
        yield "".join(f"| {c.name} | **{c.verdict}** | {checks(c)} |\n" for c in d.claims)
    if d.defences.lines:
        yield f"## Gains\n\n{d.defences.title}.\n\n{d.defences.markdown()}"
        yield _listed(d.verdict)
        yield _listed(d.confidence)
    if d.tables:
        yield "## Tables\n"
    for shown in d.tables:
        yield f"### {shown.sheet.title}\n\n`{shown.command}`\n\n{shown.sheet.markdown()}"
        yield _listed(shown.sentences)
    if d.figures:
        yield "## Figures\n"
    for figure in d.figures:
        yield f"### {in_markdown(figure.title)}\n\n{in_markdown(figure.caption)}\n"
        named = zip(figure.panels, figure.places, strict=True)
        yield "".join(f"![{in_markdown(panel.title)}](figures/{name}.svg)\n" for panel, name in named)
    if d.gallery.about:
        yield f"## Gallery\n\n{in_markdown(d.gallery.about)}\n"
    if d.gallery.exhibits:
        yield _gallery(d.gallery.exhibits)
    if d.flags:
        yield "## Warning signs\n"
    for part in d.flags:
        said = part.explained
        yield f"### `{part.name}`\n\nRaised if {said.raised}\n\n{said.means} {said.todo}\n"
        yield _listed(part.sentences)
    yield f"## {d.cells.title}\n\n{d.cells.markdown()}"
    yield f"## {d.sources.title}\n\n{d.sources.markdown()}"


def _listed(sentences: Sequence[str]) -> str:
    return "".join(f"- {in_markdown(sentence)}\n" for sentence in sentences)


def checks(claim: Claimed) -> str:
    """`7 of 9 pass (8 settled by their intervals), 2 not measured yet`"""
    done = len(claim.passed) + len(claim.failed)
    passed = [f"{len(claim.passed)} of {done} pass ({claim.settled} settled by their intervals)"] * bool(done)
    return ", ".join(passed + [f"{len(claim.missing)} not measured yet"] * bool(claim.missing))


def pictures(exhibit: Exhibit, place: int) -> dict[str, bytes]:
    """The names of an exhibit's files, and what is in them."""
    return {f"{place:02d}-{part}.png": getattr(exhibit, part) for part in ("before", "change", "after")}


def _gallery(exhibits: Sequence[Exhibit]) -> str:
    head = "| image | change, magnified | attacked | sample | attack |"
    who = list(exhibits[0].answers)
    lines = [head + "".join(f" {name} before | {name} after |" for name in who), "|" + " --- |" * (5 + 2 * len(who))]
    for place, e in enumerate(exhibits, 1):
        images = " | ".join(f"![{name}](gallery/{name})" for name in pictures(e, place))
        said = [f"{e.sample}, {e.truth}", f"`{e.attack}` on {e.on}", *map(str, chain(*e.answers.values()))]
        lines.append(f"| {images} | {' | '.join(map(in_table, said))} |")
    return "\n".join(lines) + "\n"
