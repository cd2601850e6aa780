"""HopSkipJump: walk along the boundary by gradients of the label (Chen et al., S&P 2020, arXiv:1904.02144).

    minimise   |z − x|_p                                     over fooling z in the box
    start      noise that fools, then back towards x to the boundary by halving, to the share θ of the way
    estimate   φ_i = ±1, whether z + δ·u_i fools, for B random u_i of length 1;  u_i ← clip(z + δ·u_i) − z
               g = Σ (φ_i − mean φ)·u_i;  if all φ are equal, g = φ·Σ u_i                                  (1)
    step       z ← clip(z + ξ·v), ξ = |z − x|_p / √j, halved until it fools;  v = g/|g|₂, or sign g in Linf  (2)
    back       to the boundary by halving, as at the start                                                 (3)
    schedule   at step j = 1, 2, …   B = min(B₀√j, B_max);   δ = 0.1 at j = 1, then √d·θ·r (L2) or d·θ·r (Linf),
               r = the distance of z before it last went back;   θ = γ/d^1.5 (L2) or γ/d² (Linf)           (4)

Against a memory of queries (OARS: Feng et al., CCS 2023), whether a query was refused as a repetition tells how far
apart probes must be:

    avoid      δ is doubled before a step until at most one of 5 probes is refused, up to 16 times; refused probes
               do not count in (1); the way back (3) ends at the first refused query, also without `avoid`

Notation:   B₀ → `probes`, B_max → `max_probes`, γ → `gamma`, θ → `theta`, δ → `delta`, ξ → `length`, r → `far`.
            u is Gaussian (L2) or uniform (Linf) before it is scaled to length 1, in L2 for both.
Cost:       one query for x, 1 … `tries` for the start, then B a step and log₂ 1/θ to go back (on CIFAR 18 in L2, 20 in
            Linf), and one for ξ and one per halving of it, at most 25. The last step takes what is left.
Departures: every sample has its own random numbers, lengths and norms (foolbox divides by one norm per batch). θ is at
            least 2⁻²⁰, below which float32 images do not differ (the authors' Linf rule gives 2⁻²⁴ on CIFAR), and at
            most 2⁻¹⁰, or small images would not come within 1 %; δ follows θ. A step that does not fool after 25
            halvings is not made; theirs has no end. The start goes back once, theirs twice. If noise does not fool,
            coarser noise is tried too. `avoid` doubles δ where the authors halve an interval, and draws no probe again.
            The closest of all images is returned; the authors return the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from antiadv.attacks._search.nearest import Nearest
from antiadv.core.ball import L2, Ball, per_row
from antiadv.core.draws import Draws
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import at_least

FIRST_DELTA = 0.1
FINEST, COARSEST = 2.0**-20, 2.0**-10  # bounds on θ
HALVINGS = 25  # of a step
ASKED, DOUBLINGS, APART = 5, 16, 0x0A25  # of `avoid`: probes at a time, doublings, and a fold of the random numbers
PROBES = 64  # computed at a time for a sample
GPU_VALUES = 1 << 26  # most values held at a time over all samples: 256 MiB a copy
CPU_VALUES = 1 << 20  # the same on a CPU: 4 MiB, which fits its cache

Noise = Callable[[Draws], Tensor]  # M keys to M images of noise


@dataclass(frozen=True)
class HopSkipJump:
    """The authors' setting: 64 steps with 100·√j probes."""

    steps: int = 64
    probes: int = 100
    max_probes: int = 10_000
    gamma: float = 1.0
    tries: int = 100
    avoid: bool = False

    access: ClassVar[Access] = Access.LABELS
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = True
    edition: ClassVar[int] = 1
    later: ClassVar[tuple[str, ...]] = ("avoid",)

    def __post_init__(self) -> None:
        at_least(0, steps=self.steps, tries=self.tries, gamma=self.gamma)
        at_least(1, probes=self.probes, max_probes=self.max_probes)

    def least_queries(self, threat: Threat) -> int:
        return 2  # the first query is x itself

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        shape = x.shape[1:]
        d = max(1, math.prod(shape))
        linf = ball.p == math.inf

        def noise(keys: Draws) -> Tensor:
            return (2 * keys.uniform(*shape) - 1 if linf else keys.normal(*shape)).to(x)

        theta = self.gamma / (d**2 if linf else d**1.5)
        walk = Walk(self.steps, self.probes, self.max_probes, self.tries, theta, self.avoid)
        return walk(Nearest(oracle, x, y, ball), noise, draws)


