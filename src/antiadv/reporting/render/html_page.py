"""A document as one page that opens offline: style, script, figures and images are all inside. Needs jinja2.

Every text is escaped by the template engine; what it lets through as it is, figures and images, is made here of escaped
parts. A policy in the page's head forbids it to fetch anything, so a mistake would show as a missing picture and not as
a call home.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from antiadv.core.errors import MissingExtra
from antiadv.core.printable import printable
from antiadv.reporting.document import Document
from antiadv.reporting.render.markdown_page import checks

if TYPE_CHECKING:
    from markupsafe import Markup


def html(document: Document, drawn: Mapping[str, str]) -> str:
    """`drawn` holds the panels of `figures.draw`, by name."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as missing:
        raise MissingExtra("jinja2", "report") from missing
    resources = Environment(
        loader=PackageLoader("antiadv.reporting", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda said: printable(said) if type(said) is str else said,  # what is escaped is of another type
    )
    resources.filters |= {"coded": coded, "breakable": breakable, "image": image, "checks": checks}
    resources.filters["drawn"] = lambda name: safe(drawn[name])
    return resources.get_template("report.html.j2").render(d=document)


def safe(element: str) -> Markup:
    """What was escaped when it was made."""
    from markupsafe import Markup

    return Markup(element)


def coded(said: str) -> Markup:
    """A sentence with its `names` set as they are typed."""
    from markupsafe import escape

    return safe(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(printable(said)))))


def breakable(said: str) -> Markup:
    """A name that may go on in a new line after its commas."""
    from markupsafe import escape

    return safe(",<wbr>".join(str(escape(part)) for part in printable(said).split(",")))


def image(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()
