"""A report as one value, before it is a page: everything in it is text, numbers and pictures.

    Document    summary · claims · tables · figures · gallery · warning signs · every cell · how each was made
    json()      all of it as plain values; `markdown_page.py` and `html_page.py` show it, `folder.py` writes it

It is put together in `paper/whole.py`, which knows the paper; here nobody does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from antiadv.reporting.figures import Figure
from antiadv.reporting.flag_explanations import EXPLAINED, Explanation
from antiadv.reporting.flags import Flag
from antiadv.reporting.sheet import Sheet


@dataclass(frozen=True)
class Claimed:
    """Something that was claimed, the rule that decides, and what each check of it found."""

    name: str
    verdict: str
    said: str
    rule: str
    passed: tuple[str, ...]
    failed: tuple[str, ...]
    missing: tuple[str, ...]
    settled: int  # of the checks that were made, those whose whole interval passes or fails
    why: str = ""  # the best explanation, where a check failed


@dataclass(frozen=True)
class Shown:
    """A table with what must be said of it: `sources` are the keys of its cells, `missing` those that are not there."""

    sheet: Sheet
    command: str
    sentences: tuple[str, ...]
    sources: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What a classifier says of an image: a class, its probability if known, and whether it is the true one."""

    label: str
    confidence: float | None
    right: bool

    def __str__(self) -> str:
        return self.label if self.confidence is None else f"{self.label} {100 * self.confidence:.0f} %"


@dataclass(frozen=True)
class Exhibit:
    """One image before and after an attack on g, as PNG; `change` is their difference, `factor` times as large."""

    sample: int
    truth: str
    attack: str
    on: str  # the network, the defence and the data
    before: bytes = field(repr=False)
    change: bytes = field(repr=False)
    after: bytes = field(repr=False)
    factor: float
    distance: str
    answers: Mapping[str, tuple[Answer, Answer]]  # by classifier, bare first: before and after

    def json(self) -> dict[str, Any]:
        said = {k: getattr(self, k) for k in ("sample", "truth", "attack", "on", "factor", "distance")}
        both = {who: {"before": asdict(b), "after": asdict(a)} for who, (b, a) in self.answers.items()}
        return {**said, "answers": both}


@dataclass(frozen=True)
class Gallery:
    about: str
    exhibits: tuple[Exhibit, ...] = ()


@dataclass(frozen=True)
class Raised:
    """A warning sign, what it means, and every time it was raised."""

    name: str
    explained: Explanation
    sentences: tuple[str, ...]


def raised(flags: Sequence[Flag]) -> tuple[Raised, ...]:
    """Flags by their rule, in the rules' order."""
    found = {name: tuple(flag.sentence for flag in flags if flag.name == name) for name in EXPLAINED}
    return tuple(Raised(name, EXPLAINED[name], said) for name, said in found.items() if said)


@dataclass(frozen=True)
class Document:
    title: str
    facts: tuple[tuple[str, str], ...]  # what it rests on: cells, records, versions
    summary: tuple[str, ...]
    verdict: tuple[str, ...]
    confidence: tuple[str, ...]
    defences: Sheet
    claims: tuple[Claimed, ...]
    tables: tuple[Shown, ...]
    absent: tuple[str, ...]  # sentences on what is not stored at all
    figures: tuple[Figure, ...]
    gallery: Gallery
    flags: tuple[Raised, ...]
    cells: Sheet
    sources: Sheet

    @property
    def sheets(self) -> list[Sheet]:
        """Every table that is also a file of its own."""
        return [self.defences, *(shown.sheet for shown in self.tables), self.cells, self.sources]

    def json(self) -> dict[str, Any]:
        tables = {
            shown.sheet.name: {
                "title": shown.sheet.title,
                "command": shown.command,
                "lines": shown.sheet.json(),
                "sentences": list(shown.sentences),
                "cells": list(shown.sources),
                "missing": list(shown.missing),
            }
            for shown in self.tables
        }
        return {
            "title": self.title,
            "facts": dict(self.facts),
            "summary": list(self.summary),
            "verdict": list(self.verdict),
            "confidence": list(self.confidence),
            "defences": self.defences.json(),
            "claims": [asdict(claim) for claim in self.claims],
            "tables": tables,
            "absent": list(self.absent),
            "figures": {figure.name: figure.json() for figure in self.figures},
            "gallery": {"about": self.gallery.about, "exhibits": [e.json() for e in self.gallery.exhibits]},
            "flags": [asdict(part) for part in self.flags],
            "cells": self.cells.json(),
            "sources": self.sources.json(),
        }
