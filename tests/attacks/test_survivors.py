"""Survivors: they keep what `Best` keeps and leave when they should; and of how few operations a step is made."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from antiadv.attacks import parse
from antiadv.attacks.best import Best
from antiadv.attacks.survivors import Survivors
from antiadv.core.ball import Ball, Linf
from antiadv.core.draws import Draws
from antiadv.core.oracle import Ledger, Oracle
from antiadv.core.threat import Access, Threat

N = 9


class Scores(nn.Module):
    """The image is its scores."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


def oracle(spent: Tensor, queries: int | None, targeted: bool = False) -> Oracle:
    ledger = Ledger(len(spent), queries)
    ledger.queries += spent
    return Oracle(Scores(), Threat(Linf(0.1), Access.SCORES, queries, targeted), ledger)


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("queries", [None, 12])
def test_they_keep_what_best_keeps(queries: int | None, targeted: bool) -> None:
    dice, y = Draws.of(0, torch.arange(N)), torch.arange(N) % 6
    x, spent = dice.uniform(2, 3), torch.arange(N)
    plain = oracle(spent, queries, targeted)
    live, best = Survivors(oracle(spent, queries, targeted), x, y, dice), Best(plain, x, y)
    rows, left = best.standing(), []
    for t in range(15):
        for mine, theirs in (
            (live.x, x),
            (live.y, y),
            (live.draws.keys, dice.keys),
            (live.z, best.z),
            (live.m, best.m),
        ):
            assert torch.equal(mine, theirs[rows])
        assert torch.equal(live.rows, rows)
        z = dice[rows].fold(t).uniform(2, 3)
        z.view(-1, 6).scatter_add_(1, y[rows, None], torch.full((len(rows), 1), 0.0 if targeted else 0.6))
        on, goes = live.offer(z, live.oracle.scores(z)), best.offer(rows, z, plain[rows].scores(z))
        assert (on is None) == bool(goes.all())
        assert on is None or torch.equal(on, goes.nonzero().squeeze(1))
        rows = rows[goes]
        left.append(len(rows))
    assert len(set(left)) > 3  # they left one after the other
    assert torch.equal(live.images(), best.z)


def test_who_cannot_pay_for_a_whole_step_leaves_before_it() -> None:
    spent = torch.tensor([0, 8, 7, 10, 0, 9, 0, 0, 10])
    x, y = Draws.of(0, torch.arange(N)).uniform(2, 3), torch.zeros(N, dtype=torch.int64)
    live = Survivors(oracle(spent, 10), x, y, Draws.of(0, y), need=3)
    assert live.rows.tolist() == [0, 2, 4, 6, 7]
    assert live.oracle.left().tolist() == [10, 3, 10, 10, 10]
    live.oracle.scores(live.x)
    on = live.offer(live.x, torch.eye(6)[:1].repeat(5, 1))  # all still in class 0
    assert on is not None
    assert on.tolist() == [0, 2, 3, 4]
    assert live.rows.tolist() == [0, 4, 6, 7]


def test_nobody_at_all() -> None:
    x, y = torch.zeros(0, 3, 4, 4), torch.zeros(0, dtype=torch.int64)
    live = Survivors(oracle(y, 5), x, y, Draws.of(0, y))
    assert len(live) == 0
    assert live.offer(x, torch.zeros(0, 2)) is None
    assert live.images().shape == x.shape


# ---------------------------------------------------------------- what a step costs


class Counted(TorchDispatchMode):
    """Operations, views included; those that would wait for a GPU to know a size; and answers sent to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = self.sizes = self.answers = 0
        self.on = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # torch's own types
        if self.on:
            self.operations += 1
            name = func.__name__.split(".")[0]
            masks = name.startswith("index") and isinstance(args[1], (list, tuple))
            self.sizes += name == "nonzero" or (masks and any(i is not None and i.dtype == torch.bool for i in args[1]))
        return func(*args, **(kwargs or {}))

    def aside(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The same, uncounted."""

        def alone(*args: Any) -> Any:
            self.on = False
            try:
                return run(*args)
            finally:
                self.on = True

        return alone

    def answered(self, send: Callable[..., Any]) -> Callable[..., Any]:
        """The same, counted as an answer."""

        def sent(*args: Any) -> Any:
            self.answers += 1
            return send(*args)

        return sent


def counted(text: str, ball: Ball, monkeypatch: pytest.MonkeyPatch) -> Counted:
    """An attack on eight samples none of which falls; the network and the dice, one kernel on a GPU, are left out."""

    class Firm(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return forward(x)

    count = Counted()
    forward = count.aside(lambda x: torch.stack([x.flatten(1).sum(1) * 0 + 5, x.flatten(1).mean(1)], 1))
    draws = Draws.of(0, torch.arange(8))
    x, y, ledger = draws.uniform(3, 32, 32), torch.zeros(8, dtype=torch.int64), Ledger(8, 10_000)
    with monkeypatch.context() as patched, count:
        for name in ("fold", "_numbers"):
            patched.setattr(Draws, name, count.aside(getattr(Draws, name)))
        for name in ("cpu", "tolist"):
            patched.setattr(torch.Tensor, name, count.answered(getattr(torch.Tensor, name)))
        parse(text)(Oracle(Firm().eval(), Threat(ball, Access.SCORES, 10_000), ledger), x, y, ball, draws)
    return count


@pytest.mark.parametrize(
    ("text", "p", "most"),  # as counted, and a twelfth for other versions of torch
    [
        ("bandits", math.inf, 85),
        ("bandits", 2, 95),
        ("nes:probes=50", math.inf, 138),  # fifty of them add the pairs up, one after the other
        ("nes:probes=50", 2, 150),
        ("square", math.inf, 36),
        ("square", 2, 96),
        ("square:rescale=true", math.inf, 36),
    ],
)
def test_a_step_is_few_operations_and_waits_once(
    text: str, p: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ball, more = Ball(p, 0.01), "," if ":" in text else ":"
    few, many = (counted(f"{text}{more}steps={steps}", ball, monkeypatch) for steps in (32, 64))
    assert (many.operations - few.operations) / 32 <= most
    assert many.answers - few.answers == 32  # whether any fell
    assert many.sizes == few.sizes
