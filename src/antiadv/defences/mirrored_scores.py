"""Mirrored scores (AAA: Chen et al., NeurIPS 2022, arXiv:2205.12134): scores that mislead attacks which compare them.

    margin     m = s_(1) − s_(2) of s = f(x);   confidence p = max softmax(s)
    interval   a = the middle of [k·τ, (k+1)·τ), the interval of width τ that holds m
    target     linear   t = a − α·(m − a)                        with α = 1 the interval is mirrored
               sine     t = m − 0.7·τ·sin( 2π·(m − a) / τ )
    answer     scores with margin t, the label of f, and a confidence as near to p as t allows

In closed form the two largest scores keep their mean and get the margin t. All other scores are moved by one number, so
that the confidence is p: their order stays, and none passes the second. Where t is too small for p, or the third class
is in the way, the margin is t and the confidence as near to p as that allows. With `exact` the answer comes from the
published optimisation instead: 100 steps of Adam from s on |m(z) − t| + 5·|p(z) − p|.

Inside an interval a search that lowers the margin is led back to where it came from. No label changes, so attacks on
labels and transfers from f lose nothing.

Notation:   τ → `tau`, α → `alpha`.
Cost:       one forward pass of f. No random numbers.
Departures: t is at least τ/1000, and a sample whose label would still change is answered with s. The authors' code
            rounds images to 8 bits first. They average over the batch; here each sample has its own optimisation, with
            its gradient written out. The gradient of `exact` is that of f.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from antiadv.core.defence import TRANSFERS, Defence
from antiadv.core.errors import BadInput
from antiadv.core.losses import wide
from antiadv.core.validation import check_flag, is_number

WIDEST = 1000.0  # interval, and
NARROWEST = 0.01  # in logits
LEAST = 1e-3  # margin, as a share of τ
FAINT = 1e-3  # least weight of all other classes together, where that of the largest is 1
ITERATIONS, RATE, WEIGHT = 100, 0.1, 5.0  # of the published optimisation
DECAY, SQUARE_DECAY, TINY = 0.9, 0.999, 1e-8  # Adam's


class MirroredScores(Defence):
    """The classifier `base` with its margins mirrored inside intervals of width `tau`.

    Choose the width by the margins of the network: robust networks have small ones, and need a smaller `tau`.

    >>> import torch
    >>> f = torch.nn.Linear(4, 3).eval()
    >>> g = MirroredScores(f, tau=1)
    >>> bool((g(torch.eye(4)).argmax(1) == f(torch.eye(4)).argmax(1)).all())
    True
    """

    adaptive: ClassVar[tuple[str, ...]] = (
        *TRANSFERS,
        "square:accept=both,steps=1000",
        "square:accept=pendulum,steps=1000",
    )

    def __init__(
        self,
        base: nn.Module,
        tau: float = 4.0,
        alpha: float = 1.0,
        kind: Literal["linear", "sine"] = "linear",
        exact: bool = False,
    ) -> None:
        super().__init__(base)
        if not is_number(tau, WIDEST) or tau < NARROWEST:
            raise BadInput(f"tau, a width in logits, must be {NARROWEST:g} … {WIDEST:g}; found {tau!r}. Use 4.")
        if not is_number(alpha, 1):
            raise BadInput(f"alpha must be 0 … 1; found {alpha!r}. Use 1.")
        if kind not in ("linear", "sine"):
            raise BadInput(f"kind is linear or sine; found {kind!r}. Use linear.")
        check_flag(exact=exact)
        self.tau, self.alpha, self.exact = float(tau), float(alpha), exact
        self.kind: Literal["linear", "sine"] = kind

    def surrogate(self, kappa: float = 3.0) -> nn.Module:
        """The smooth version is f itself, for any κ."""
        return self.base

    def forward(self, x: Tensor) -> Tensor:
        s = wide(self.ask(x))
        u = s.double()  # so that results do not depend on the batch size
        moved = self._optimised(u) if self.exact else self._closed(u)
        kept = (moved.to(s).argmax(1) == s.argmax(1))[:, None]
        return torch.where(kept, moved.to(s), s)

    def target(self, m: Tensor) -> Tensor:
        """t for margins m ≥ 0."""
        a = ((m / self.tau).floor() + 0.5) * self.tau
        if self.kind == "linear":
            t = a - self.alpha * (m - a)
        else:
            t = m - 0.7 * self.tau * torch.sin(2 * math.pi * (m - a) / self.tau)
        return t.clamp_min(LEAST * self.tau)

    def _closed(self, s: Tensor) -> Tensor:
        two = s.topk(2, dim=1)
        label = s.argmax(1, keepdim=True)  # in a tie `topk` may choose another
        second = torch.where(two.indices[:, :1] == label, two.indices[:, 1:], two.indices[:, :1])
        first, next_ = two.values.split(1, 1)
        t, middle = self.target(first - next_), (first + next_) / 2
        high, low = middle + t / 2, middle - t / 2
        if s.shape[1] > 2:
            rest = s.scatter(1, two.indices, -math.inf)
            p = s.softmax(1).amax(1, keepdim=True)
            weight = (1 / p - 1 - (-t).exp()).clamp_min(FAINT)  # of all others, where that of the first is 1
            shift = high + weight.log() - rest.logsumexp(1, keepdim=True)
            most = low - LEAST * self.tau - rest.amax(1, keepdim=True)  # the third stays below the second
            s = s + torch.minimum(shift, most)
        return s.scatter(1, label, high).scatter(1, second, low)

    def _optimised(self, s: Tensor) -> Tensor:
        """Adam on |m(z) − t| + 5·|p(z) − p|, each sample on its own. Works without autograd."""
        u = s.detach()
        two, label, p = u.topk(2, dim=1).values, u.argmax(1, keepdim=True), u.softmax(1).amax(1, keepdim=True)
        t, own = self.target(two[:, :1] - two[:, 1:]), torch.zeros_like(u).scatter(1, label, 1.0)
        z, mean, square = u, torch.zeros_like(u), torch.zeros_like(u)
        for i in range(1, ITERATIONS + 1):
            top = z.topk(2, dim=1)
            margin, q = top.values[:, :1] - top.values[:, 1:], z.softmax(1)
            ends = torch.zeros_like(z).scatter(1, top.indices[:, :1], 1.0).scatter(1, top.indices[:, 1:], -1.0)
            q_own = q.gather(1, label)
            g = (margin - t).sign() * ends + WEIGHT * (q_own - p).sign() * q_own * (own - q)
            mean, square = DECAY * mean + (1 - DECAY) * g, SQUARE_DECAY * square + (1 - SQUARE_DECAY) * g * g
            unbiased, size = mean / (1 - DECAY**i), (square / (1 - SQUARE_DECAY**i)).sqrt()
            z = z - RATE * unbiased / (size + TINY)
        return s + (z - u)
