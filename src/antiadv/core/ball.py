"""The allowed region: an Linf or L2 ball around x, always intersected with the box [0, 1].

    distance   |z − x|_p                                  [N], in float64
    project    Linf: the nearest point of ball ∩ box.     L2: scale into the ball, then clip into the box;
               since x lies in the box, clipping only moves coordinates towards x, so the point stays in the ball.
    steepest   argmax of <g, d> over |d|_p ≤ 1            Linf: sign g.  L2: g / |g|₂.  Zero stays zero.
    random     uniform in the ball, clipped into the box

Notation:   ε → `eps`; ε = ∞ means that the attack minimises the distance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from antiadv.core.draws import Draws
from antiadv.core.errors import BadSpec
from antiadv.core.spec import show_number

TOLERANCE = 1e-6  # float32 pixels have 6e-8 of rounding per operation; a step of a byte is 4e-3


def per_row(v: Tensor, like: Tensor) -> Tensor:
    """`[N]` to `[N, 1, …, 1]`, to multiply `like` sample by sample."""
    return v.reshape(-1, *[1] * (like.ndim - 1))


@dataclass(frozen=True)
class Ball:
    """Points within `eps` of x in the p-norm (p = 2 or ∞). Made by `Linf(eps)` and `L2(eps)`."""

    p: float
    eps: float

    def __post_init__(self) -> None:
        if self.p not in (2, math.inf):
            raise BadSpec(f"a ball needs p = 2 or p = inf; found {self.p}")
        if not self.eps >= 0:
            raise BadSpec(f"a ball needs a radius eps ≥ 0; found {self.eps}")

    def __str__(self) -> str:
        return f"{'linf' if self.p == math.inf else 'l2'}:{show_number(float(self.eps))}"

    def distance(self, x: Tensor, z: Tensor) -> Tensor:
        d = z.to(torch.float64, copy=True).sub_(x).flatten(1)
        if d.shape[1] == 0:
            return d.new_zeros(len(d))
        return d.abs_().amax(1) if self.p == math.inf else d.square_().sum(1).sqrt_()

    @cached_property  # a report reads it for every record
    def reach(self) -> float:
        """The largest distance that counts as inside: the radius plus a tolerance for rounding."""
        return self.eps + TOLERANCE * max(1.0, self.eps)

    def project(self, x: Tensor, z: Tensor) -> Tensor:
        if self.eps == math.inf:
            return z.clamp(0, 1)
        if self.p == math.inf:
            return z.clamp(x - self.eps, x + self.eps).clamp(0, 1)
        d = z - x
        n = d.flatten(1).norm(dim=1).clamp_min(1e-12)
        return (x + d * per_row((self.eps / n).clamp_max(1), d)).clamp(0, 1)

    def steepest(self, g: Tensor) -> Tensor:
        if self.p == math.inf:
            return g.sign()
        n = g.flatten(1).norm(dim=1)
        return g / per_row(n.where(n > 0, torch.ones_like(n)), g)

    def random(self, x: Tensor, draws: Draws) -> Tensor:
        shape = x.shape[1:]
        if self.p == math.inf:
            return (x + self.eps * (2 * draws.uniform(*shape) - 1).to(x)).clamp(0, 1)
        d = self.steepest(draws.fold(0).normal(*shape).to(x))
        r = self.eps * draws.fold(1).uniform(1).to(x).squeeze(1) ** (1 / max(1, math.prod(shape)))
        return (x + d * per_row(r, x)).clamp(0, 1)


def Linf(eps: float) -> Ball:  # noqa: N802  named like the ball it makes
    """The ball of the largest change to any pixel.

    >>> print(Linf(8 / 255))
    linf:8/255
    >>> Linf(0.25).project(torch.tensor([[0.5, 0.0]]), torch.tensor([[0.9, -0.1]])).tolist()
    [[0.75, 0.0]]
    """
    return Ball(math.inf, _radius(eps))


def L2(eps: float) -> Ball:  # noqa: N802
    """The ball of the Euclidean norm over all pixels and channels.

    >>> print(L2(0.5))
    l2:0.5
    >>> L2(0.5).distance(torch.zeros(1, 3, 2, 2), torch.full((1, 3, 2, 2), 0.5)).tolist() == [3**0.5]
    True
    """
    return Ball(2, _radius(eps))


def _radius(eps: float) -> float:
    try:
        return float(eps)
    except (TypeError, ValueError):
        raise BadSpec(f"a ball needs a radius eps ≥ 0; found {eps!r}. Give a number, such as 8 / 255.") from None
