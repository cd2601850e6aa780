"""The Attack protocol: a frozen dataclass of hyper-parameters that turns clean images into candidate images.

    z = attack(oracle, x, y, ball, draws)

The arguments are the access to the model, the clean images, their labels, the allowed region and the random numbers.
For a targeted threat (`oracle.targeted`) y holds the classes to reach. An attack only proposes images. The judge
decides whether they succeed, and the ledger counts their cost. Attacks that minimise the distance have the same
signature: they return the closest success, and the judge compares its distance with `ball.eps`.

An attack may have a method `least_queries(threat)`: the fewest queries per sample with which it tries an image other
than the clean one. It is zero for an attack that never queries the model under attack. Without the method it is one.
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from antiadv.core.ball import Ball
from antiadv.core.defence import base_of
from antiadv.core.draws import Draws
from antiadv.core.errors import AccessDenied, BadInput
from antiadv.core.oracle import Oracle
from antiadv.core.spec import text
from antiadv.core.threat import Access, Threat


@runtime_checkable
class Attack(Protocol):
    """What an attack declares: class constants, or properties if it is made of other attacks."""

    @property
    def access(self) -> Access:
        """The least access it needs."""

    @property
    def norms(self) -> frozenset[float]:
        """The norms it works in."""

    @property
    def minimal(self) -> bool:
        """Whether it looks for the closest success, and so needs no radius."""

    @property
    def edition(self) -> int:
        """Raised by 1 with every intended change of results; part of every cell's key.

        An attack may also have `still_shown`, a set of earlier editions. Their records stay in tables and reports until
        the cells are run again, because they measure the same thing and are about as strong.
        """

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor: ...


def least_queries(attack: Attack, threat: Threat) -> int:
    """The fewest queries per sample with which the attack tries an image other than the clean one."""
    least: int = attack.least_queries(threat) if hasattr(attack, "least_queries") else 1
    return least


def never_ran(attack: Attack, threat: Threat) -> str:
    """Why an attack tried no image, and what to do: the end of a sentence."""
    least = least_queries(attack, threat)
    if threat.queries is not None and threat.queries < least:
        return f"{text(attack)} needs at least {least:,} queries per sample, and the threat grants {threat.queries:,}"
    return f"{text(attack)} asked nothing; give it steps to make"


def check_kind(attack: Attack) -> None:
    """Refuse a value that is no attack, such as a class of attacks."""
    if isinstance(attack, type) or not isinstance(attack, Attack):
        raise BadInput(
            f"an attack is a value such as PGD(), or a text such as pgd; found {attack!r}. Give one of these."
        )


def check_granted(model: nn.Module, threat: Threat) -> None:
    """Refuse a threat with more access than the model gives. An endpoint says what it gives (`grants`)."""
    granted = getattr(base_of(model), "grants", None)
    if isinstance(granted, Access) and threat.access > granted:
        raise AccessDenied(
            f"the threat grants {threat.access}; the endpoint gives {granted}. Choose an attack that needs no more, "
            f"such as {'rays' if granted == Access.LABELS else 'square'}."
        )


def check_attack(attack: Attack, threat: Threat) -> None:
    """Refuse an attack that cannot work under this threat, before anything is run."""
    if threat.access < attack.access:
        raise AccessDenied(
            f"{text(attack)} needs {attack.access}; the threat grants {threat.access}. "
            f"Grant access={attack.access}, or choose an attack that needs less."
        )
    if threat.ball.p not in attack.norms:
        norms = " and ".join(sorted("linf" if p == math.inf else f"l{p:g}" for p in attack.norms))
        raise BadInput(
            f"{text(attack)} works in {norms}; the threat is {threat.ball}. Change the threat or the attack."
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
