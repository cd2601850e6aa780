"""Write a document to a folder: a page, the samples behind its numbers, and the same as files for other programs.

    report.html · report.md · report.json        the complete report
    samples.html · samples/KEY.js …              the samples behind its numbers, and their images
    tables/NAME.csv · tables/NAME.tex            each table
    figures/NAME-1.svg …                         each panel of each figure
    gallery/01-before.png …                      the images

Each file is written under a temporary name and then renamed. `report.json` lists all files. Files that an earlier
report lists and this one does not are removed. Nothing else is touched. Any web server can host the folder, and the
pages also open from a disk.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from antiadv.core.bounds import read_json
from antiadv.core.errors import BadInput
from antiadv.core.files import atomic_write
from antiadv.reporting.document import Document
from antiadv.reporting.figures import alone, draw
from antiadv.reporting.render.csv import table_as_csv
from antiadv.reporting.render.html import document_as_html, samples_as_html
from antiadv.reporting.render.latex import table_as_latex
from antiadv.reporting.render.markdown import document_as_markdown
from antiadv.reporting.render.names import pictures

_OURS = re.compile(r"(tables|figures|gallery|samples)/[\w-]+\.(csv|tex|svg|png|js)")


def write(document: Document, folder: Path) -> list[Path]:
    """Write the files. Return their paths, the page first."""
    made = files(document)
    try:
        for name in _listed(folder / "report.json") - made.keys():
            (folder / name).unlink(missing_ok=True)
        return [_put(folder / name, content) for name, content in made.items()]
    except OSError as error:
        raise BadInput(
            f"the report cannot be written to {folder} ({error.strerror or error}); name another folder with --out."
        ) from None


def _listed(path: Path) -> set[str]:
    """The files that an earlier report wrote into its folders; empty if its list cannot be read."""
    try:
        names = read_json(path)["files"]
        return {name for name in names if _OURS.fullmatch(name)}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return set()


def files(document: Document) -> dict[str, bytes]:
    """Return the names and contents of the files."""
    drawn = draw(document.figures)
    texts = {
        "report.html": document_as_html(document, drawn),
        "samples.html": samples_as_html(document.samples),
        "report.md": document_as_markdown(document),
    }
    for table in document.all_tables:
        if table.lines:
            texts |= {
                f"tables/{table.name}.csv": table_as_csv(table),
                f"tables/{table.name}.tex": table_as_latex(table),
            }
    texts |= {f"figures/{name}.svg": alone(element) for name, element in drawn.items()}
    images = {
        f"gallery/{name}": png
        for place, exhibit in enumerate(document.gallery.exhibits, 1)
        for name, png in pictures(exhibit, place).items()
    }
    images |= {f"samples/{name}": content for name, content in document.samples.files.items()}
    listed = {"files": ["report.json", *texts, *images]}
    texts["report.json"] = json.dumps(document.json() | listed, indent=1, ensure_ascii=False) + "\n"
    # bytes of a folder's name that are not UTF-8 become ?
    return {name: text.encode(errors="replace") for name, text in texts.items()} | images


def _put(path: Path, content: bytes) -> Path:
    with atomic_write(path) as part:
        part.write_bytes(content)
    return path
