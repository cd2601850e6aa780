"""What attacks made of one other attack share: its norms, and whether it minimises the distance.

Cost:       none of its own.
"""

from __future__ import annotations

from antiadv.core.attack import Attack, least_queries
from antiadv.core.threat import Threat


class Wrapped:
    """Base class of attacks that run their option `attack` on a changed oracle."""

    attack: Attack

    @property
    def norms(self) -> frozenset[float]:
        return self.attack.norms

    @property
    def minimal(self) -> bool:
        return self.attack.minimal

    def least_queries(self, threat: Threat) -> int:
        return least_queries(self.attack, threat)
