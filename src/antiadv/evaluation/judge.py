"""The judge: images to records. It trusts no attack, and looks at the images itself, in float32, through the defence.

    look(g, x)     scores of g and labels of f
    idle(…)        which samples an attack tried nothing on
    records(…)     what g says of x and of z, how far z is from x, and what the ledger says it cost

A randomised defence is looked at `looks` times, each with dice of its own, and what counts is the majority: it is
right where more than half of the looks are. The class in the record is the most frequent one, the true class only
where it has that majority; confidences are means. The dice for x and for z are the same, so that an image left as it
was is judged as it was; the first of many looks are those of few. Any other model is looked at once.

Whatever an attack returned is first put into the box [0, 1]. An image that holds NaN or infinity is refused: judged as
the clean image, it would count as robust. So is NaN or infinity in any answer that the judge gets. Whether z lies in
the ball is not decided here: the record keeps the distance, and the measures compare it with a radius.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.core.attack import Attack, least_queries
from antiadv.core.ball import Ball
from antiadv.core.defence import Randomised, base_of
from antiadv.core.draws import Draws
from antiadv.core.engine import Engine
from antiadv.core.errors import BadInput
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import largest
from antiadv.core.threat import Threat
from antiadv.evaluation.cell import LOOKS, Record


@dataclass(frozen=True)
class Predictions:
    """What g says of a batch, look by look, `[D, N, K]`, the labels f gives it, and for which images either gave a
    score that is no number."""

    scores: Tensor
    base: Tensor
    unsound: Tensor

    @property
    def draws(self) -> int:
        return len(self.scores)

    @property
    def sent(self) -> int:
        """How many images were shown to g for this."""
        return self.draws * self.scores.shape[1]

    def right(self, y: Tensor) -> Tensor:
        """In how many of the looks the class was y, `[N]`."""
        return (self.scores.argmax(2) == y).sum(0)

    def majority(self, y: Tensor) -> Tensor:
        """Whether it was y in more than half of them."""
        return 2 * self.right(y) > self.draws

    def labels(self, y: Tensor) -> Tensor:
        """The most frequent class; y only where it has the majority."""
        if self.draws == 1:
            return self.scores[0].argmax(1)
        votes = F.one_hot(self.scores.argmax(2), self.scores.shape[2]).sum(0)
        rest = votes.scatter(1, y[:, None], -1).argmax(1)
        return torch.where(self.majority(y), y, rest)


def check_looks(looks: int) -> None:
    if type(looks) is not int or looks < 1:  # True is no number of times
        raise BadInput(f"looks must be a whole number, at least 1; found {looks!r}. Give for example {LOOKS}.")


def predict_repeated(model: nn.Module, x: Tensor, engine: Engine, dice: Draws, looks: int = LOOKS) -> Predictions:
    if isinstance(model, Randomised):
        s = torch.stack([engine.scores(model, x, draws=dice.fold(d)) for d in range(looks)])
    else:
        s = engine.scores(model, x)[None]
    base = base_of(model)
    of_base = s[0] if base is model else engine.scores(base, x)
    sound = (largest(s.transpose(0, 1)) < math.inf) & (largest(of_base) < math.inf)
    return Predictions(s, of_base.argmax(1), ~sound)


def idle(records: Sequence[Record], attack: Attack, threat: Threat) -> list[bool]:
    """Which samples there was something to break of, and nothing was tried: the attack never ran on them.

    Seen from the budget, which may be less than the attack needs, and from the record: no query, no gradient, and the
    clean image. An attack that never asks the model under attack (`transfer`) is not idle for that.
    """
    least = least_queries(attack, threat)
    short = threat.queries is not None and threat.queries < least

    def nothing(r: Record) -> bool:
        goal = (2 * r.clean_right > r.draws) != threat.targeted
        return goal and r.distance == 0 and (short or (least > 0 and r.queries == 0 == r.gradients))

    return [nothing(r) for r in records]


def tidy(x: Tensor, z: Tensor, ids: Tensor) -> Tensor:
    """z as images, in the box."""
    if z.shape != x.shape:
        raise BadInput(
            f"an attack must return images like x, {tuple(x.shape)}; found {tuple(z.shape)}. Mend the attack."
        )
    fine = largest(z) < math.inf
    if not fine.all():
        bad = ids.cpu()[~fine.cpu()].tolist()
        raise BadInput(
            f"an attack must return images without NaN or infinity; found some for {len(bad)} of {len(x)} images, "
            f"first for sample {bad[0]}. Mend the attack."
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
        _short(ball.distance(x, z), digits=9),  # finer than the ball's tolerance: on the sphere is in the ball
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


def _confidences(seen: Predictions, y: Tensor) -> tuple[list[float], list[float]]:
    p = seen.scores.double().softmax(2).mean(0)
    return _short(p.amax(1)), _short(p.gather(1, y[:, None]).squeeze(1))


def _short(v: Tensor, digits: int = 3) -> list[float]:
    """Three significant digits of a probability: enough for any report, and a sixth of the bytes."""
    return [float(f"{value:.{digits}g}") for value in v.tolist()]
