"""The one table model. Every table of a report, of the paper and of the documentation ends in it.

`render/` shows it as Markdown, HTML, LaTeX, CSV or on a terminal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from typing import Any
from urllib.parse import urlencode

from antiadv.reporting.measures import Difference, Ratio, Share
from antiadv.reporting.wording import NOTHING

DIGITS = 4  # decimals of a percentage in CSV and JSON: far finer than any interval


@dataclass(frozen=True)
class Entry:
    """One place of a table.

    It sorts by `value`, or by `text` if it has no value. All numbers are in the unit in which they are shown.
    `small` (mostly the interval) and `paper_text` are shown in smaller print. A number that is only a bound has one
    end of an interval: `> 180` has `low`.
    """

    text: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    paper: float | None = None
    small: str = ""
    paper_text: str = ""
    code: bool = False  # shown in the font of code
    link: str = ""  # the anchor on the same page that this entry links to
    anchor: str = ""  # the anchor of this entry
    samples: tuple[str, ...] = field(default=(), compare=False)  # behind the text, or each side of a text `… to …`

    def __str__(self) -> str:
        return " ".join(part for part in (self.text, self.small, self.paper_text) if part)

    @property
    def sort_key(self) -> str:
        """What a browser sorts by. An empty place sorts last."""
        return self.text.removeprefix(NOTHING) if self.value is None else repr(self.value)

    @property
    def plain(self) -> Any:
        """The entry for JSON: a text, a number, or a number with its interval and published number."""
        more = {k: v for k in ("low", "high", "paper") if (v := getattr(self, k)) is not None}
        if not more:
            return self.text if self.value is None else self.value
        return {"value": self.value, **more}


@dataclass(frozen=True)
class Table:
    """Lines of entries under headings, with the sentences that belong below it.

    The first `labels` columns say what a line is. On a narrow screen only the one at `pin` keeps its column.
    """

    name: str
    title: str
    head: tuple[str, ...]
    lines: tuple[tuple[Entry, ...], ...]
    labels: int = 1
    pin: int = 0
    sentences: tuple[str, ...] = ()

    def json(self) -> list[dict[str, Any]]:
        return [dict(zip(self.head, (entry.plain for entry in line), strict=True)) for line in self.lines]

    def kind(self, i: int) -> str:
        """The kind of a column: pin, label, number or words."""
        if i < self.labels:
            return "pin" if i == self.pin else "label"
        return "number" if any(line[i].value is not None for line in self.lines) else "words"

    def other_labels(self, line: Sequence[Entry]) -> str:
        """The labels of a line without the pinned one."""
        return " · ".join(e.text for i, e in enumerate(line[: self.labels]) if i != self.pin and e.text)


# ---------------------------------------------------------------- numbers next to published ones


@dataclass(frozen=True)
class Number:
    """One of our numbers, and the published one in per cent. Each is None where there is none."""

    ours: Share | Difference | None
    paper: float | None = None
    signed: bool = False  # a difference, shown with its sign
    samples: str = field(default="", compare=False)  # see `samples_of`

    def __str__(self) -> str:
        """`54.2 [51.1, 57.3] (53.1)`: ours, its 95 % interval, and in brackets the published number."""
        return str(number(self))

    @property
    def text(self) -> str:
        return NOTHING if self.ours is None else self._percent(self.ours.value)

    @property
    def interval(self) -> str:
        return "" if self.ours is None else f"[{self._percent(self.ours.low)}, {self._percent(self.ours.high)}]"

    @property
    def published(self) -> str:
        """The published number to one decimal. The paper has two, and rounds ties away from zero."""
        if self.paper is None:
            return ""
        shown = Decimal(repr(self.paper)).quantize(Decimal("0.1"), ROUND_HALF_UP)
        return f"({shown:{'+' if self.signed else ''}})"

    def json(self) -> dict[str, Any]:
        return {"ours": None if self.ours is None else dataclasses.asdict(self.ours), "paper": self.paper}

    def _percent(self, share: float) -> str:
        return f"{100 * share:{'+' if self.signed else ''}.1f}"


NumberLine = tuple[tuple[str, ...], Mapping[str, Number]]  # labels, and numbers by heading


def number_table(
    name: str,
    title: str,
    labels: tuple[str, ...],
    headings: Sequence[str],
    lines: Sequence[NumberLine],
    sentences: Sequence[str] = (),
) -> Table:
    """Make a table of numbers.

    A column n after the labels says how many samples the numbers of a line have; it sorts by the fewest. A line without
    a number under some heading has an empty place there.
    """
    entries = tuple(
        (*map(Entry, texts), _samples(numbers), *(number(numbers.get(heading)) for heading in headings))
        for texts, numbers in lines
    )
    head = (*labels, "n", *headings)
    return Table(name, title, head, entries, len(labels), min(1, len(labels) - 1), tuple(sentences))


def _samples(numbers: Mapping[str, Number]) -> Entry:
    """The number of samples of a line: one number, or the fewest and the most."""
    sizes = sorted({number.ours.n for number in numbers.values() if number.ours is not None})
    if not sizes:
        return Entry(NOTHING)
    return Entry(f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]}–{sizes[-1]}", float(sizes[0]))


def text_table(head: Sequence[str], lines: Sequence[Sequence[str]], labels: int = 1) -> Table:
    """Make a table of texts, without values to sort by."""
    return Table("", "", tuple(head), tuple(tuple(map(Entry, line)) for line in lines), labels)


# ---------------------------------------------------------------- making entries


def code(text: str, link: str = "", anchor: str = "") -> Entry:
    return Entry(text, code=True, link=link, anchor=anchor)


def samples_of(cells: Iterable[str], against: Iterable[str] = (), **counted: float | None) -> str:
    """The samples behind a number, as the fragment of an address of `samples.html`.

    The number is the worst case of the cells with these keys; a difference is that minus the worst case of `against`.
    `counted` says how samples count, where that is not as usual: `clean`, `queries`, `reach` or `first`.

    >>> samples_of(["ab", "cd"], ["ef"], queries=100, reach=None)
    'a=ab.cd&b=ef&queries=100'
    """
    sides = {"a": ".".join(dict.fromkeys(cells)), "b": ".".join(dict.fromkeys(against))}
    given = {name: value for name, value in (sides | counted).items() if value not in (None, "", False)}
    return urlencode(given) if sides["a"] else ""


def with_samples(entry: Entry, *samples: str) -> Entry:
    """The entry with links to its samples; without a number there is nothing to link."""
    return entry if entry.value is None else dataclasses.replace(entry, samples=tuple(filter(None, samples)))


def counted(n: float | None) -> Entry:
    """A whole number with thousands separators."""
    return Entry(NOTHING) if n is None else Entry(f"{n:,.6g}" if n < 1e6 else f"{n:,.0f}", n)


def number(found: Number | None) -> Entry:
    """One of our numbers next to a published one, in per cent."""
    if found is None:
        return Entry()
    if found.ours is None:
        return Entry(found.text, paper=found.paper, paper_text=found.published)
    value, low, high = (percent(v) for v in (found.ours.value, found.ours.low, found.ours.high))
    entry = Entry(found.text, value, low, high, found.paper, found.interval, found.published)
    return with_samples(entry, found.samples)


def measured(found: Share | Difference | None, more: str = "") -> Entry:
    """A share or a difference with its interval, in per cent; `more` follows the interval."""
    if found is None:
        return Entry()
    entry = number(Number(found, signed=isinstance(found, Difference)))
    return dataclasses.replace(entry, small=f"{entry.small}{more}")


def ratio(found: Ratio | None) -> Entry:
    """How many times as much. A bound has the end of the interval that is known."""
    if found is None:
        return Entry()
    low, high = (found.value if found.bound == bound else None for bound in ("more", "less"))
    return Entry(str(found), found.value, low, high)


def percent(share: float) -> float:
    return round(100 * share, DIGITS)
