"""The Attack protocol: a frozen dataclass of hyper-parameters that turns clean images into candidate images.

    z = attack(oracle, x, y, ball, draws)

Five arguments, five roles: what you may ask, where you start, what is true, where you may go, the dice. An attack
proposes; it never says whether it succeeded, how far it went or what it spent. Fixed-radius and minimal-norm attacks
share this signature: the latter return the closest fooling image they found, and the judge compares its distance with
`ball.eps`. For a targeted threat (`oracle.targeted`) y holds the classes to reach.

An attack that tries no image of its own before it can pay for several queries says how many those are, in a method
`least_queries(threat)`; zero, if it never asks the model under attack. Without the method it is one.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

from torch import Tensor

from antiadv.core.ball import Ball
from antiadv.core.draws import Draws
from antiadv.core.errors import AccessDenied, BadInput
from antiadv.core.oracle import Oracle
from antiadv.core.spec import text
from antiadv.core.threat import Access, Threat


@runtime_checkable
class Attack(Protocol):
    """What an attack declares, as class constants or, where it is made of other attacks, as properties."""

    @property
    def access(self) -> Access:
        """The least it needs."""

    @property
    def norms(self) -> frozenset[float]:
        """The norms it works in."""

    @property
    def minimal(self) -> bool:
        """Whether it looks for the closest fooling image, and so can do without a radius."""

    @property
    def edition(self) -> int:
        """Raised by whoever changes results on purpose; part of every cell's key."""

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor: ...


def least_queries(attack: Attack, threat: Threat) -> int:
    """The fewest queries per sample with which the attack tries an image other than the clean one."""
    said: int = attack.least_queries(threat) if hasattr(attack, "least_queries") else 1
    return said


def never_ran(attack: Attack, threat: Threat) -> str:
    """Why an attack tried nothing, and what to do, as the end of a sentence."""
    least = least_queries(attack, threat)
    if threat.queries is not None and threat.queries < least:
        return f"{text(attack)} needs at least {least:,} queries per sample, and the threat grants {threat.queries:,}"
    return f"{text(attack)} asked nothing; give it steps to make"


def check_kind(attack: Attack) -> None:
    """Whether this is an attack at all, and not its class."""
    if isinstance(attack, type) or not isinstance(attack, Attack):
        raise BadInput(
            f"an attack is a value such as PGD(), or a text such as pgd; found {attack!r}. Give one of these."
        )


def check_attack(attack: Attack, threat: Threat) -> None:
    """Whether this attack can work under this threat at all, before anything is run."""
    if threat.access < attack.access:
        raise AccessDenied(
            f"{text(attack)} needs {attack.access}; the threat grants {threat.access}. "
            f"Grant access={attack.access}, or choose an attack that needs less."
        )
    if threat.ball.p not in attack.norms:
        works = " and ".join(sorted("linf" if p == math.inf else f"l{p:g}" for p in attack.norms))
        raise BadInput(
            f"{text(attack)} works in {works}; the threat is {threat.ball}. Change the threat or the attack."
        )
    if threat.ball.eps == math.inf and not attack.minimal:
        raise BadInput(
            f"{text(attack)} needs a finite radius; the threat is {threat.ball}. Write for example linf:8/255."
        )
    if threat.ball.p == math.inf and 1 < threat.ball.eps < math.inf:
        raise BadInput(
            f"pixels lie in [0, 1], so that a radius of linf is at most 1; the threat is {threat.ball}. "
            "Write steps of bytes as a fraction, for example linf:8/255."
        )
