"""Survivors: which images they keep, when samples leave, and how many operations a step takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from antiadv.attacks import parse
from antiadv.attacks._search.survivors import Survivors
from antiadv.core.ball import Ball, Linf
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat

N = 9
FAR = torch.tensor([5.0, 0.0, 0.0, 0.0])  # scores of the first class above the others


class Scores(nn.Module):
    """The image is its scores."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


class Generous(Eager):
    """An engine that overrates the second class; the judge's engine does not."""

    def scores(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> Tensor:
        return super().scores(model, z, draws=draws) + 0.5 * torch.eye(6)[1]

    def judge(self, model: nn.Module) -> Eager:
        return Eager()


@pytest.mark.parametrize("targeted", [False, True])
def test_who_does_not_fool_to_the_last_digit_goes_on(targeted: bool) -> None:
    """Leads of class 0 over class 1: the first fools, the second seems to, the third does not. The last seems to, and
    cannot pay for more."""
    lead = torch.tensor([-0.25, 0.25, 0.75, 0.25])
    z, y = torch.zeros(4, 2, 3), torch.full((4,), int(targeted))
    z[:, 0, 0] = 2 + lead
    z[:, 0, 1] = 2.0
    ledger = Ledger(4, 5)
    ledger.queries[3] = 4
    live = Survivors(
        Oracle(Scores(), Threat(Linf(0.1), Access.SCORES, 5, targeted), ledger, Generous()),
        torch.zeros_like(z),
        y,
        Draws.of(0, torch.arange(4)),
    )
    on = live.offer(z, live.oracle.scores(z))
    assert on is not None
    assert on.tolist() == live.rows.tolist() == [1, 2]
    assert live.m.tolist() == [-0.25, 0.25], "the engine's, below what it takes for the boundary too"
    assert torch.equal(live.images(), z)
    assert ledger.checks.tolist() == [1, 1, 0, 1]
    assert live.oracle.was_rejected(z[1:3]).tolist() == [True, False]
    # two more images of the second sample: one worse than the rejected one, then one that is better
    for ahead, kept in ((0.4, 0.25), (0.1, 0.1)):
        there = live.z.clone()
        there[0, 0, 0] = 2 + ahead
        assert live.offer(there, live.oracle.scores(there)) is None
        assert live.z[0, 0, 0] == pytest.approx(2 + kept)
        assert live.oracle.was_rejected(live.z).tolist() == [True, False]
    assert ledger.checks.tolist() == [1, 3, 0, 1], "each of them was looked at"


class Overtaken(nn.Module):
    """Three classes: y = 0 becomes likelier while a third overtakes it."""

    def forward(self, x: Tensor) -> Tensor:
        t = x.flatten(1)[:, :1]
        return torch.cat([1 + t, torch.ones_like(t), 3 * t], 1)


def test_who_leaves_leaves_with_the_image_that_fools_even_where_the_measure_rose() -> None:
    x, y = torch.zeros(1, 1, 1, 1), torch.zeros(1, dtype=torch.int64)
    live = Survivors(Oracle(Overtaken(), Threat(Linf(1.0), Access.SCORES), Ledger(1)), x, y, Draws.of(0, y))
    for t, m in ((0.0, 1.0), (0.9, 2.0)):
        z = torch.full_like(x, t)
        s = live.oracle.scores(z)
        live.keep(z, torch.tensor([m]), torch.tensor([m]) < live.m)
        on = live.release(live.oracle.fooled(s, live.y).tolist())
    assert on is not None
    assert len(live) == 0
    assert live.images().item() == pytest.approx(0.9)


def oracle(spent: Tensor, queries: int | None, targeted: bool = False) -> Oracle:
    ledger = Ledger(len(spent), queries)
    ledger.queries += spent
    return Oracle(Scores(), Threat(Linf(0.1), Access.SCORES, queries, targeted), ledger)


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("queries", [None, 12])
def test_they_keep_what_each_sample_alone_would(queries: int | None, targeted: bool) -> None:
    draws, y = Draws.of(0, torch.arange(N)), torch.arange(N) % 6
    x, spent = draws.uniform(2, 3), torch.arange(N)
    live = Survivors(oracle(spent, queries, targeted), x, y, draws)
    best, least, paid = list(x), [math.inf] * N, spent.tolist()
    rows, left = list(range(N)), []
    for t in range(15):
        assert live.rows.tolist() == rows
        for mine, theirs in (
            (live.x, x),
            (live.y, y),
            (live.draws.keys, draws.keys),
            (live.z, torch.stack(best)),
            (live.m, torch.tensor(least)),
        ):
            assert torch.equal(mine, theirs[rows])
        z = draws[torch.tensor(rows, dtype=torch.int64)].fold(t).uniform(2, 3)
        z.view(-1, 6).scatter_add_(1, y[rows, None], torch.full((len(rows), 1), 0.0 if targeted else 0.6))
        on, stay = live.offer(z, live.oracle.scores(z)), []
        for place, row in enumerate(rows):  # the same in words
            s, own = z[place].flatten(), int(y[row])
            lead = s[own] - max(v for k, v in enumerate(s) if k != own)
            m = float(-lead if targeted else lead)
            fooled = m < 0
            paid[row] += 1
            if fooled or m < least[row]:
                best[row], least[row] = z[place], m
            if not fooled and (queries is None or paid[row] < queries):
                stay.append(place)
        assert (on is None) == (len(stay) == len(rows))
        assert on is None or on.tolist() == stay
        rows = [rows[place] for place in stay]
        left.append(len(rows))
    assert len(set(left)) > 3  # they left one after the other
    assert torch.equal(live.images(), torch.stack(best))


def test_they_keep_by_any_measure_and_in_its_precision() -> None:
    x, y = Draws.of(0, torch.arange(N)).uniform(2, 3), torch.zeros(N, dtype=torch.int64)
    live = Survivors(oracle(y, None), x, y, Draws.of(0, torch.arange(N)))
    m, third = torch.arange(N, dtype=torch.float64) + 1e-12, torch.arange(N) % 3 == 0
    live.keep(x + 1, m, third)
    assert live.m.dtype == torch.float64
    assert torch.equal(live.m, m.masked_fill(~third, math.inf))
    assert live.dismiss([False] * N) is None
    on = live.dismiss((live.m < 4).tolist())
    assert on is not None
    assert on.tolist() == live.rows.tolist() == [1, 2, 4, 5, 6, 7, 8]
    live.keep(live.x + 2, live.m, live.m == math.inf)
    moved = torch.tensor([1, 2, 2, 1, 2, 2, 1, 2, 2])
    assert torch.equal(live.images(), x + moved[:, None, None])


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
    assert live.afford(9) is None
    assert live.afford(10) is not None
    assert not len(live)


def test_nobody_at_all() -> None:
    x, y = torch.zeros(0, 3, 4, 4), torch.zeros(0, dtype=torch.int64)
    live = Survivors(oracle(y, 5), x, y, Draws.of(0, y))
    assert len(live) == 0
    assert live.offer(x, torch.zeros(0, 2)) is None
    assert live.images().shape == x.shape


# ---------------------------------------------------------------- what a step costs


class Counted(TorchDispatchMode):
    """Counts operations (with views), those that wait for a GPU to know a size, and copies to the CPU."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
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
        """The same function, not counted."""

        def alone(*args: Any, **more: Any) -> Any:
            was, self.on = self.on, False
            try:
                return run(*args, **more)
            finally:
                self.on = was

        return alone

    def answered(self, send: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, counted as a copy to the CPU."""

        def sent(*args: Any) -> Any:
            self.answers += self.on
            return send(*args)

        return sent


def counted(text: str, ball: Ball, monkeypatch: pytest.MonkeyPatch) -> Counted:
    """An attack on eight samples that do not fall. Passes and random numbers are not counted."""

    class Firm(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            s: Tensor = forward(x)
            return s

    count = Counted()
    forward = count.aside(lambda x: x.flatten(1).mean(1)[:, None] * torch.tensor([0.1, 1, 0.9, 0.8]) + FAR)
    draws = Draws.of(0, torch.arange(8))
    x, y, ledger = draws.uniform(3, 32, 32), torch.zeros(8, dtype=torch.int64), Ledger(8, 10_000)
    with monkeypatch.context() as patched, count:
        for owner, name in ((Draws, "fold"), (Draws, "_numbers"), (Eager, "gradient")):
            patched.setattr(owner, name, count.aside(getattr(owner, name)))
        for name in ("cpu", "tolist", "__bool__"):
            patched.setattr(torch.Tensor, name, count.answered(getattr(torch.Tensor, name)))
        parse(text)(Oracle(Firm().eval(), Threat(ball, Access.INTERNALS, 10_000), ledger), x, y, ball, draws)
    return count


@pytest.mark.parametrize(
    ("text", "p", "most", "waits"),  # operations as counted, and a twelfth for other versions of torch
    [
        ("bandits", math.inf, 85, 1),
        ("bandits", 2, 95, 1),
        ("nes:probes=50", math.inf, 138, 1),  # fifty of them add the pairs up, one after the other
        ("nes:probes=50", 2, 150, 1),
        ("square", math.inf, 36, 1),
        ("square", 2, 96, 1),
        ("square:rescale=true", math.inf, 36, 1),
        ("simba", math.inf, 84, 3),  # one per query; the third reads rows that are on the CPU already
        ("simba", 2, 98, 3),
        ("simba:rule=stp", 2, 91, 1),
        ("pgd", math.inf, 41, 1),
        ("pgd", 2, 55, 1),
        ("apgd", math.inf, 61, 1),
        ("apgd", 2, 83, 1),
        ("apgd:loss=dlr,targets=1", math.inf, 75, 1),
        ("pseudo_label", math.inf, 63, 1),
        ("fab:targets=1", math.inf, 230, 3),  # one per query, and one for the projections
        ("fab:targets=1", 2, 231, 3),
    ],
)
def test_a_step_is_few_operations_and_waits_once_a_query(
    text: str, p: float, most: int, waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ball, more = Ball(p, 0.01), "," if ":" in text else ":"
    few, many = (counted(f"{text}{more}steps={steps}", ball, monkeypatch) for steps in (16, 32))
    assert (many.answers - few.answers) / 16 == waits
    assert many.sizes == few.sizes
    assert (many.operations - few.operations) / 16 <= most
