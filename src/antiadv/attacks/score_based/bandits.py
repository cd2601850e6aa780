"""Bandits: a gradient learnt pair by pair, with priors over time and space (Ilyas et al., ICLR 2019, arXiv:1807.07978).

    maximise   ℓ(z) = CE(s(z), y)                                over z in the ball around x
    probe      e = δ·n,  n ~ N(0, I/dim v);   a± = up(v ± e)                                           (1)
               g = [ℓ(z + σ·a₊/|a₊|₂) − ℓ(z + σ·a₋/|a₋|₂)] / (σδ) · e                                  (2)
    learn      Linf: v ← tanh(artanh v + h·g)          L2: v ← v + h·g                                 (3)
    step       z ← Π( z + η·ε · dir up(v) )            dir: sign (Linf), a/|a|₂ (L2)                   (4)
    stop       at the first fooling iterate

The prior v starts at zero and has `tile` × `tile` cells per channel; up() gives each pixel the value of its nearest
cell. For Linf, (3) is the exponentiated gradient p ← p·e^{hg} / (p·e^{hg} + (1−p)·e^{−hg}) on p = (v + 1)/2, written
so that it cannot overflow. `tile=0` is the prior over time alone (the paper's Bandits-T).

Notation:   v → `v`, up → `up`, σ → `sigma`, δ → `exploration`, h → `prior_step`, η → `step_size` (a share of ε). These
            four are `none` by default, which means the authors' value for the norm (`PUBLISHED`).
Cost:       two queries for the pair and one for the new iterate; nothing before the first. A budget B pays ⌊B / 3⌋
            updates; without a budget there are 4,999, the authors' 10k. They do not count the third query:
            `nes.published_updates(queries, 1)` converts.
Departures: those of `nes`. The authors go on after a success and may lose it; here the first fooling iterate is kept.
            Their tile of 50 is for images 299 wide; ours is 16, for 32. A tile larger than the image is cut to it,
            and it need not divide it. v is kept within ±(1 − 1e-6). While v is exactly zero, because no pair has
            differed yet, the step goes along e; the authors' attack does not move.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from antiadv.attacks._search.survivors import Survivors
from antiadv.attacks.score_based.nes import Values, steps_for, values
from antiadv.core.ball import Ball, per_row
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput, BadSpec
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import at_least

EDGE = 1 - 1e-6  # artanh is infinite at 1
AHEAD = 64  # updates for which e is drawn at once; at most as many as were made before, so that few are wasted
MAX_DRAWN = 1 << 20  # values in them, unless one update has more: 8 MiB with their opposites


@dataclass(frozen=True)
class Setting:
    """The four options for which the authors have one value per norm."""

    step_size: float
    prior_step: float
    exploration: float
    sigma: float


PUBLISHED = {
    math.inf: Setting(step_size=0.2, prior_step=100.0, exploration=1.0, sigma=0.1),  # steps of 0.01 at ε = 0.05
    2: Setting(step_size=0.1, prior_step=0.1, exploration=0.01, sigma=0.01),  # steps of 0.5 at ε = 5
}


@dataclass(frozen=True)
class Bandits:
    """Time and data prior. An option left at `none` is the authors' value for the norm."""

    tile: int = 16
    step_size: float | None = None
    prior_step: float | None = None
    exploration: float | None = None
    sigma: float | None = None
    steps: int | None = None

    access: ClassVar[Access] = Access.SCORES
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = False
    edition: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least(0, tile=self.tile, steps=0 if self.steps is None else self.steps)
        for p in PUBLISHED:
            setting = self.setting(p)
            at_least(0, step_size=setting.step_size, prior_step=setting.prior_step)
            if not (setting.sigma > 0 and setting.exploration > 0):
                raise BadSpec(
                    f"sigma and exploration must be more than 0; found {setting.sigma!r} and {setting.exploration!r}. "
                    "Leave them out for the authors' values."
                )

    def setting(self, p: float) -> Setting:
        """The options as given, with the authors' values for the norm in place of `none`."""
        given = {name: getattr(self, name) for name in ("step_size", "prior_step", "exploration", "sigma")}
        return replace(PUBLISHED[p], **{name: value for name, value in given.items() if value is not None})

    def least_queries(self, threat: Threat) -> int:
        return 3

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        if x.ndim != 4:
            raise BadInput(f"bandits needs images [N, C, H, W]; found shape {tuple(x.shape)}. Reshape them.")
        setting = self.setting(ball.p)
        channels, *size = x.shape[1:]
        steps = steps_for(oracle, self.steps, 1)
        live = Survivors(oracle, x, y, draws, need=3)
        ask = values(live.oracle, live.y.repeat_interleave(2))
        z, last = live.x, 0
        v = z.new_zeros(len(z), channels, *(min(self.tile or side, side) for side in size))
        for t in range(steps):
            if not len(live):
                break
            if t == last:
                last = min(steps, t + max(1, min(t, AHEAD, MAX_DRAWN // max(1, v.numel()))))
                ahead = changes(live.draws, range(t, last), v, setting.exploration)
            e = ahead[:, t - last]  # a negative index, from the end
            g = estimate(ask, z, v, e, setting)
            v = climb(v, setting.prior_step * g) if ball.p == math.inf else v + setting.prior_step * g  # (3)
            way = torch.where(v.any((1, 2, 3), keepdim=True), v, e[:, 0])
            z = ball.project(live.x, z + setting.step_size * ball.eps * ball.steepest(up(way, *size)))  # (4)
            on = live.offer(z, live.oracle.scores(z))
            if on is not None:
                z, v, ahead = z[on], v[on], ahead[on]
                ask = values(live.oracle, live.y.repeat_interleave(2))
        return live.images()


def changes(draws: Draws, steps: range, v: Tensor, exploration: float) -> Tensor:
    """The random change e of the prior at each of these steps, with −e: `[N, steps, 2, …]`."""
    n = draws.repeat(len(steps), steps.start).normal(*v.shape[1:]).to(v)
    e = exploration * n / math.sqrt(v[:1].numel() or 1)
    return torch.stack([e, -e], 1).view(len(draws), len(steps), 2, *v.shape[1:])


def estimate(values: Values, z: Tensor, v: Tensor, e: Tensor, setting: Setting) -> Tensor:
    """(1) and (2): the slope along a change e of the prior, times e. `e` holds e and −e, `[N, 2, …]`."""
    a = up((v[:, None] + e).flatten(0, 1), *z.shape[2:])
    length = torch.linalg.vector_norm(a, dim=(1, 2, 3), keepdim=True).clamp_min(torch.finfo(a.dtype).tiny)
    a = (a / length).unflatten(0, (-1, 2))
    rise = values((z[:, None] + setting.sigma * a).flatten(0, 1))
    slope = (rise[::2] - rise[1::2]) / (setting.sigma * setting.exploration)
    return per_row(slope.to(v), v) * e[:, 0]


def climb(v: Tensor, step: Tensor) -> Tensor:
    """The exponentiated gradient step on [−1, 1]."""
    return torch.tanh(torch.atanh(v) + step).clamp(-EDGE, EDGE)


def up(v: Tensor, height: int, width: int) -> Tensor:
    """The prior as an image: each pixel takes its nearest cell, for any two sizes."""
    if v.shape[2:] == (height, width):
        return v
    cells = _cells(v.shape[1:], height, width, v.device)
    return v.flatten(1).index_select(1, cells).view(len(v), v.shape[1], height, width)


@functools.cache
def _cells(shape: torch.Size, height: int, width: int, device: torch.device) -> Tensor:
    """The number of the cell nearest to each pixel of each channel: `[C·H·W]`."""
    channel = torch.arange(shape[0], device=device)[:, None, None]
    row = torch.arange(height, device=device)[:, None] * shape[1] // height
    column = torch.arange(width, device=device) * shape[2] // width
    return ((channel * shape[1] + row) * shape[2] + column).flatten()
