"""The judge turns attacked images into records. It asks the model itself, in float32 and with the defence.

    predict_repeated(g, x, …)     scores of g and labels of its base network f
    tidy(x, z, ids)               the images of an attack, clamped to [0, 1]; NaN and infinity are refused
    records(…)                    predictions for x and z, the distance, and the cost from the ledger
    idle(…)                       which samples were not attacked

A randomised defence is asked `looks` times, each time with other random numbers, and is right where more than half of
the predictions are. The class in the record is the most frequent one; it is the true class only with that majority.
Confidences are means. The random numbers for x and z are the same, so an unchanged image gets the same predictions. Any
other model is asked once.

The record keeps the distance of z from x. Whether z lies in the ball is decided later, for any radius.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.attacks.white_box.fast import Fast
from antiadv.core.attack import Attack, least_queries
from antiadv.core.ball import Ball
from antiadv.core.defence import Randomised, base_of
from antiadv.core.draws import Draws
from antiadv.core.engine import Engine
from antiadv.core.errors import BadInput
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import largest
from antiadv.core.threat import Threat
from antiadv.core.validation import is_count
from antiadv.evaluation.cell import LOOKS, Record

MOST_LOOKS = 10_000


@dataclass(frozen=True)
class Predictions:
    """Scores of g for each look, `[D, N, K]`; labels of f, `[N]`; and the images for which any score is not finite."""

    scores: Tensor
    base: Tensor
    unsound: Tensor

    @property
    def draws(self) -> int:
        return len(self.scores)

    @property
    def sent(self) -> int:
        """How many images were sent to g."""
        return self.draws * self.scores.shape[1]

    def right(self, y: Tensor) -> Tensor:
        """The number of looks that predicted y, `[N]`."""
        return (self.scores.argmax(2) == y).sum(0)

    def majority(self, y: Tensor) -> Tensor:
        """Whether more than half of the looks predicted y."""
        return 2 * self.right(y) > self.draws

    def labels(self, y: Tensor) -> Tensor:
        """The most frequent class; y only where y has the majority."""
        if self.draws == 1:
            return self.scores[0].argmax(1)
        votes = F.one_hot(self.scores.argmax(2), self.scores.shape[2]).sum(0)
        rest = votes.scatter(1, y[:, None], -1).argmax(1)
        return torch.where(self.majority(y), y, rest)


def check_looks(looks: int) -> None:
    if not is_count(looks, 1, MOST_LOOKS):
        raise BadInput(f"looks must be a whole number, 1 … {MOST_LOOKS}; found {looks!r}. Give for example {LOOKS}.")


def predict_repeated(model: nn.Module, x: Tensor, engine: Engine, draws: Draws, looks: int = LOOKS) -> Predictions:
    """Ask a randomised model `looks` times, any other once. More looks begin with the random numbers of fewer."""
    if isinstance(model, Randomised):
        s = torch.stack([engine.scores(model, x, draws=draws.fold(d)) for d in range(looks)])
    else:
        s = engine.scores(model, x)[None]
    base = base_of(model)
    base_scores = s[0] if base is model else engine.scores(base, x)
    sound = (largest(s.transpose(0, 1)) < math.inf) & (largest(base_scores) < math.inf)
    return Predictions(s, base_scores.argmax(1), ~sound)


def idle(records: Sequence[Record], attack: Attack, threat: Threat) -> list[bool]:
    """Which samples could have been broken but were not attacked.

    Their image is the clean one, and either the budget is smaller than the attack needs or no query was made. An attack
    that needs no queries (`transfer`) is never idle for lack of them.
    """
    least = least_queries(attack, threat)
    short = threat.queries is not None and threat.queries < least

    def nothing(r: Record) -> bool:
        goal = (2 * r.clean_right > r.draws) != threat.targeted
        return goal and r.distance == 0 and (short or (least > 0 and r.queries == 0 == r.gradients))

    return [nothing(r) for r in records]


def ran_autoattack(records: Sequence[Record], attack: Attack, randomised: bool) -> int:
    """On how many samples `fast` ran AutoAttack, at least; 0 for other attacks.

    On a randomised defence it runs AutoAttack's version `rand` on every sample that it attacks. Elsewhere a sample that
    fell to AutoAttack early may have made no more queries than `fast` alone can.
    """
    if not isinstance(attack, Fast):
        return 0
    return sum(r.queries > (0 if randomised else attack.most_queries) for r in records)


def is_randomised(records: Sequence[Record]) -> bool:
    """Whether the judge took the defence for a randomised one: it then looks several times, unless asked not to."""
    return any(r.draws > 1 for r in records)


def tidy(x: Tensor, z: Tensor, ids: Tensor) -> Tensor:
    """The images that an attack returned, clamped to [0, 1]. NaN and infinity are refused: judged as the clean image,
    they would count as robust."""
    if z.shape != x.shape:
        raise BadInput(
            f"an attack must return images like x, {tuple(x.shape)}; found {tuple(z.shape)}. Fix the attack."
        )
    fine = largest(z) < math.inf
    if not fine.all():
        bad = ids.cpu()[~fine.cpu()].tolist()
        raise BadInput(
            f"an attack must return images without NaN or infinity; found some for {len(bad)} of {len(x)} images, "
            f"first for sample {bad[0]}. Fix the attack."
        )
    return z.clamp(0, 1)


def records(
    ids: Sequence[int],
    y: Tensor,
    x: Tensor,
    z: Tensor,
    clean: Predictions,
    attacked: Predictions,
    ball: Ball,
    ledger: Ledger,
) -> list[Record]:
    columns = [
        list(ids),
        y.tolist(),
        clean.labels(y).tolist(),
        attacked.labels(y).tolist(),
        clean.base.tolist(),
        attacked.base.tolist(),
        _rounded(ball.distance(x, z), digits=9),  # finer than the ball's tolerance: a point on the sphere stays inside
        ledger.queries.tolist(),
        ledger.gradients.tolist(),
        ledger.zeros.tolist(),
        *_confidences(clean, y),
        *_confidences(attacked, y),
        [clean.draws] * len(y),
        clean.right(y).tolist(),
        attacked.right(y).tolist(),
    ]
    return [Record(*row) for row in zip(*columns, strict=True)]


def _confidences(predictions: Predictions, y: Tensor) -> tuple[list[float], list[float]]:
    p = predictions.scores.double().softmax(2).mean(0)
    return _rounded(p.amax(1)), _rounded(p.gather(1, y[:, None]).squeeze(1))


def _rounded(v: Tensor, digits: int = 3) -> list[float]:
    """Significant digits. Three of a probability are enough for any report, and take a sixth of the bytes."""
    return [float(f"{value:.{digits}g}") for value in v.tolist()]
