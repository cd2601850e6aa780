"""AutoAttack: four attacks of different kinds without hyper-parameters (Croce and Hein, ICML 2020, arXiv:2003.01690).

    standard   apgd:loss=ce → apgd:loss=dlr,targets=9 → fab:targets=9 → square
    plus       apgd:loss=ce → apgd:loss=dlr → fab, five starts each → square → apgd:loss=dlr,targets=9 → fab:targets=9
    rand       apgd:loss=ce,eot=20 → apgd:loss=dlr,eot=20                        for randomised classifiers

It is a `Cascade`: each stage runs on the samples that earlier stages did not break. For the individual mode (every
attack on every sample, then the worst case) run one cell for each of `stages(version)`.

Cost:       that of the stages and the cascade. With ten classes, a sample that is not broken costs
            101 + 1 + 910 + 1 + 1,801 + 1 + 5,001 = 7,816 queries in `standard`.
Departures: those of the stages. Stages share no seed. The attack does not check whether the classifier is randomised,
            returns probabilities or masks its gradients; validation and the report do. As in the authors' code, one
            draw decides between the stages of `rand` which samples go on; with `eot` the majority does (`cascade`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from antiadv.attacks.cascade import Cascade
from antiadv.attacks.score_based.square import Square
from antiadv.attacks.white_box.apgd import APGD
from antiadv.attacks.white_box.fab import FAB
from antiadv.core.attack import Attack
from antiadv.core.ball import Ball
from antiadv.core.draws import Draws
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat

Version = Literal["standard", "plus", "rand"]

EDITION = 1  # raise it when the lists below change; stages have editions of their own
APGD_T, FAB_T = APGD(loss="dlr", targets=9), FAB(targets=9)
VERSIONS: dict[Version, tuple[Attack, ...]] = {
    "standard": (APGD(), APGD_T, FAB_T, Square()),
    "plus": (APGD(restarts=5), APGD(loss="dlr", restarts=5), FAB(restarts=5), Square(), APGD_T, FAB_T),
    "rand": (APGD(eot=20), APGD(loss="dlr", eot=20)),
}


def stages(version: Version = "standard") -> tuple[Attack, ...]:
    """The attacks of a version, in order.

    >>> from antiadv.core.spec import text
    >>> [text(stage) for stage in stages()]
    ['apgd', 'apgd:loss=dlr,targets=9', 'fab:targets=9', 'square']
    """
    return VERSIONS[version]


@dataclass(frozen=True)
class Autoattack:
    """`autoattack:version=plus` runs `stages("plus")`."""

    version: Version = "standard"

    access: ClassVar[Access] = Access.GRADIENTS
    minimal: ClassVar[bool] = False

    @property
    def cascade(self) -> Cascade:
        return Cascade(stages(self.version))

    @property
    def norms(self) -> frozenset[float]:
        return self.cascade.norms

    @property
    def edition(self) -> int:
        """Rises with the cascade's and with any stage's, because a cell's key holds only the name of the version."""
        return EDITION + sum(part.edition - 1 for part in (self.cascade, *stages(self.version)))

    def least_queries(self, threat: Threat) -> int:
        return self.cascade.least_queries(threat)

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        return self.cascade(oracle, x, y, ball, draws)
