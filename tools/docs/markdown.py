"""Pieces of Markdown that several pages share: templates, tables, wrapped paragraphs, cells of tables."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from antiadv.reporting.render.markdown import table_as_markdown
from antiadv.reporting.table import text_table

TEMPLATES = Path(__file__).parent / "templates"
WIDTH = 120
PROGRAMS = {  # how older files name a program, and how it is called now
    "python benchmarks/parity.py ": "python -m benchmarks.parity ",
    "python benchmarks/speed.py ": "python -m benchmarks.speed ",
    "scripts/measure_confidence.py ": "python -m tools.measure_confidence ",
}


def render(template: str, **places: object) -> str:
    """Fill the places of `templates/TEMPLATE.md`. The result ends in exactly one newline."""
    text = (TEMPLATES / f"{template}.md").read_text().format(**places)
    return text.rstrip("\n") + "\n"


def render_wrapped(template: str, **places: object) -> str:
    """Fill a template and wrap its paragraphs, for prose whose length depends on what is filled in.

    Tables keep their lines.
    """
    paragraphs = render(template, **places).rstrip("\n").split("\n\n")
    return "\n\n".join(part if part.startswith("|") else wrap(part) for part in map(str.strip, paragraphs)) + "\n"


def wrap(text: str, indent: str = "") -> str:
    """Wrap one paragraph. `indent` begins every line but the first, as a list item needs it."""
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Return a table with one line per row. The keys of the first row are the headings."""
    names = list(rows[0])
    lines = [[_cell(name, row[name]) for name in names] for row in rows]
    return table_as_markdown(text_table(names, lines), trusted=True)


def _cell(heading: str, text: str) -> str:
    return f"`{text}`" if heading in ("name", "options") and text else text


def not_run_yet(names: Sequence[str]) -> list[str]:
    """Return a paragraph that names what is not stored, or nothing if all is."""
    text = f"Not run yet: {', '.join(f'`{name}`' for name in names)}."
    return [wrap(text) + "\n"] if names else []


def current_command(stored: str) -> str:
    """Return a stored command as it is typed now."""
    for old, new in PROGRAMS.items():
        if stored.startswith(old):
            return new + stored.removeprefix(old)
    return stored


def yes_or_no(met: bool) -> str:
    return "yes" if met else "**no**"


def median_and_range(spread: Mapping[str, float], scale: float = 1) -> str:
    """Return "median [low, high]", with one decimal for percentages (a scale above 1) and two otherwise."""
    form = ".1f" if scale > 1 else ".2f"
    return "{} [{}, {}]".format(*(f"{scale * spread[key]:{form}}" for key in ("median", "low", "high")))


def percent_with_interval(share: Mapping[str, float]) -> str:
    return f"{100 * share['value']:.1f} [{100 * share['low']:.1f}, {100 * share['high']:.1f}]"
