"""Read the numbers of a page with their context: tables, prose, and the fields of JSON files."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any  # what a JSON file holds

NUMBER = re.compile(r"(?<![\w.])(?<!\w-)[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?(?!\w|\.\d)")
RULE = re.compile(r"^\|[\s:|-]+\|$")  # below the headings of a table
SEPARATOR = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Table:
    """A table of a page. `title` is the heading above it."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass
class Page:
    """The numbers of one file. `prose` pairs each number with its line; `fields` counts the numbers of a JSON path."""

    name: str
    tables: list[Table] = field(default_factory=list)
    prose: list[tuple[str, str]] = field(default_factory=list)
    fields: dict[str, Counter[str]] = field(default_factory=dict)

    def all_numbers(self) -> Counter[str]:
        found = Counter(number for number, _ in self.prose)
        for values in self.fields.values():
            found += values
        for table in self.tables:
            for row in table.rows:
                found.update(number for cell in row for number in numbers(cell))
        return found


def numbers(text: str) -> list[str]:
    """Return the numbers of a text in order, without plus signs and separators of thousands."""
    return [found.replace(",", "").replace("−", "-").lstrip("+") for found in NUMBER.findall(text)]


def read_folder(folder: Path) -> list[Page]:
    """Read every Markdown, CSV and JSON file below the folder."""
    readers = {".md": read_markdown, ".csv": read_csv, ".json": read_json}
    paths = sorted(path for path in folder.rglob("*") if path.suffix in readers)
    return [readers[path.suffix](str(path.relative_to(folder)), path.read_text()) for path in paths]


def read_markdown(name: str, text: str) -> Page:
    page, lines, title, k = Page(name), text.splitlines(), "", 0
    while k < len(lines):
        line = lines[k].strip()
        if line.startswith("|") and k + 1 < len(lines) and RULE.match(lines[k + 1].strip()):
            end = next((i for i in range(k, len(lines)) if not lines[i].strip().startswith("|")), len(lines))
            page.tables.append(make_table(title, cells(line), map(cells, lines[k + 2 : end])))
            k = end
            continue
        if line.startswith("#"):
            title = line.lstrip("# ")
        page.prose += [(number, line) for number in numbers(line)]
        k += 1
    return page


def cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in SEPARATOR.split(line.strip().removeprefix("|").removesuffix("|")))


def read_csv(name: str, text: str) -> Page:
    headings, *rows = csv.reader(text.splitlines())
    return Page(name, tables=[make_table("", tuple(headings), map(tuple, rows))])


def make_table(title: str, headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    """Make a table whose rows all have as many cells as there are headings."""
    width = len(headings)
    return Table(title, headings, tuple((*row, *[""] * width)[:width] for row in rows))


def read_json(name: str, text: str) -> Page:
    page = Page(name)
    for path, number in leaves(json.loads(text), ""):
        page.fields.setdefault(path, Counter())[number] += 1
    return page


def leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield every number of a JSON value with its path. All items of a list have the path of the list."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, path)
    elif isinstance(value, str):
        yield from ((path, number) for number in numbers(value))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, repr(value)
