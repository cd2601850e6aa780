"""APGD: projected gradient ascent that sets its own step size (Croce and Hein, ICML 2020, arXiv:2003.01690).

    maximise   L(s(z), y)                               over z in the ball around x
    start      z⁰ on the sphere of radius ε around x, clipped into the box
    step       u = Π( zᵗ + η·dir ∇L(zᵗ) ),   zᵗ⁺¹ = Π( zᵗ + a(u − zᵗ) + (1−a)(zᵗ − zᵗ⁻¹) ),   a = ¾, first 1      (1)
    check      after 22, 41, 57, 70, 80, 87, 93, 99 % of the steps, each k steps after the last: halve η and go    (2)
               back to the best z, if no more than ρ·k of these k steps raised L                                  (3)
               or if the last check kept η and the best L has not risen since                                     (4)
    stop       at the first fooling iterate
    targeted   L(s(z), y, t) for t = the 2nd, 3rd, … class at x, one after the other; any wrong label will do

    L: ce(s, y), dlr(s, y);  with targets ce_to(s, y, t), dlr_to(s, y, t)      (`core.losses`)

Notation:   η → `step` (2ε at first), ρ → `rho`, Π → `ball.project`, k → `window`; the best z, its gradient and L →
            `top_z`, `top_g`, `top_f`.
Cost:       per restart `steps` queries with gradient and one for the last iterate: 101, where the authors run 101 with
            gradient and one prediction. With targets that for each of them, and one query to rank the classes: 910
            for nine. `eot` times that (but for the ranking) where gradients are averaged. A sample that cannot pay for
            a whole average stops.
Departures: a fooled sample stops; the classes are ranked once, the authors ask again for each target. With eot > 1
            the mean scores say whether a sample is fooled and the mean L is what is checked, where the authors take
            the last draw's. Kept from their code: the first step counts as rising if its L is above zero, not above
            the start's; after going back, zᵗ⁻¹ in (1) is still the point before the last. A targeted threat aims at y
            itself, whatever `targets`. With two classes dlr is the margin, with three or fewer dlr_to is s_t − s_y.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from antiadv.attacks.best import Best
from antiadv.core.ball import Ball, per_row
from antiadv.core.door import at_least
from antiadv.core.draws import Draws
from antiadv.core.losses import Loss, ce, ce_to, dlr, dlr_lead, dlr_to, negated
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access

LOSSES: dict[str, tuple[Loss, Loss, Loss]] = {  # to leave y; to reach t from y; to reach y, turned round by the oracle
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

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        best = Best(oracle, x, y)
        leave, aim, reach = LOSSES[self.loss]
        goals: list[tuple[Tensor, ...]]
        if self.targets and not oracle.targeted:
            loss, goals = aim, [(y, t) for t in rank(oracle, best, x, y, self.targets)]
        else:
            loss, goals = reach if oracle.targeted else leave, [(y,)]
        for turn in range(len(goals) * self.restarts):
            rows = best.standing()
            goal = [t[rows] for t in goals[turn // self.restarts]]
            z = start(x[rows], ball, draws[rows].fold(turn))
            climb(oracle, best, rows, x[rows], z, ball, loss, *goal, steps=self.steps, rho=self.rho, eot=self.eot)
        return best.z


class Keeper(Protocol):
    """`Best` and `Closest`: whoever keeps the finds of an attack and knows which rows go on."""

    def standing(self) -> Tensor: ...

    def offer(self, rows: Tensor, z: Tensor, s: Tensor) -> Tensor: ...


def rank(oracle: Oracle, keeper: Keeper, x: Tensor, y: Tensor, count: int) -> list[Tensor]:
    """The `count` best classes other than y at the clean points, or all there are: `[N]` each. One query."""
    rows = keeper.standing()
    s = oracle[rows].scores(x[rows])
    keeper.offer(rows, x[rows], s)
    order = s.scatter(1, y[rows, None], -math.inf).sort(dim=1, descending=True, stable=True).indices
    ranked = y.new_zeros(len(y), min(count, s.shape[1] - 1))
    ranked[rows] = order[:, : ranked.shape[1]]
    return list(ranked.unbind(1))


def start(x: Tensor, ball: Ball, draws: Draws) -> Tensor:
    """x + ε·d/|d|, clipped into the box: d uniform in the cube (Linf), so that one pixel moves by ε; normal (L2)."""
    shape = x.shape[1:]
    if ball.p == math.inf:
        d = (2 * draws.uniform(*shape) - 1).to(x)
        d = d / per_row(d.flatten(1).abs().amax(1).clamp_min(1e-12), d)
    else:
        d = ball.steepest(draws.normal(*shape).to(x))
    return (x + ball.eps * d).clamp(0, 1)


def checkpoints(steps: int) -> dict[int, int]:
    """After how many steps progress is looked at, and how many steps each look spans.

    >>> list(checkpoints(100))
    [22, 41, 57, 70, 80, 87, 93, 99]
    """
    window, shrink, least = (max(int(share * steps), 1) for share in (0.22, 0.03, 0.06))
    at, found = window, {}
    while at <= steps:
        found[at] = window
        window = max(window - shrink, least)
        at += window
    return found


class _State(NamedTuple):
    """What is carried for the rows still standing, one entry each."""

    rows: Tensor
    x: Tensor
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
    oracle: Oracle,
    best: Best,
    rows: Tensor,
    x: Tensor,
    z: Tensor,
    ball: Ball,
    loss: Loss,
    *goal: Tensor,
    steps: int = 100,
    rho: float = 0.75,
    eot: int = 1,
) -> None:
    """One climb of those rows of `best` from the start z; x, z and the goal (y, or y and t) are theirs alone."""
    windows, asked = checkpoints(steps), oracle[rows]
    able = _able(asked, torch.ones_like(rows, dtype=torch.bool), eot)
    asked, rows, x, z, goal = asked[able], rows[able], x[able], z[able], tuple(v[able] for v in goal)
    s, f, g = _ask(asked, z, loss, goal, eot)
    on = _able(asked, best.offer(rows, z, s), eot)
    none, step, halved = torch.zeros_like(rows), x.new_full((len(rows),), 2 * ball.eps), torch.ones_like(on)
    c = _State(rows, x, z, z, g, torch.zeros_like(f), step, z, g, f, rises=none, mark=f, halved=halved)
    for t in range(1, steps + 1):
        keep = on.nonzero().squeeze(1)
        if len(keep) < len(c.rows):
            c, goal, asked = _State(*(v[keep] for v in c)), tuple(v[keep] for v in goal), asked[keep]
        if not len(keep):
            return
        a = 1.0 if t == 1 else 0.75
        u = ball.project(c.x, c.z + per_row(c.step, c.z) * ball.steepest(c.g))
        z = ball.project(c.x, c.z + a * (u - c.z) + (1 - a) * (c.z - c.old))  # (1)
        if t == steps:
            best.offer(c.rows, z, _scores(asked, z, eot))
            return
        s, f, g = _ask(asked, z, loss, goal, eot)
        on = _able(asked, best.offer(c.rows, z, s), eot)
        up = f > c.top_f
        top_z, top_g = torch.where(per_row(up, z), z, c.top_z), torch.where(per_row(up, g), g, c.top_g)
        c = c._replace(z=z, old=c.z, g=g, f=f, rises=c.rises + (f > c.f), top_z=top_z, top_g=top_g)
        c = c._replace(top_f=torch.where(up, f, c.top_f))
        if t in windows:  # (2)
            cut = (c.rises <= rho * windows[t]) | (~c.halved & (c.mark >= c.top_f))  # (3), (4)
            c = c._replace(
                step=torch.where(cut, c.step / 2, c.step),
                z=torch.where(per_row(cut, z), c.top_z, z),
                g=torch.where(per_row(cut, g), c.top_g, g),
                rises=torch.zeros_like(c.rises),
                mark=c.top_f,
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
    return s


def _able(oracle: Oracle, on: Tensor, cost: int) -> Tensor:
    """Of the rows marked, those that can pay this much; `Best` has seen to it that they can pay for one."""
    return on if cost == 1 else on & (oracle.left() >= cost).to(on.device)
