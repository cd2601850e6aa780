"""Per-sample losses on scores s `[N, K]`: each returns `[N]`, without a reduction over the batch.

    ce(s, y)       −log softmax(s)_y                                          rises as y loses confidence
    margin(s, y)   s_y − max_{k≠y} s_k                                        its sign is the decision
    dlr(s, y)      −margin(s, y) / (s_(1) − s_(3) + 1e-12)                    scale-free; (j) is the j-th largest
    gap(s, y, t)   s_t − s_y                                                  t overtakes y where it turns positive
    dlr_to(s, y, t), ce_to(s, y, t)                                           rise as t gains on y
    weighted(s, v) Σ_k v_k s_k                                                its gradient is a vector-Jacobian product

An attack passes one of these to `oracle.gradient(z, loss, y)`. The tensors after `loss` are cut into micro-batches like
z.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

Loss = Callable[..., Tensor]  # (scores [N, K], one or more tensors [N, …]) → [N]


def wide(t: Tensor) -> Tensor:
    """The same numbers in float32; float64 stays."""
    return t if t.dtype == torch.float64 else t.float()


def signs(g: Tensor, s: Tensor) -> Tensor:
    """The signs of a gradient g of the scores s `[N, K]`.

    NaN where g has NaN or infinity, for which `torch.sign` gives 0 or ±1, and for each sample whose scores have any.
    """
    unsound = (0 * wide(s.detach()).sum(1)).to(g).view(-1, *[1] * (g.ndim - 1))  # 0, or NaN
    return torch.add(g.sign() + unsound, g, alpha=0)


def ce(s: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(s, y, reduction="none")


def margin(s: Tensor, y: Tensor) -> Tensor:
    own = s.gather(1, y[:, None])
    return (own - s.scatter(1, y[:, None], -math.inf).amax(1, keepdim=True)).squeeze(1)


def gap(s: Tensor, y: Tensor, t: Tensor) -> Tensor:
    return (s.gather(1, t[:, None]) - s.gather(1, y[:, None])).squeeze(1)


def rival(s: Tensor, y: Tensor) -> Tensor:
    """The best class other than y."""
    return s.scatter(1, y[:, None], -math.inf).argmax(1)


def dlr(s: Tensor, y: Tensor) -> Tensor:
    """Needs three classes. With two it is −margin, since margin / (s_(1) − s_(2)) would be ±1 everywhere."""
    if s.shape[1] < 3:
        return -margin(s, y)
    top = s.topk(3, dim=1).values
    return -margin(s, y) / (top[:, 0] - top[:, 2] + 1e-12)


def dlr_to(s: Tensor, y: Tensor, t: Tensor) -> Tensor:
    """(s_t − s_y) / (s_(1) − ½(s_(3) + s_(4)) + 1e-12). Needs four classes; with fewer it is s_t − s_y."""
    if s.shape[1] < 4:
        return gap(s, y, t)
    top = s.topk(4, dim=1).values
    return gap(s, y, t) / (top[:, 0] - (top[:, 2] + top[:, 3]) / 2 + 1e-12)


def dlr_lead(s: Tensor, y: Tensor) -> Tensor:
    """`dlr` with the denominator of `dlr_to`, for targeted attacks: `dlr` is constant where y is third."""
    return dlr_to(s, y, rival(s, y))


def ce_to(s: Tensor, y: Tensor, t: Tensor) -> Tensor:
    return -ce(s, t)


def weighted(s: Tensor, v: Tensor) -> Tensor:
    return (s * v).sum(1)


def negated(loss: Loss) -> Loss:
    """−loss, for targeted attacks."""
    return _NEGATED.setdefault(loss, _Negated(loss))


class _Negated:
    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    def __call__(self, s: Tensor, *targets: Tensor) -> Tensor:
        return -self.loss(s, *targets)


_NEGATED: dict[Loss, Loss] = {}  # one object per loss: graphs are cached by loss
