"""The layout of a table before anything is run: rows, columns, and the cells that each number needs.

If a column has several attacks, a sample is robust only if it withstands all of them. AutoAttack is computed this way
from four cells. A gain compares a line with the same network without the defence, on the same samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from antiadv import attacks, data, defences, models
from antiadv.evaluation.cell import make_threat, normal_attack
from antiadv.paper.networks import Network

Measure = Literal["clean", "robust", "clean gain", "gain"]
CellNames = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class CellRequest:
    """A cell that a table needs, on the first `samples` samples of its data set."""

    network: Network
    defence: str
    attack: str
    threat: str
    samples: int

    @property
    def names(self) -> CellNames:
        """Data, model, defence, attack and threat, as every store spells them, without paths of files."""
        return _canonical(self.network.data, self.network.model, self.defence, self.attack, self.threat)

    def __str__(self) -> str:
        defence = "" if self.defence == defences.BARE else f" with {self.defence}"
        return f"{normal_attack(self.attack)} ({self.threat}) on {self.network.name}{defence}"


@lru_cache(maxsize=4096)
def _canonical(images: str, model: str, defence: str, attack_spec: str, threat: str) -> CellNames:
    attack = attacks.parse(attack_spec)
    return (
        data.canonical(images),
        models.canonical(model),
        defences.full_text(defence),
        attacks.full_text(attack),
        str(make_threat(threat, attack)),
    )


@dataclass(frozen=True)
class Column:
    """A column of a table. `attacks` are pairs of an attack and its threat.

    `queries` evaluates the records at a smaller query budget, `radius` at another radius of the same norm. With
    `first_error` a sample is broken as soon as the attacker has seen one wrong prediction. Otherwise the judge's
    majority decides.
    """

    heading: str
    attacks: tuple[tuple[str, str], ...]
    measure: Measure = "robust"
    queries: int | None = None
    radius: float | None = None
    first_error: bool = False

    @property
    def as_gain(self) -> Column:
        """The same column, measured as the gain of the defence."""
        return replace(self, measure="clean gain" if self.measure.startswith("clean") else "gain")


@dataclass(frozen=True)
class Line:
    """A row of a table. `label` names the defence or its setting; `paper` has the published number of each heading."""

    network: Network
    label: str
    defence: str
    columns: tuple[Column, ...]
    samples: int
    paper: Mapping[str, float] = field(default_factory=dict)

    def column(self, heading: str) -> Column:
        return next(c for c in self.columns if c.heading == heading)

    def requests(self, column: Column) -> tuple[CellRequest, ...]:
        """The cells that the column needs for this line."""
        return self._requests(column, self.defence)

    def bare_requests(self, column: Column) -> tuple[CellRequest, ...]:
        """The cells without the defence, which a gain needs as well. Empty for other measures."""
        return self._requests(column, defences.BARE) if "gain" in column.measure else ()

    def _requests(self, column: Column, defence: str) -> tuple[CellRequest, ...]:
        return tuple(CellRequest(self.network, defence, *attack, self.samples) for attack in column.attacks)


@dataclass(frozen=True)
class Layout:
    """`notes` are sentences below the table: choices that the paper leaves open, and its misprints."""

    title: str
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    @property
    def headings(self) -> list[str]:
        """All headings, in the order of the line with the most columns."""
        longest_first = sorted(self.lines, key=lambda line: -len(line.columns))
        return list(dict.fromkeys(column.heading for line in longest_first for column in line.columns))

    @property
    def requests(self) -> list[CellRequest]:
        """Every cell that the table needs, once, in the order of the lines."""
        needed = (r for line in self.lines for c in line.columns for r in (*line.requests(c), *line.bare_requests(c)))
        return list({(request.names, request.samples): request for request in needed}.values())
