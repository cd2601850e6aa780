"""A report as one value: texts, numbers, tables and pictures, before any of it is rendered.

`build.py` makes a document from a store, `render/` shows it, and `folder.py` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from antiadv.reporting.figures import Figure
from antiadv.reporting.flag_explanations import EXPLAINED, Explanation
from antiadv.reporting.flags import Flag
from antiadv.reporting.table import Table


@dataclass(frozen=True)
class Claimed:
    """A claim, the rule that decides it, and what each check of it found."""

    name: str
    verdict: str
    said: str
    rule: str
    passed: tuple[str, ...]
    failed: tuple[str, ...]
    missing: tuple[str, ...]
    settled: int  # how many checks have their interval entirely on one side of the bar
    why: str = ""  # the best explanation, where a check failed
    samples: Mapping[str, str] = field(default_factory=dict)  # behind each check, see `table.samples_of`


@dataclass(frozen=True)
class Shown:
    """A table of a section: the command that makes it, the keys of its cells, and the cells that are not stored."""

    table: Table
    command: str
    sources: tuple[str, ...]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """What a package adds to a report, such as the paper's tables and claims.

    `build_document` puts each part where a reader expects it. `sentences` go into the summary, after the gains of the
    defences. `absent` says what is not stored.
    """

    sentences: tuple[str, ...] = ()
    claims: tuple[Claimed, ...] = ()
    tables: tuple[Shown, ...] = ()
    figures: tuple[Figure, ...] = ()
    absent: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A classifier's prediction for an image: a class, its probability if known, and whether it is correct."""

    label: str
    confidence: float | None
    right: bool

    def __str__(self) -> str:
        return self.label if self.confidence is None else f"{self.label} {100 * self.confidence:.0f} %"


@dataclass(frozen=True)
class Exhibit:
    """One image before and after an attack on g, as PNG. `change` is the perturbation, magnified by `factor`."""

    sample: int
    truth: str
    attack: str
    on: str  # the network, the defence and the data
    before: bytes = field(repr=False)
    change: bytes = field(repr=False)
    after: bytes = field(repr=False)
    factor: float
    distance: str
    answers: Mapping[str, tuple[Answer, Answer]]  # by classifier, the bare one first: before and after

    def json(self) -> dict[str, Any]:
        plain = {k: getattr(self, k) for k in ("sample", "truth", "attack", "on", "factor", "distance")}
        both = {name: {"before": asdict(b), "after": asdict(a)} for name, (b, a) in self.answers.items()}
        return {**plain, "answers": both}


@dataclass(frozen=True)
class Gallery:
    about: str
    exhibits: tuple[Exhibit, ...] = ()


@dataclass(frozen=True)
class Samples:
    """What `samples.html` shows: `index` describes cells and images, and `files` are loaded when they are needed."""

    index: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Raised:
    """A flag, what it means, and a sentence for each time it was raised."""

    name: str
    explained: Explanation
    sentences: tuple[str, ...]


def raised(flags: Sequence[Flag]) -> tuple[Raised, ...]:
    """Group flags by their rule, in the order of the rules."""
    by_name = {name: tuple(flag.sentence for flag in flags if flag.name == name) for name in EXPLAINED}
    return tuple(Raised(name, EXPLAINED[name], sentences) for name, sentences in by_name.items() if sentences)


@dataclass(frozen=True)
class Document:
    title: str
    facts: tuple[tuple[str, str], ...]  # cells, records, versions
    summary: tuple[str, ...]
    verdict: tuple[str, ...]
    confidence: tuple[str, ...]
    defences: Table
    claims: tuple[Claimed, ...]
    tables: tuple[Shown, ...]
    absent: tuple[str, ...]  # sentences on what is not stored
    figures: tuple[Figure, ...]
    gallery: Gallery
    flags: tuple[Raised, ...]
    cells: Table
    sources: Table
    samples: Samples = field(default_factory=Samples, repr=False)

    @property
    def all_tables(self) -> list[Table]:
        """Every table that is also written to a file of its own."""
        return [self.defences, *(shown.table for shown in self.tables), self.cells, self.sources]

    def json(self) -> dict[str, Any]:
        tables = {
            shown.table.name: {
                "title": shown.table.title,
                "command": shown.command,
                "lines": shown.table.json(),
                "sentences": list(shown.table.sentences),
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
