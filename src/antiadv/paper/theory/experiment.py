"""An experiment: a statement of the paper, numbers that test it, and whether it holds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Experiment:
    """`says` is the paper's statement in our words, `where` the case it is tested on, `found` the result.

    `holds` is about this case only: one case can refute a statement, but cannot prove it. `within` says whether the
    case meets the assumptions that the paper prints with the statement.
    """

    result: str
    says: str
    where: str
    found: str
    holds: bool
    numbers: tuple[tuple[str, float], ...]
    within: bool = True
    name: str = ""  # that of its function

    @property
    def verdict(self) -> str:
        return "yes" if self.holds else "no" if self.within else "not beyond its range"

    def __str__(self) -> str:
        return f"{self.name}: {self.found}"

    def json(self) -> dict[str, Any]:
        words = ("name", "result", "says", "where", "found", "holds", "within")
        return {word: getattr(self, word) for word in words} | {"numbers": dict(self.numbers)}


@dataclass(frozen=True)
class Point:
    """The layer at one c: G, the bound, and the steps needed in the proof and in the system (None: never)."""

    c: float
    factor: float
    enough: float
    needed: int
    in_system: int | None


def bounded(points: Iterable[Point], bare: Point) -> bool:
    """Whether each bound is G times that of the bare network, and the steps needed are within it."""
    return all(
        math.isclose(p.enough / bare.enough, p.factor, rel_tol=1e-12) and p.needed <= math.floor(p.enough) + 1
        for p in points
    )


def numbered(**values: float | None) -> tuple[tuple[str, float], ...]:
    """Values by name, without those that are None."""
    return tuple((name, float(value)) for name, value in values.items() if value is not None)


def listed(values: list[float] | list[int]) -> str:
    """`1.71, 3.2 and 7.69`"""
    *first, last = (f"{v:.4g}" for v in values)
    return f"{', '.join(first)} and {last}" if first else last