@dataclass(frozen=True)
class Walk:
    """The walk, for any noise and any θ. HopSkipJump has noise in every pixel, QEBA in a subspace."""

    steps: int
    probes: int
    max_probes: int
    tries: int
    theta: float
    avoid: bool = False

    def __call__(self, nearest: Nearest, noise: Noise, draws: Draws) -> Tensor:
        x, ball = nearest.x, nearest.ball
        theta = min(max(self.theta, FINEST), COARSEST)
        d = max(1, math.prod(x.shape[1:]))
        spread = (d if ball.p == math.inf else math.sqrt(d)) * theta  # δ as a share of r
        back = math.ceil(-math.log2(theta)) + 1  # queries reserved for the step and the way back
        rows = nearest.start(draws.fold(0), self.tries)
        z = nearest.z.clone()
        z[rows] = nearest.bisect(rows, z[rows], theta)
        delta = torch.full_like(nearest.distance, FIRST_DELTA)
        for j in range(1, self.steps + 1):  # (4)
            if self.avoid:
                delta[rows] = apart(nearest, rows, z[rows], delta[rows], noise, draws[rows].fold(j).fold(APART))
            left = nearest.oracle[rows].left().to(rows.device) - back
            going = nearest.going(rows) & (left > 0)
            rows, left = rows[going], left[going]
            if not len(rows):
                break
            probes = min(int(self.probes * math.sqrt(j)), self.max_probes)
            paid = torch.where(
                left < 1.5 * probes + back, left, probes
            )  # all that is left, if it pays for no other step
            g = estimate(nearest, rows, z[rows], delta[rows], noise, draws[rows].fold(j), paid)  # (1)
            length = ball.distance(x[rows], z[rows]) / math.sqrt(j)
            moved, w = step(nearest, rows, z[rows], ball.steepest(g), length)  # (2)
            delta[rows[moved]] = spread * ball.distance(x[rows[moved]], w[moved])
            z[rows[moved]] = nearest.bisect(rows[moved], w[moved], theta)  # (3)
        return nearest.settled()


def apart(nearest: Nearest, rows: Tensor, z: Tensor, delta: Tensor, noise: Noise, draws: Draws) -> Tensor:
    """The first of δ, 2δ, 4δ, … at which at most one of a few probes is refused."""
    delta = delta.clone()
    narrow = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    for t in range(DOUBLINGS + 1):
        left = nearest.oracle[rows].left().to(rows.device)
        on = (narrow & nearest.going(rows) & (left > 2 * ASKED)).nonzero().squeeze(1)
        if not len(on):
            break
        u = L2(math.inf).steepest(noise(draws[on].fold(t).repeat(ASKED))).view(len(on), ASKED, *z.shape[1:])
        w = (z[on, None] + per_row(delta[on].to(z), u) * u).clamp(0, 1)
        asked = torch.ones(len(on), ASKED, dtype=torch.bool, device=rows.device)
        nearest.ask_many(rows[on], w.flatten(0, 1), asked)
        narrow[on] = nearest.refused.sum(1) > 1
        delta[on] = torch.where(narrow[on], 2 * delta[on], delta[on])
    return delta


def estimate(
    nearest: Nearest, rows: Tensor, z: Tensor, delta: Tensor, noise: Noise, draws: Draws, paid: Tensor
) -> Tensor:
    """(1): g at z, up to its length, from `paid` probes for each row."""
    probes = int(paid.max())
    most = CPU_VALUES if z.device.type == "cpu" else GPU_VALUES
    part = max(1, most // (min(PROBES, probes) * max(1, z[0].numel())))
    return torch.cat(
        [
            _estimate(nearest, rows[m], z[m], delta[m], noise, draws[m], probes, paid[m])
            for m in torch.arange(len(rows), device=rows.device).split(part)
        ]
    )


def _estimate(
    nearest: Nearest, rows: Tensor, z: Tensor, delta: Tensor, noise: Noise, draws: Draws, probes: int, paid: Tensor
) -> Tensor:
    keys = draws.repeat(probes).keys.view(len(rows), probes)
    signed, total = torch.zeros_like(z), torch.zeros_like(z)  # Σ φ·u and Σ u
    sum_phi, count = delta.new_zeros(len(rows)), delta.new_zeros(len(rows))
    for number in torch.arange(probes, device=rows.device).split(PROBES):
        asked = number < paid[:, None]
        u = L2(math.inf).steepest(noise(Draws(keys[:, number].flatten())))
        u = u.view(*asked.shape, *z.shape[1:])
        w = (z[:, None] + per_row(delta.to(z), u) * u).clamp(0, 1)
        fooled = nearest.ask_many(rows, w.flatten(0, 1), asked)
        known = asked & ~nearest.refused
        phi = (2 * fooled.to(delta) - 1) * known
        u = (w - z[:, None]) * known.view(*asked.shape, *[1] * (z.ndim - 1))
        signed += (u * phi.to(z).view(*asked.shape, *[1] * (z.ndim - 1))).sum(1)
        total += u.sum(1)
        sum_phi += phi.sum(1)
        count += known.sum(1)
    mean = sum_phi / count.clamp(min=1)
    g = signed - per_row(mean.to(z), z) * total
    return torch.where(per_row(mean.abs() == 1, z), per_row(mean.to(z), z) * total, g)


def step(nearest: Nearest, rows: Tensor, z: Tensor, v: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """(2): which rows have a fooling point along v, and the points."""
    moved = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    out = z.clone()
    for _ in range(HALVINGS + 1):
        on = (~moved & nearest.going(rows)).nonzero().squeeze(1)
        if not len(on):
            break
        w = (z[on] + per_row(length[on].to(z), z) * v[on]).clamp(0, 1)
        moved[on] = nearest.ask(rows[on], w)
        out[on] = torch.where(per_row(moved[on], w), w, out[on])
        length = length / 2
    return moved, out
