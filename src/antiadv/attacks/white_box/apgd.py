"""APGD: projected gradient ascent that sets its own step size (Croce and Hein, ICML 2020, arXiv:2003.01690).

    maximise   L(s(z), y)                               over z in the ball around x
    start      z⁰ on the sphere of radius ε around x, clipped into the box
    step       u = Π( zᵗ + η·dir ∇L(zᵗ) ),   zᵗ⁺¹ = Π( zᵗ + a(u − zᵗ) + (1−a)(zᵗ − zᵗ⁻¹) ),   a = ¾, first 1      (1)
    check      after 22, 41, 57, 70, 80, 87, 93, 99 % of the steps, each k steps after the last: halve η and go    (2)
               back to the best z, if no more than ρ·k of these k steps raised L                                  (3)
               or if the last check kept η and the best L has not risen since                                     (4)
    stop       at the first fooling iterate
    targeted   L(s(z), y, t) for t = the 2nd, 3rd, … class at x, one after the other; any wrong label counts

    L: ce(s, y), dlr(s, y);  with targets ce_to(s, y, t), dlr_to(s, y, t)      (`core.losses`)

Notation:   η → `step` (2ε at first), ρ → `rho`, Π → `ball.project`, k → `window`; the best z, its gradient and L →
            `top_z`, `top_g`, `top_f`.
Cost:       per restart `steps` queries with gradient and one for the last iterate: 101. The authors run 101 with
            gradient and one prediction. With targets, that for each target and one query to rank the classes: 910
            for nine. With `eot`, all but the ranking is multiplied by `eot`. A sample that cannot pay for a complete
            average stops.
Departures: a fooled sample stops. The classes are ranked once; the authors ask again for each target. With eot > 1
            the mean scores decide whether a sample is fooled, and the mean L is checked; the authors use the last
            draw's. As in their code, the first step counts as rising if its L is above zero, not above the start's;
            and after going back, zᵗ⁻¹ in (1) is still the point before the last. A targeted threat aims at y itself,
            whatever `targets` is. With two classes dlr is the margin; with three or fewer dlr_to is s_t − s_y.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from antiadv.attacks._search.survivors import Survivors
from antiadv.core.ball import Ball, per_row
from antiadv.core.draws import Draws
from antiadv.core.losses import Loss, ce, ce_to, dlr, dlr_lead, dlr_to, negated
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.core.validation import at_least

LOSSES: dict[str, tuple[Loss, Loss, Loss]] = {  # to leave y; to reach t from y; to reach y, negated by the oracle
    "ce": (ce, ce_to, ce),
    "dlr": (dlr, dlr_to, dlr_lead),
}


@dataclass(frozen=True)
class APGD:
    """The authors' setting: 100 steps, one start. `targets=9` with `loss=dlr` is their APGD-T."""

    loss: Literal["ce", "dlr"] = "ce"
    targets: int = 0
    steps: int = 100
    restarts: int = 1
    rho: float = 0.75
    eot: int = 1

    access: ClassVar[Access] = Access.GRADIENTS
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = False
    edition: ClassVar[int] = 1

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps, restarts=self.restarts, eot=self.eot)
        at_least(0, targets=self.targets, rho=self.rho)

    def least_queries(self, threat: Threat) -> int:
        ranks = self.targets > 0 and not threat.targeted  # one query for x ranks the classes
        return self.eot + ranks

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        live = Survivors(oracle, x, y, draws)
        leave, aim, reach = LOSSES[self.loss]
        loss, ranked = reach if oracle.targeted else leave, None
        if self.targets and not oracle.targeted:
            s = live.oracle.scores(live.x)
            loss, ranked = aim, rank(live, s, self.targets, len(x))
            live.offer(live.x, s)
        live.afford(self.eot)
        for turn in range(self.restarts * (1 if ranked is None else ranked.shape[1])):
            if not len(live):
                break
            t = [] if ranked is None else [ranked[live.rows.to(y.device), turn // self.restarts]]
            z = start(live.x, ball, live.draws.fold(turn))
            climb(live, z, ball, loss, *t, steps=self.steps, rho=self.rho, eot=self.eot)
        return live.images()


def rank(live: Survivors, s: Tensor, count: int, samples: int) -> Tensor:
    """The `count` best classes other than y (or all of them) by the scores s at x: `[samples, count]`.

    Rows of samples that are no longer in `live` hold zeros.
    """
    order = s.scatter(1, live.y[:, None], -math.inf).sort(dim=1, descending=True, stable=True).indices
    ranked = order.new_zeros(samples, min(count, s.shape[1] - 1))
    ranked[live.rows.to(s.device)] = order[:, : ranked.shape[1]]
    return ranked


def start(x: Tensor, ball: Ball, draws: Draws) -> Tensor:
    """x + ε·d/|d|, clipped into the box; d is uniform in the cube (Linf) or normal (L2)."""
    shape = x.shape[1:]
    if ball.p == math.inf:
        d = (2 * draws.uniform(*shape) - 1).to(x)
        d = d / per_row(d.flatten(1).abs().amax(1).clamp_min(1e-12), d)
    else:
        d = ball.steepest(draws.normal(*shape).to(x))
    return (x + ball.eps * d).clamp(0, 1)


def checkpoints(steps: int) -> dict[int, int]:
    """After how many steps progress is checked, and how many steps each check covers.

    >>> list(checkpoints(100))
    [22, 41, 57, 70, 80, 87, 93, 99]
    """
    window, shrink, least = (max(int(share * steps), 1) for share in (0.22, 0.03, 0.06))
    at, windows = window, {}
    while at <= steps:
        windows[at] = window
        window = max(window - shrink, least)
        at += window
    return windows


class _State(NamedTuple):
    """The state of a climb, one row per survivor."""

    z: Tensor
    old: Tensor  # the iterate before z
    g: Tensor
    f: Tensor  # L at the last iterate
    step: Tensor
    top_z: Tensor
    top_g: Tensor
    top_f: Tensor
    rises: Tensor  # how many steps since the last check raised L
    mark: Tensor  # top_f at the last check
    halved: Tensor  # whether the last check halved the step


def climb(
    live: Survivors,
    z: Tensor,
    ball: Ball,
    loss: Loss,
    *targets: Tensor,
    steps: int = 100,
    rho: float = 0.75,
    eot: int = 1,
) -> None:
    """One climb of the survivors from the start z, on loss(s, y, *targets)."""
    if not len(live):
        return
    windows = checkpoints(steps)
    s, f, g = _ask(live.oracle, z, loss, (live.y, *targets), eot)
    step, halved = z.new_full((len(z),), 2 * ball.eps), torch.ones_like(f, dtype=torch.bool)
    c = _State(z, z, g, torch.zeros_like(f), step, z, g, f, rises=torch.zeros_like(live.y), mark=f, halved=halved)
    for t in range(1, steps + 1):
        a = 1.0 if t == 1 else 0.75
        u = ball.project(live.x, c.z + per_row(c.step, c.z) * ball.steepest(c.g))
        ahead = ball.project(live.x, c.z + a * (u - c.z) + (1 - a) * (c.z - c.old))  # (1)
        on = live.offer(z, s)
        if on is not None:
            c, ahead, targets = _State(*(v[on] for v in c)), ahead[on], tuple(v[on] for v in targets)
        z = ahead
        if not len(live):
            return
        if t == steps:
            live.offer(z, _scores(live.oracle, z, eot))
            return
        s, f, g = _ask(live.oracle, z, loss, (live.y, *targets), eot)
        up = f > c.top_f
        higher = per_row(up, z)
        top_z, top_g = torch.where(higher, z, c.top_z), torch.where(higher, g, c.top_g)
        top_f, rises = torch.where(up, f, c.top_f), c.rises + (f > c.f)
        c = c._replace(z=z, old=c.z, g=g, f=f, rises=rises, top_z=top_z, top_g=top_g, top_f=top_f)
        if t in windows:  # (2)
            cut = (rises <= rho * windows[t]) | (~c.halved & (c.mark >= top_f))  # (3), (4)
            back = per_row(cut, z)
            c = c._replace(
                step=torch.where(cut, c.step / 2, c.step),
                z=torch.where(back, top_z, z),
                g=torch.where(back, top_g, g),
                rises=torch.zeros_like(rises),
                mark=top_f,
                halved=cut,
            )


def _ask(oracle: Oracle, z: Tensor, loss: Loss, goal: tuple[Tensor, ...], eot: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, L and its gradient at z, each the mean of `eot` answers."""
    signed = negated(loss) if oracle.targeted else loss
    s, g = oracle.gradient(z, loss, *goal)
    f = signed(s, *goal)
    for _ in range(eot - 1):
        s_, g_ = oracle.gradient(z, loss, *goal)
        s, f, g = s + s_, f + signed(s_, *goal), g + g_
    return (s, f, g) if eot == 1 else (s / eot, f / eot, g / eot)


def _scores(oracle: Oracle, z: Tensor, eot: int) -> Tensor:
    s = oracle.scores(z)
    for _ in range(eot - 1):
        s = s + oracle.scores(z)
    return s if eot == 1 else s / eot
