"""What attacks made of one other attack share: they work in its norms, and look for the closest image if it does.

Cost:       none of its own.
"""

from __future__ import annotations

from antiadv.core.attack import Attack, least_queries
from antiadv.core.threat import Threat


class Wrapped:
    """Base of the attacks whose option `attack` does the work on a cleverer oracle."""

    attack: Attack

    @property
    def norms(self) -> frozenset[float]:
        return self.attack.norms

    @property
    def minimal(self) -> bool:
        return self.attack.minimal

    def least_queries(self, threat: Threat) -> int:
        return least_queries(self.attack, threat)
