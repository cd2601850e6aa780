"""What the attacker may see, how far it may go and how often it may ask.

    Access    LABELS < SCORES < GRADIENTS < INTERNALS          each includes the ones before
    Threat    ball, access, queries per sample, targeted?      `linf:8/255,access=scores,queries=1000`

`queries` counts images sent to the classifier, per sample, whatever for; `None` means: no limit. In the text form
`access` may be left out: then it is what the attack declares it needs (`parse_threat(text, access=…)`).
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
    """What an answer holds: the label; all scores; gradients too; the defence itself, taken apart."""

    LABELS = 1
    SCORES = 2
    GRADIENTS = 3
    INTERNALS = 4

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class Threat:
    """A threat model. For a targeted one the labels an attack is given are the classes it is to reach."""

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
        if self.queries >= 2**63:  # what a ledger can count
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
    """`linf:8/255,queries=1000` to a Threat; `access` is what the attack needs, used where the text is silent."""

    def threat(ball: Ball, said: _Level | None, queries: int | None, targeted: bool) -> Threat:
        return Threat(ball, access if said is None else Access[said.upper()], queries, targeted)

    def linf(eps: float, access: _Level | None = None, queries: int | None = None, targeted: bool = False) -> Threat:
        return threat(Linf(eps), access, queries, targeted)

    def l2(eps: float, access: _Level | None = None, queries: int | None = None, targeted: bool = False) -> Threat:
        return threat(L2(eps), access, queries, targeted)

    value: Threat = spec.parse(text, {"linf": linf, "l2": l2}, "threat")
    return value
