"""Per-sample losses on scores s `[N, K]`: each returns `[N]`, nothing is reduced over the batch.

    ce(s, y)       −log softmax(s)_y                                          rises as y loses confidence
    margin(s, y)   s_y − max_{k≠y} s_k                                        its sign is the decision
    dlr(s, y)      −margin(s, y) / (s_(1) − s_(3) + 1e-12)                    scale-free; (j) is the j-th largest

An attack hands one of these to `oracle.gradient(z, loss, y)`; the extra tensors are cut into micro-batches with z.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

Loss = Callable[..., Tensor]  # (scores [N, K], one or more tensors [N, …]) → [N]


def ce(s: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(s, y, reduction="none")


def margin(s: Tensor, y: Tensor) -> Tensor:
    own = s.gather(1, y[:, None])
    return (own - s.scatter(1, y[:, None], -math.inf).amax(1, keepdim=True)).squeeze(1)


def dlr(s: Tensor, y: Tensor) -> Tensor:
    """Needs three classes; with two, the largest minus the smallest takes the place of s_(1) − s_(3)."""
    top = s.topk(min(3, s.shape[1]), dim=1).values
    return -margin(s, y) / (top[:, 0] - top[:, -1] + 1e-12)


def negated(loss: Loss) -> Loss:
    """The same loss, downhill: for an attacker who wants the class y rather than to leave it."""
    return _NEGATED.setdefault(loss, _Negated(loss))


class _Negated:
    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    def __call__(self, s: Tensor, *targets: Tensor) -> Tensor:
        return -self.loss(s, *targets)


_NEGATED: dict[Loss, Loss] = {}  # one object per loss, so that a compiled graph can be found again by its loss
