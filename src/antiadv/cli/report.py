"""`antiadv report`: show what a store holds or one of the paper's tables, or write the complete report to a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from antiadv.cli import options, reproduce, show
from antiadv.core.errors import BadInput


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="table-1 … table-6, figure-3, figure-4, figure-5, text; or all. Default: everything stored."
        ),
    ] = None,
    store: options.StoreFolder = Path("results"),
    networks: options.Networks = "zoo",
    out: Annotated[
        Path | None, typer.Option("--out", help="Write a page for the browser, Markdown, CSV, LaTeX, JSON here.")
    ] = None,
    gallery: Annotated[
        int, typer.Option("--gallery", min=0, help="With --out: attack this many images now, and show them.")
    ] = 0,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="With --out: clean images for the stored attacked ones, such as arrays:FILE; once for each set.",
        ),
    ] = None,
    json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show the results in a store.

    Prints accuracies with intervals, queries, gains with p-values, and the verdict. With the name of a table or
    figure, prints our numbers next to the paper's; --networks names the checkpoints that were used. With --out, writes
    the complete report to a folder. Its report.html opens in any browser, offline. Attacked images in the store are
    shown next to the clean images of published data sets, or of files that --data names. Nothing that the store names
    is loaded or run.
    """
    from antiadv import paper
    from antiadv.evaluation import Store
    from antiadv.reporting import report
    from antiadv.reporting.build import judge_sentence

    asked = list(paper.EXPERIMENTS) if names == ["all"] else list(dict.fromkeys(names or []))
    if out is not None:
        _write(store, asked, networks, out, gallery, data or [], json)
        return
    if gallery:
        raise BadInput("a gallery needs a folder to be written to; name one with --out.")
    if data:
        raise BadInput("--data names the images of a gallery, which needs a folder to be written to; add --out.")
    if asked:
        _show(store, asked, networks, json)
        return
    made = report(store)
    if json:
        show.print_json(made.json())
    else:
        show.print_rows(made.rows, [judge_sentence(Store(store), made.rows), *made.sentences])


def _show(store: Path, names: list[str], networks: str, json: bool) -> None:
    from antiadv import paper

    found = {name: paper.filled(name, store, networks=networks) for name in names}
    if json:
        show.print_json({"store": str(store), "experiments": reproduce.values(found)})
    else:
        reproduce.print_filled(found)


def _write(store: Path, names: list[str], networks: str, out: Path, images: int, data: list[str], json: bool) -> None:
    from antiadv.core.printable import printable
    from antiadv.data import load
    from antiadv.evaluation import Store
    from antiadv.paper.networks import Source
    from antiadv.paper.sections import paper_section
    from antiadv.reporting import folder
    from antiadv.reporting.build import build_document
    from antiadv.reporting.league_section import league_section

    opened = Store(store)
    sections = [league_section(opened), paper_section(opened, names, Source(networks))]
    made = build_document(opened, sections, images, [load(text) for text in data])
    files = folder.write(made, out)
    if json:
        show.print_json({"store": str(store), "files": [str(path) for path in files], **made.json()})
        return
    for sentence in (*made.summary, *made.absent):
        show.out().print(printable(sentence).replace("`", ""), soft_wrap=True)
    show.out().print(f"{len(files)} files are written; open {files[0]} in a browser.", soft_wrap=True)
