"""FAB: the nearest point across the boundary, by linear steps (Croce and Hein, ICML 2020, arXiv:1907.02044).

    minimise   |z − x|_p                                  over fooling z in the box
    linear     f(z) = s_t(z) − s_y(z),  w = ∇f(z):  the boundary is near  { u : f(z) + <w, u − z> = 0 }
               d₁, d₂ = the shortest ways to it in the box from z and from x (`to_plane`)                  (1)
    step       z ← (1−α)(z + η·d₁) + α(x + η·d₂),   α = min( |d₁| / (|d₁| + |d₂|), α_max )                 (2)
    fooled     keep z if it is the closest so far; then z ← x + β(z − x)                                   (3)
    class      t = argmin_k |f_k| / |∇f_k|_q at each step, q dual to p; with targets, t = the 2nd, 3rd, …
               class at x, one after the other. Any wrong label counts.                                    (4)
    restarts   from x + (ε/2)·d/|d| for a random d

Notation:   α_max → `alpha_max`, η → `eta`, β → `beta`, p → `ball.p`.
Cost:       per restart two queries a step, one for w and one for the new point: 200. Gradients: one per step and
            class, so 100·K without targets (and K images of memory per sample). With targets, the same for each
            target with one gradient a step, and one query to rank the classes: 1,801 queries for nine. Without a
            radius (ε = ∞) eight more at the end. The authors use one more prediction per target.
Departures: with a finite ε a sample stops at its first fooling point in the ball; the authors go on to shorten it.
            With ε = ∞ the way from x to the closest point is halved eight times at the end, as in the paper but not
            in the authors' later code. Points of (3) are already scored in the next step, and kept if they fool. If
            w = 0 there is no plane, and z moves to a random point as for a restart. Its radius is half the closest
            distance if ε = ∞, and half of 0.3 (Linf) or 1 (L2) before there is one. A targeted threat aims at y
            itself, with f = s_y − max s_k and one gradient a step, whatever `targets` is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from antiadv.attacks._search.closest import enough
from antiadv.attacks._search.projections import to_plane
from antiadv.attacks._search.survivors import Survivors
from antiadv.attacks.white_box.apgd import rank
from antiadv.core.ball import Ball, per_row
from antiadv.core.draws import Draws
from antiadv.core.errors import BadSpec
from antiadv.core.losses import gap, rival
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import at_least

HALVINGS = 8  # of the last part, (1 − β) of the way: to 4e-4 of the distance
TIE = 1e-5  # share of the largest score; float32 passes of different batch sizes differ by less
FIRST_REACH = {math.inf: 0.3, 2: 1.0}  # the authors' radii if none is given


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
                    f"{name} must be in [0, 1]; found {getattr(self, name)!r}. Leave it out for the authors' value."
                )

    def least_queries(self, threat: Threat) -> int:
        ranks = self.targets > 0 and not threat.targeted  # one query for x ranks the classes
        return 2 + ranks  # the first query is x itself

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        live = Survivors(oracle, x, y, draws)
        ranked = None
        if self.targets and not oracle.targeted:
            s = live.oracle.scores(live.x)
            ranked = rank(live, s, self.targets, len(x))
            leave(live, keep(live, live.x, s, ball).tolist(), ball)
        for turn in range(self.restarts * (1 if ranked is None else ranked.shape[1])):
            if not len(live):
                break
            aim = None if ranked is None else ranked[live.rows.to(y.device), turn // self.restarts]
            self._run(live, aim, ball, turn)
        if ball.eps == math.inf:
            self._shorten(live, ball)
        return live.images()

    def _run(self, live: Survivors, aim: Tensor | None, ball: Ball, turn: int) -> None:
        z = live.x if turn % self.restarts == 0 else near(live, ball, live.draws.fold(turn).fold(0))
        for t in range(1, self.steps + 1):
            if not len(live):
                return
            s, f, w = linearise(live.oracle, z, live.y, aim, ball.p)
            done, flat = keep(live, z, s, ball), (w.flatten(1) == 0).all(1)
            z = self._step(live.x, z, f, w, ball)
            gone, lost = torch.stack([done, flat]).tolist()  # one wait for the device
            on = leave(live, gone, ball)
            if on is not None:
                z, flat, aim = z[on], flat[on], None if aim is None else aim[on]
            if True in lost:
                z = torch.where(per_row(flat, z), near(live, ball, live.draws.fold(turn).fold(t)), z)
            s = live.oracle.scores(z)
            done, back = keep(live, z, s, ball), per_row(live.oracle.fooled(s, live.y), z)
            z = torch.where(back, live.x + self.beta * (z - live.x), z)  # (3)
            on = leave(live, done.tolist(), ball)
            if on is not None:
                z, aim = z[on], None if aim is None else aim[on]

    def _step(self, x: Tensor, z: Tensor, f: Tensor, w: Tensor, ball: Ball) -> Tensor:
        f = f.double()
        c = (w * (z.double() - x)).flatten(1).sum(1) - f
        both = to_plane(torch.cat([z, x]), torch.cat([w, w]), torch.cat([-f, c]), ball.p)
        d1, d2 = both.chunk(2)  # (1)
        n1, n2 = (torch.linalg.vector_norm(d.flatten(1), ball.p, dim=1).clamp_min(1e-8) for d in (d1, d2))
        a = per_row((n1 / (n1 + n2)).clamp_max(self.alpha_max), z)
        return ((1 - a) * (z + self.eta * d1) + a * (x + self.eta * d2)).clamp(0, 1)  # (2)

    def _shorten(self, live: Survivors, ball: Ball) -> None:
        """Halve the last part of the way to the closest point, `HALVINGS` times."""
        live.dismiss((live.m == math.inf).tolist())
        far = live.z - live.x
        low, high = live.x.new_full((len(live),), self.beta), live.x.new_ones(len(live))
        for _ in range(HALVINGS):
            if not len(live):
                return
            middle = (low + high) / 2
            z = live.x + per_row(middle, far) * far
            s = live.oracle.scores(z)
            hit = live.oracle.fooled(s, live.y)
            low, high = torch.where(hit, low, middle), torch.where(hit, middle, high)
            on = leave(live, keep(live, z, s, ball).tolist(), ball)
            if on is not None:
                low, high, far = low[on], high[on], far[on]


def keep(live: Survivors, z: Tensor, s: Tensor, ball: Ball) -> Tensor:
    """Keep z where it fools and is closer than `live.m`. Returns which samples are done: those within the radius."""
    fooled, distance = live.oracle.fooled(s, live.y), ball.distance(live.x, z)
    if ball.eps < math.inf:  # the first success ends the search, and the judge may see a tie differently
        fooled &= live.oracle.margin(s, live.y).abs() > TIE * s.abs().amax(1)
    closer = fooled & (distance < live.m)
    live.keep(z, distance, closer)
    return closer & (distance <= enough(ball))


def leave(live: Survivors, done: list[bool], ball: Ball) -> Tensor | None:
    """Let done samples leave: with a radius, once the judge confirms; without one, only if x itself fools."""
    return live.dismiss(done) if ball.eps == math.inf else live.release(done, refused=math.inf)


def linearise(oracle: Oracle, z: Tensor, y: Tensor, aim: Tensor | None, p: float) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, f and w = ∇f at z. f is positive where z fools."""
    if oracle.targeted:
        s, w = oracle.gradient(z, _lag, y)  # negated by the oracle
        return s, -oracle.margin(s, y), w
    if aim is not None:
        s, w = oracle.gradient(z, gap, y, aim)
        return s, gap(s, y, aim), w
    s, j = oracle.jacobian(z)
    every = torch.arange(len(y), device=y.device)
    f, j = s - s.gather(1, y[:, None]), j - j[every, y][:, None]
    dual = torch.linalg.vector_norm(j.flatten(2), 1 if p == math.inf else 2, dim=2)
    near = (f.abs() / (dual + 1e-12)).scatter(1, y[:, None], math.inf).argmin(1)  # (4)
    return s, f[every, near], j[every, near]


def _lag(s: Tensor, y: Tensor) -> Tensor:
    return gap(s, y, rival(s, y))


def near(live: Survivors, ball: Ball, draws: Draws) -> Tensor:
    """A random point at half the radius; without a radius, at half the closest distance."""
    x, p = live.x, ball.p
    reach = live.m.clamp_max(ball.eps)
    reach = torch.where(reach < math.inf, reach, FIRST_REACH[p]).to(x)
    d = (2 * draws.uniform(*x.shape[1:]) - 1 if p == math.inf else draws.normal(*x.shape[1:])).to(x)
    n = torch.linalg.vector_norm(d.flatten(1), p, dim=1).clamp_min(1e-12)
    return (x + per_row(reach / 2 / n, d) * d).clamp(0, 1)
