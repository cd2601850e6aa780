"""Match pages, tables, rows and columns of two folders, and list the numbers that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from tools.compare_numbers.extract import Page, Table, numbers

T = TypeVar("T")
Kind = Literal["changed", "removed", "added", "moved"]
ALIKE = 0.5  # things without a namesake match if they share so much of their values


@dataclass(frozen=True)
class Difference:
    """`where` is the page, and within it the table, row, column or field; `what` are the numbers."""

    kind: Kind
    where: str
    what: str


def compare(before: Sequence[Page], after: Sequence[Page]) -> list[Difference]:
    """Return every number that changed, was removed, was added, or moved to another page."""
    old_items, new_items = ([Item(p.name, p.all_numbers(), p) for p in pages] for pages in (before, after))
    pairs, gone, new = pair_up(old_items, new_items)
    found = [difference for old, now in pairs for difference in compare_pages(old, now)]
    found += [Difference("removed", page.name, f"the page, {count(page)}") for page in gone if page.all_numbers()]
    found += [Difference("added", page.name, f"the page, {count(page)}") for page in new if page.all_numbers()]
    return mark_moved(found, after)


def count(page: Page) -> str:
    return f"{page.all_numbers().total()} numbers"


def compare_pages(before: Page, after: Page) -> Iterator[Difference]:
    def items(page: Page) -> list[Item[Table]]:
        return [Item((t.title, t.headings), Counter(n for r in t.rows for n in row_numbers(r)), t) for t in page.tables]

    pairs, gone, new = pair_up(items(before), items(after))
    for old, now in pairs:
        yield from compare_tables(after.name, old, now)
    for table in gone:
        yield from row_differences("removed", after.name, table, table.rows)
    for table in new:
        yield from row_differences("added", after.name, table, table.rows)
    yield from compare_prose(before, after)
    yield from compare_fields(before, after)


def compare_tables(page: str, before: Table, after: Table) -> Iterator[Difference]:
    """Compare the cells of matched rows and columns; rows and columns without a match are removed or added."""
    columns, gone, new = pair_up(column_items(before), column_items(after))
    yield from column_differences("removed", page, before, gone)
    yield from column_differences("added", page, after, new)
    rows, gone_rows, new_rows = pair_up(
        row_items(before, [i for i, _ in columns]), row_items(after, [j for _, j in columns])
    )
    for old, now in rows:
        for i, j in columns:
            if numbers(old[i]) != numbers(now[j]):
                where = f"{page} › {after.title} › {label(now)} › {after.headings[j]}"
                yield Difference("changed", where, f"{old[i]} → {now[j]}")
    yield from row_differences("removed", page, before, gone_rows)
    yield from row_differences("added", page, after, new_rows)


def compare_prose(before: Page, after: Page) -> Iterator[Difference]:
    """Compare how often each number occurs outside of tables, and show the lines with a number that differs."""
    old, now = (Counter(number for number, _ in page.prose) for page in (before, after))
    sides: tuple[tuple[Kind, Page, Counter[str]], ...] = (("removed", before, old - now), ("added", after, now - old))
    for kind, page, extra in sides:
        for number, times in extra.items():
            lines = [shortened(line, number) for found, line in page.prose if found == number]
            text = f"{number} ({times} of {len(lines)} times): {' / '.join(dict.fromkeys(lines))}"
            yield Difference(kind, f"{after.name} › prose", text)


def compare_fields(before: Page, after: Page) -> Iterator[Difference]:
    """Compare the numbers of JSON paths. A path may be renamed if exactly its numbers are found under the new name."""

    def items(page: Page) -> list[Item[str]]:
        return [Item(path, values, path) for path, values in page.fields.items()]

    pairs, gone, new = pair_up(items(before), items(after), alike=1)
    for was, path in pairs:
        old, now = before.fields[was], after.fields[path]
        if old != now:
            what = f"{listed(old - now) or 'nothing'} → {listed(now - old) or 'nothing'}"
            yield Difference("changed", f"{after.name} › {path}", what)
    yield from (Difference("removed", f"{after.name} › {path}", listed(before.fields[path])) for path in gone)
    yield from (Difference("added", f"{after.name} › {path}", listed(after.fields[path])) for path in new)


# ---------------------------------------------------------------- matching


@dataclass(frozen=True)
class Item(Generic[T]):
    """A thing to match: its name, and the values by which it is recognised under another name.

    Things of the same `name` are matched in order. A `nickname` counts only if no other thing of its side has it.
    """

    name: Hashable
    values: Counter[Any]
    thing: T
    nickname: Hashable = None


def pair_up(
    before: Sequence[Item[T]], after: Sequence[Item[T]], alike: float = ALIKE
) -> tuple[list[tuple[T, T]], list[T], list[T]]:
    """Match things of the same name in order, then the rest by the values they share, the most alike first.

    Returns the pairs, what is left of `before`, and what is left of `after`.
    """
    matched = same_names(before, after)
    gone = [i for i in range(len(before)) if i not in matched]
    new = sorted(set(range(len(after))) - set(matched.values()))
    for i, j in same_nicknames({i: before[i].nickname for i in gone}, {j: after[j].nickname for j in new}):
        matched[i] = j
        gone.remove(i)
        new.remove(j)
    scores = ((similarity(before[i].values, after[j].values), -i, -j) for i in gone for j in new)
    for _, i, j in sorted((score for score in scores if score[0] >= alike), reverse=True):
        if -i in gone and -j in new:
            matched[-i] = -j
            gone.remove(-i)
            new.remove(-j)
    pairs = [(before[i].thing, after[j].thing) for i, j in sorted(matched.items())]
    return pairs, [before[i].thing for i in gone], [after[j].thing for j in new]


def same_names(before: Sequence[Item[T]], after: Sequence[Item[T]]) -> dict[int, int]:
    free: dict[Hashable, list[int]] = {}
    for j, item in enumerate(after):
        free.setdefault(item.name, []).append(j)
    matched = {}
    for i, item in enumerate(before):
        if namesakes := free.get(item.name):
            matched[i] = namesakes.pop(0)
    return matched


def same_nicknames(before: dict[int, Hashable], after: dict[int, Hashable]) -> list[tuple[int, int]]:
    def unique(nicknames: dict[int, Hashable]) -> dict[Hashable, int]:
        counts = Counter(nicknames.values())
        return {name: k for k, name in nicknames.items() if name is not None and counts[name] == 1}

    old, new = unique(before), unique(after)
    return [(old[name], new[name]) for name in old if name in new]


def similarity(a: Counter[Any], b: Counter[Any]) -> float:
    """Return the share of values that two counters have in common; 0 if one has none."""
    return (a & b).total() / max(a.total(), b.total()) if a and b else 0.0


def mark_moved(found: Iterable[Difference], after: Sequence[Page]) -> list[Difference]:
    """Turn a removed row into a moved one if a row of another page has all its numbers."""
    rows = [(page.name, Counter(row_numbers(row))) for page in after for t in page.tables for row in t.rows]

    def moved(difference: Difference) -> Difference:
        page, _, inside = difference.where.partition(" › ")
        if difference.kind != "removed" or " › row " not in f" › {inside}":
            return difference
        wanted = Counter(numbers(difference.what))
        other = next((name for name, values in rows if name != page and wanted <= values), None)
        return difference if other is None else Difference("moved", difference.where, f"{difference.what} to {other}")

    return [moved(difference) for difference in found]


# ---------------------------------------------------------------- rows and columns


def column_items(table: Table) -> list[Item[int]]:
    return [Item(heading, column_numbers(table, k), k) for k, heading in enumerate(table.headings)]


def column_numbers(table: Table, k: int) -> Counter[str]:
    return Counter(number for row in table.rows for number in numbers(row[k]))


def row_items(table: Table, columns: Sequence[int]) -> list[Item[tuple[str, ...]]]:
    """Return the rows to match by these columns: all cells, or the cells without numbers, or what they share."""
    found = []
    for row in table.rows:
        chosen = tuple(row[k] for k in columns)
        values = Counter((k, cell) for k, cell in enumerate(chosen) if cell)
        values.update((k, " ".join(numbers(cell))) for k, cell in enumerate(chosen) if numbers(cell))
        words = tuple(cell for cell in chosen if cell and not numbers(cell))
        found.append(Item(chosen, values, row, nickname=words or None))
    return found


def row_numbers(row: Iterable[str]) -> list[str]:
    return [number for cell in row for number in numbers(cell)]


def row_differences(kind: Kind, page: str, table: Table, rows: Iterable[Sequence[str]]) -> Iterator[Difference]:
    for row in rows:
        if found := row_numbers(row):
            yield Difference(kind, f"{page} › {table.title} › row {label(row)}", " ".join(found))


def column_differences(kind: Kind, page: str, table: Table, columns: Iterable[int]) -> Iterator[Difference]:
    for k in columns:
        if found := column_numbers(table, k):
            yield Difference(kind, f"{page} › {table.title} › column {table.headings[k]}", listed(found))


def label(row: Sequence[str]) -> str:
    """Return the first cells of a row that hold letters, up to three, or else its first cell."""
    words = [cell for cell in row if any(c.isalpha() for c in cell)]
    return ", ".join(words[:3]) or row[0]


def listed(values: Counter[str], most: int = 12) -> str:
    found = sorted(values.elements())
    return " ".join(found[:most]) + (f" … ({len(found)} in all)" if len(found) > most else "")


def shortened(line: str, number: str, around: int = 30) -> str:
    """Return the part of a line around a number."""
    place = max(line.find(number), 0)
    return line[max(0, place - around) : place + len(number) + around].strip()
