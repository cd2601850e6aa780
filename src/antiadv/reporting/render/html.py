"""Tables and documents as HTML. A document becomes one page that opens offline, with everything inside it.

The page needs jinja2, which escapes every text. Figures and images are not escaped again: they are made here from
escaped parts. A content security policy forbids the page to fetch anything, so a mistake shows as a missing picture and
never as a request to the network.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from antiadv.core.errors import MissingExtra
from antiadv.core.printable import printable
from antiadv.data.pictures import data_uri
from antiadv.reporting.document import Document, Samples
from antiadv.reporting.render.names import checks
from antiadv.reporting.table import Table

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def table_as_html(table: Table, sentences: Sequence[str] = ()) -> str:
    """Render a table and a paragraph for each sentence, as a notebook shows them."""
    head = "".join(f"<th>{_escaped(name)}</th>" for name in table.head)
    body = "".join("<tr>" + "".join(f"<td>{_escaped(str(e))}</td>" for e in line) + "</tr>" for line in table.lines)
    below = "".join(f"<p>{_escaped(sentence)}</p>" for sentence in sentences)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


def _escaped(text: str) -> str:
    return html.escape(printable(text))


def document_as_html(document: Document, panels: Mapping[str, str]) -> str:
    """Render the page. `panels` are the drawings of `figures.draw`, by name."""
    environment = _environment()
    environment.filters["drawn"] = lambda name: safe(panels[name])
    return environment.get_template("report.html.j2").render(d=document)


def samples_as_html(samples: Samples) -> str:
    """Render the page that shows the samples. What it says of the cells is in it; the records are loaded by it."""
    index = json.dumps(samples.index, separators=(",", ":")).replace("<", "\\u003c")
    return _environment().get_template("samples.html.j2").render(index=safe(index))


def _environment() -> Environment:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as missing:
        raise MissingExtra("jinja2", "report") from missing
    environment = Environment(
        loader=PackageLoader("antiadv.reporting.render", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,  # escaped text has another type
    )
    environment.filters |= {"coded": coded, "breakable": breakable, "image": data_uri, "checks": checks}
    return environment


def safe(element: str) -> Markup:
    """Mark text as escaped already."""
    from markupsafe import Markup

    return Markup(element)


def coded(text: str) -> Markup:
    """A sentence with its `names` in the font of code."""
    from markupsafe import escape

    return safe(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(printable(text)))))


def breakable(text: str) -> Markup:
    """A name that may continue on a new line after a comma."""
    from markupsafe import escape

    return safe(",<wbr>".join(str(escape(part)) for part in printable(text).split(",")))
