"""The threat model: what the attacker sees, how far it may change an image, and how many queries it has.

    Access    LABELS < SCORES < GRADIENTS < INTERNALS          each includes the ones to its left
    Threat    ball, access, queries per sample, targeted?      `linf:8/255,access=scores,queries=1000`

`queries` counts all images sent to the classifier, per sample; None means no limit. The text form may leave out
`access`: then it is what the attack needs (`parse_threat(text, access=…)`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from antiadv.core import spec
from antiadv.core.ball import L2, Ball, Linf
from antiadv.core.errors import BadSpec
from antiadv.core.validation import check_whole


class Access(IntEnum):
    """What the attacker gets: the label, all scores, gradients too, or the defence with all its parts."""

    LABELS = 1
    SCORES = 2
    GRADIENTS = 3
    INTERNALS = 4

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Threat:
    """A threat model. In a targeted one, the labels that an attack is given are the classes to reach."""

    ball: Ball
    access: Access
    queries: int | None = None
    targeted: bool = False

    def __post_init__(self) -> None:
        for name, value, kind in (("ball", self.ball, Ball), ("access", self.access, Access)):
            if not isinstance(value, kind):
                example = "Linf(8 / 255)" if kind is Ball else "Access.SCORES"
                raise BadSpec(f"a threat's {name} is for example {example}; found {value!r}. Give such a value.")
        if not isinstance(self.targeted, bool):
            raise BadSpec(f"targeted is True or False; found {self.targeted!r}. With True, y holds the targets.")
        if self.queries is None:
            return
        check_whole(queries=self.queries)
        if self.queries < 1:
            raise BadSpec(f"a threat needs at least one query per sample; found queries={self.queries}")
        if self.queries >= 2**63:  # the largest count of a ledger
            raise BadSpec(
                f"a threat's queries must be fewer than 2^63; found {self.queries}. Leave them out for no limit."
            )

    def __str__(self) -> str:
        parts = [str(self.ball), f"access={self.access}"]
        parts += [f"queries={self.queries}"] if self.queries is not None else []
        parts += ["targeted=true"] if self.targeted else []
        return ",".join(parts)


_Level = Literal["labels", "scores", "gradients", "internals"]


def parse_threat(text: str, access: Access) -> Threat:
    """`linf:8/255,queries=1000` to a Threat. `access` is used if the text gives none."""

    def threat(ball: Ball, level: _Level | None, queries: int | None, targeted: bool) -> Threat:
        return Threat(ball, access if level is None else Access[level.upper()], queries, targeted)

    def linf(eps: float, access: _Level | None = None, queries: int | None = None, targeted: bool = False) -> Threat:
        return threat(Linf(eps), access, queries, targeted)

    def l2(eps: float, access: _Level | None = None, queries: int | None = None, targeted: bool = False) -> Threat:
        return threat(L2(eps), access, queries, targeted)

    if text.strip()[:1].isdigit():
        raise BadSpec(f"a threat is a norm and a radius; found {text.strip()!r}. Write linf:{text.strip()}.")
    value: Threat = spec.parse(text, {"linf": linf, "l2": l2}, "threat")
    return value
