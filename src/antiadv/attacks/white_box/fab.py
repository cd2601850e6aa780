"""FAB: the nearest point across the boundary, by linear steps (Croce and Hein, ICML 2020, arXiv:1907.02044).

    minimise   |z − x|_p                                  over fooling z in the box
    linear     f(z) = s_t(z) − s_y(z),  w = ∇f(z):  the boundary is near  { u : f(z) + <w, u − z> = 0 }
               d₁, d₂ = the shortest ways to it in the box from z and from x (`to_plane`)                  (1)
    step       z ← (1−α)(z + η·d₁) + α(x + η·d₂),   α = min( |d₁| / (|d₁| + |d₂|), α_max )                 (2)
    fooled     keep z if it is the closest so far; then z ← x + β(z − x)                                   (3)
    class      t = argmin_k |f_k| / |∇f_k|_q at each step, q dual to p; with targets, t = the 2nd, 3rd, …
               class at x, one after the other. Any wrong label will do.                                   (4)
    restarts   from x + (ε/2)·d/|d| for a random d

Notation:   α_max → `alpha_max`, η → `eta`, β → `beta`, p → `ball.p`.
Cost:       per restart two queries a step, one for w and one to see what the step came to: 200. Gradients: one a step
            and class, so 100·K without targets (and K images of memory a sample). With targets that for each, with
            one gradient a step, and one query to rank the classes: 1,801 queries for nine. With no radius (ε = ∞) eight
            more at the end. The authors' passes are the same, but for one more prediction per target.
Departures: with a finite ε a sample stops at its first fooling point in the ball, the authors go on to shorten it.
            With ε = ∞ the way from x to the closest point is halved eight times at the end, as in the paper and not
            in the authors' later code. Points stepped back to (3) are looked at for free, and kept where they still
            fool. Where w = 0 there is no plane, and z moves to a random point as for a restart; its radius is half the
            closest distance where ε = ∞, and half of 0.3 (Linf) or 1 (L2) before there is one. A targeted threat aims
            at y itself, with f = s_y − max s_k and one gradient a step, whatever `targets`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from antiadv.attacks.closest import Closest
from antiadv.attacks.white_box.apgd import rank
from antiadv.attacks.white_box.projections import to_plane
from antiadv.core.ball import Ball, per_row
from antiadv.core.door import at_least
from antiadv.core.draws import Draws
from antiadv.core.errors import BadSpec
from antiadv.core.losses import gap, rival
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access

HALVINGS = 8  # of the last stretch, (1 − β) of the way: to 4e-4 of the distance
FIRST_REACH = {math.inf: 0.3, 2: 1.0}  # the authors' radii where none is given


@dataclass(frozen=True)
class FAB:
    """The authors' setting: 100 steps, one start at x. `targets=9` is their FAB-T."""

    targets: int = 0
    steps: int = 100
    restarts: int = 1
    alpha_max: float = 0.1
    eta: float = 1.05
    beta: float = 0.9

    access: ClassVar[Access] = Access.GRADIENTS
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = True
    edition: ClassVar[int] = 2

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps, restarts=self.restarts, eta=self.eta)
        at_least(0, targets=self.targets)
        for name in ("alpha_max", "beta"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadSpec(
                    f"{name} is a share, in [0, 1]; found {getattr(self, name)!r}. Leave it out for FAB's own."
                )

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        closest = Closest(oracle, x, y, ball)
        aims: list[Tensor | None] = [None]
        if self.targets and not oracle.targeted:
            aims = [*rank(oracle, closest, x, y, self.targets)]
        for turn in range(len(aims) * self.restarts):
            self._run(oracle, closest, x, y, aims[turn // self.restarts], ball, draws.fold(turn), turn % self.restarts)
        if ball.eps == math.inf:
            self._shorten(oracle, closest, x)
        return closest.z

    def _run(
        self,
        oracle: Oracle,
        closest: Closest,
        x: Tensor,
        y: Tensor,
        aim: Tensor | None,
        ball: Ball,
        draws: Draws,
        restart: int,
    ) -> None:
        rows = closest.standing()
        z = x[rows] if restart == 0 else near(closest, rows, draws[rows].fold(0))
        for t in range(1, self.steps + 1):
            if not len(rows):
                return
            s, f, w = linearise(oracle[rows], z, y[rows], None if aim is None else aim[rows], ball.p)
            keep = closest.offer(rows, z, s).nonzero().squeeze(1)
            rows, z, f, w = rows[keep], z[keep], f[keep], w[keep]
            z = self._step(x[rows], z, f, w, ball)
            flat = (w.flatten(1) == 0).all(1)
            if flat.any():
                z = torch.where(per_row(flat, z), near(closest, rows, draws[rows].fold(t)), z)
            s = oracle[rows].scores(z)
            keep = closest.offer(rows, z, s).nonzero().squeeze(1)
            back = per_row(oracle.fooled(s, y[rows]), z)
            z = torch.where(back, x[rows] + self.beta * (z - x[rows]), z)[keep]  # (3)
            rows = rows[keep]

    def _step(self, x: Tensor, z: Tensor, f: Tensor, w: Tensor, ball: Ball) -> Tensor:
        c = (w.double() * (z.double() - x.double())).flatten(1).sum(1) - f.double()
        both = to_plane(torch.cat([z, x]), torch.cat([w, w]), torch.cat([-f.double(), c]), ball.p)
        d1, d2 = both.chunk(2)  # (1)
        n1, n2 = (torch.linalg.vector_norm(d.flatten(1), ball.p, dim=1).clamp_min(1e-8) for d in (d1, d2))
        a = per_row((n1 / (n1 + n2)).clamp_max(self.alpha_max), z)
        return ((1 - a) * (z + self.eta * d1) + a * (x + self.eta * d2)).clamp(0, 1)  # (2)

    def _shorten(self, oracle: Oracle, closest: Closest, x: Tensor) -> None:
        """Halve the last stretch of the way to the closest point, again and again."""
        rows = closest.standing()
        rows = rows[closest.distance[rows] < math.inf]
        far = closest.z[rows] - x[rows]
        low, high = x.new_full((len(rows),), self.beta), x.new_ones(len(rows))
        for _ in range(HALVINGS):
            if not len(rows):
                return
            middle = (low + high) / 2
            z = x[rows] + per_row(middle, far) * far
            s = oracle[rows].scores(z)
            keep = closest.offer(rows, z, s).nonzero().squeeze(1)
            hit = oracle.fooled(s, closest.y[rows])
            low, high = torch.where(hit, low, middle)[keep], torch.where(hit, middle, high)[keep]
            rows, far = rows[keep], far[keep]


def linearise(oracle: Oracle, z: Tensor, y: Tensor, aim: Tensor | None, p: float) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, f and w = ∇f at z: f rises towards what the attacker wants, and is positive there."""
    if oracle.targeted:
        s, w = oracle.gradient(z, _lag, y)  # which the oracle turns round
        return s, -oracle.margin(s, y), w
    if aim is not None:
        s, w = oracle.gradient(z, gap, y, aim)
        return s, gap(s, y, aim), w
    s, j = oracle.jacobian(z)
    here = torch.arange(len(y), device=y.device)
    f, j = s - s.gather(1, y[:, None]), j - j[here, y][:, None]
    dual = torch.linalg.vector_norm(j.flatten(2), 1 if p == math.inf else 2, dim=2)
    near = (f.abs() / (dual + 1e-12)).scatter(1, y[:, None], math.inf).argmin(1)  # (4)
    return s, f[here, near], j[here, near]


def _lag(s: Tensor, y: Tensor) -> Tensor:
    return gap(s, y, rival(s, y))


def near(closest: Closest, rows: Tensor, draws: Draws) -> Tensor:
    """A random point at half the radius, or at half the closest distance where there is no radius."""
    x, p = closest.x[rows], closest.ball.p
    reach = closest.distance[rows].clamp_max(closest.ball.eps)
    reach = torch.where(reach < math.inf, reach, FIRST_REACH[p]).to(x)
    d = (2 * draws.uniform(*x.shape[1:]) - 1 if p == math.inf else draws.normal(*x.shape[1:])).to(x)
    n = torch.linalg.vector_norm(d.flatten(1), p, dim=1).clamp_min(1e-12)
    return (x + per_row(reach / 2 / n, d) * d).clamp(0, 1)
