"""After an attack failed in the middle: judge the images that it found before, if the classifier answers again.

Remembered(attack, held)     the attack; its images are kept, in case the judge's own queries fail
Kept(attack, images)         stands in for the attack: returns these images and asks nothing
with_cost(…)                 the records and the receipt of that judgement, with the cost of the search before it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from antiadv.attacks.adaptive.wrapped import Wrapped
from antiadv.core.attack import Attack
from antiadv.core.ball import Ball
from antiadv.core.draws import Draws
from antiadv.core.errors import first_line
from antiadv.core.held import Held
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access
from antiadv.core.validation import in_float32
from antiadv.engine.meter import Meter
from antiadv.evaluation.cell import Receipt, Record


@dataclass(frozen=True)
class _InPlaceOf(Wrapped):
    """Has the declarations of another attack."""

    attack: Attack

    @property
    def access(self) -> Access:
        return self.attack.access

    @property
    def edition(self) -> int:
        return self.attack.edition


@dataclass(frozen=True)
class Remembered(_InPlaceOf):
    held: Held

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        z = self.attack(oracle, x, y, ball, draws)
        if isinstance(z, Tensor) and z.shape == x.shape:  # the judge refuses anything else
            self.held.returned.append((oracle.places, z))
        return z


@dataclass(frozen=True)
class Kept(_InPlaceOf):
    images: Tensor

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        return self.images[oracle.places.to(x.device)]


def with_cost(
    records: Sequence[Record], receipt: Receipt, ledgers: Sequence[Ledger], meters: Sequence[Meter]
) -> tuple[list[Record], Receipt]:
    """Records and receipt with what the search spent. For each sample the last ledger with queries counts."""
    spent = torch.zeros(3, len(records), dtype=torch.int64)
    for ledger in ledgers:
        paid = torch.stack([ledger.queries, ledger.gradients, ledger.zeros])
        spent = torch.where(ledger.queries > 0, paid, spent)
    columns = zip(records, *spent.tolist(), strict=True)
    facts = [replace(r, queries=q, gradients=g, zeros=z) for r, q, g, z in columns]
    forwards, backwards = sum(m.forwards for m in meters), sum(m.backwards for m in meters)
    seconds = max(m.seconds() for m in meters)
    return facts, replace(receipt, seconds=seconds, forwards=forwards, backwards=backwards)


def message(error: BaseException, confirmed: int | None, samples: int, precision: str) -> str:
    """`confirmed` is the number of broken samples; None where the classifier failed for the judge too."""
    found = f"{confirmed} of {samples} samples were broken before and are kept with this error"
    found = f"{found}; nothing is known of the others"
    if confirmed is None:
        found = f"the images of {samples} samples found so far are in .images; the judge could not confirm them"
    elif confirmed == 0:
        found = f"no image found so far breaks any of the {samples} samples"
    return (
        f"the attack could not go on: the classifier or the attack raised {first_line(error)}; {found}. "
        f"Fix the cause and attack again{in_float32(precision)}."
    )
