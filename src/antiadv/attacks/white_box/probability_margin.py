"""PMA: the margin of the probabilities, led by its parts at first (Xie et al., 2024, arXiv:2411.15210).

    maximise   max_{k≠y} p_k(z) − p_y(z),   p = softmax s       over z in the ball around x
    start      z⁰ uniform in the ball
    step       zⁱ⁺¹ = Π( zⁱ + η_i · dir ∇L_i(zⁱ) )
    L_i        p_y in step 0: away from the goal, on purpose; then up to the middle −p_y in the first round and   (1)
               max_{k≠y} p_k in the second; from the middle on the whole margin
    η_i        ε·(1 + cos(π·(i−1)/h)), h = ⌈N/2⌉; it begins again in the middle                                   (2)
    stop       at the first fooling iterate; the last iterate is tested too

A softmax that is nearly certain has no slope that float16 or float32 can hold. So where the margin of the scores is
above 9 or below −9 (towards a target), a step uses the scores in place of p. With `on=logits` all steps
do: that is the Margin Decomposition attack (Ma et al., 2023).

Notation:   N → `steps`, Π → `ball.project`, h → `half`.
Cost:       per round `steps` queries with gradient and one for the last iterate: 202.
Departures: the start is clipped into the box. A step decides for each sample whether it uses p or the scores; the
            authors have two attacks. They work in Linf alone; in L2 dir is g/|g|₂, with the same sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from antiadv.attacks._search.survivors import Survivors
from antiadv.core.ball import Ball
from antiadv.core.draws import Draws
from antiadv.core.losses import Loss, margin
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access
from antiadv.core.validation import at_least

CERTAIN = 9.0  # size of the margin: all other classes together are below about 1e-3
ROUNDS = 2

On = Literal["auto", "probabilities", "logits"]


@dataclass(frozen=True)
class ProbabilityMargin:
    """The authors' setting: two rounds of 100 steps."""

    steps: int = 100
    on: On = "auto"

    access: ClassVar[Access] = Access.GRADIENTS
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = False
    edition: ClassVar[int] = 2
    still_shown: ClassVar[frozenset[int]] = frozenset({1})  # it differs only towards a target

    def __post_init__(self) -> None:
        at_least(1, steps=self.steps)

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        live = Survivors(oracle, x, y, draws)
        for turn in range(ROUNDS):
            z = ball.random(live.x, live.draws.fold(turn))
            for i in range(self.steps):
                if not len(live):
                    break
                s, g = live.oracle.gradient(z, self._loss(turn, i), live.y)
                ahead = ball.project(live.x, z + self._size(i) * ball.eps * ball.steepest(g))
                on = live.offer(z, s)
                z = ahead if on is None else ahead[on]
            live.offer(z, live.oracle.scores(z))
        return live.images()

    @property
    def _half(self) -> int:
        return (self.steps + 1) // 2

    def _loss(self, turn: int, i: int) -> Loss:
        part = (
            "wrong_way" if i == 0 < self._half - 1 else "margin" if i >= self._half else ("own", "other")[turn]
        )  # (1)
        return LOSSES[part, self.on]

    def _size(self, i: int) -> float:
        return 1 + math.cos(math.pi * (i % self._half - 1) / self._half)  # (2)


class _Part:
    """One part of the margin as a loss; a class, because graphs are cached by loss and processes copy it."""

    def __init__(self, own: int, other: int, on: On) -> None:
        self.own, self.other, self.on = own, other, on

    def __call__(self, s: Tensor, y: Tensor) -> Tensor:
        p = s if self.on == "logits" else s.softmax(1)
        if self.on == "auto":
            p = torch.where((margin(s, y).abs() > CERTAIN)[:, None], s, p)
        own = p.gather(1, y[:, None]).squeeze(1)
        other = p.scatter(1, y[:, None], -math.inf).amax(1)
        return self.own * own + self.other * other


_SIGNS = {"wrong_way": (1, 0), "own": (-1, 0), "other": (0, 1), "margin": (-1, 1)}
LOSSES: dict[tuple[str, On], Loss] = {
    (part, on): _Part(*signs, on) for part, signs in _SIGNS.items() for on in ("auto", "probabilities", "logits")
}
