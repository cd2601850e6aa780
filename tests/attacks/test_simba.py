"""SimBA: both rules against plain versions, the bases, the orders, the cost."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.fft
import torch
from torch import Tensor, nn

import antiadv
from antiadv.attacks._search.survivors import Survivors
from antiadv.attacks.score_based import simba
from antiadv.attacks.score_based.simba import Simba, bands, cosines, directions, fall, first_of, move, shuffled
from antiadv.core.ball import Ball
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager
from antiadv.core.errors import BadSpec
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from tests.toys import small_net

SHAPE = (3, 6, 5)


class Smooth(nn.Module):
    """Class 0 everywhere, with a probability that bends: a smooth function to minimise, and never a success."""

    a: Tensor
    b: Tensor

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("a", torch.randn((40, *SHAPE), generator=generator, dtype=torch.float64))
        self.register_buffer("b", torch.rand(40, generator=generator, dtype=torch.float64))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        v = torch.sin((x.double()[:, None] * self.a).sum((2, 3, 4)) + self.b).sum(1) / 10
        return torch.stack([v * 0 + 9, v, -v], 1)


def log_p(model: nn.Module, z: Tensor) -> float:
    """log p_0 of one image."""
    return float(model(z[None]).log_softmax(1)[0, 0])


def attacked(attack: Simba, x: Tensor, ball: Ball, queries: int | None, seed: int = 0) -> tuple[Tensor, list[int]]:
    ledger, y = Ledger(len(x), queries), torch.zeros(len(x), dtype=torch.int64)
    oracle = Oracle(Smooth(), Threat(ball, Access.SCORES, queries), ledger)
    return attack(oracle, x, y, ball, Draws.of(seed, torch.arange(len(x)))), ledger.queries.tolist()


def images(n: int = 3) -> Tensor:
    return 0.4 + 0.2 * torch.rand((n, *SHAPE), generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("steps", [1, 150])
def test_the_stp_rule_is_stp_array_for_array_with_2b_plus_1_queries(steps: int) -> None:
    """x⁺ = argmin{F(x), F(x + a·s), F(x − a·s)}, s uniform on e₁ … e_n, F = log p_y; ball and box far away."""
    x, a = images(), 0.01
    z, spent = attacked(Simba(rule="stp", step_size=a, steps=steps), x, antiadv.L2(1.0), None)
    model = Smooth()
    for i in range(len(x)):
        w = x[i].clone()
        draws = Draws.of(0, torch.tensor([i]))
        for t in range(steps):
            s = torch.zeros(w.numel(), dtype=torch.float64)
            s[int(draws.fold(t).below(w.numel(), 1))] = 1
            three = [w, w + a * s.view_as(w), w - a * s.view_as(w)]
            w = three[int(np.argmin([log_p(model, v) for v in three]))]
        assert torch.equal(z[i], w)
    assert spent == [2 * steps + 1] * len(x)


@pytest.mark.parametrize("ball", [antiadv.L2(0.06), antiadv.Linf(0.03)], ids=str)
@pytest.mark.parametrize("queries", [None, 2, 57])
def test_the_published_rule_against_a_plain_loop(ball: Ball, queries: int | None) -> None:
    x = images(2)
    attack = Simba(step_size=0.3)
    z, spent = attacked(attack, x, ball, queries)
    model, moves = Smooth(), 0
    for i in range(len(x)):
        order = shuffled(Draws.of(0, torch.tensor([i])), bands(x.shape[1:], None), x[0].numel())[0].tolist()
        w, f, asked = x[i].clone(), log_p(model, x[i]), 1
        for k in order:
            for sign in (-1, 1):
                if asked == queries:
                    break
                tried = w.clone()
                tried.view(-1)[k] += sign * 0.3 * ball.eps
                tried = ball.project(x[i : i + 1], tried[None])[0]
                asked += 1
                if log_p(model, tried) < f:
                    w, f, moves = tried, log_p(model, tried), moves + 1
                    break
        assert torch.equal(z[i], w)
        assert spent[i] == asked
    assert moves > 0


def test_a_direction_that_helps_neither_way_costs_two() -> None:
    class Flat(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([x.flatten(1).sum(1) * 0 + 2, x.flatten(1).sum(1) * 0], 1)

    x, y = torch.full((2, 1, 2, 2), 0.5), torch.zeros(2, dtype=torch.int64)
    for text, queries, spent in [("simba", None, 9), ("simba", 4, 4), ("simba:steps=3", None, 7)]:
        outcome = antiadv.attack(Flat().eval(), x, y, text, antiadv.Linf(0.1), queries=queries)
        assert [r.queries for r in outcome.records] == [spent] * 2
        assert torch.equal(outcome.images, x)
    for queries, spent in [(1, 1), (2, 1), (3, 3), (8, 7)]:
        outcome = antiadv.attack(Flat().eval(), x, y, "simba:rule=stp", antiadv.Linf(0.1), queries=queries)
        assert [r.queries for r in outcome.records] == [spent] * 2


class Pixel(nn.Module):
    """Two classes; the first is the likelier the brighter the pixel, from 0.5 on."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([4 * x.flatten(), torch.full_like(x.flatten(), 2.0)], 1)


class Generous(Eager):
    """An engine that overrates the second class; the judge's engine does not."""

    def scores(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> Tensor:
        return super().scores(model, z, draws=draws) + torch.tensor([0.0, 0.5])

    def judge(self, model: nn.Module) -> Eager:
        return Eager()


def test_the_judge_is_asked_once_about_a_step_either_way() -> None:
    """Both samples come to 0.55, one by the first sign and one by the second. The image seems to fool, and does not."""
    x, y, ledger, ball = torch.full((2, 1, 1, 1), 0.65), torch.zeros(2, dtype=torch.int64), Ledger(2), Ball(2, 1.0)
    oracle = Oracle(Pixel(), Threat(ball, Access.SCORES), ledger, Generous())
    live = Survivors(oracle, x, y, Draws.of(0, torch.arange(2)))
    s = live.oracle.scores(x)
    move(live, x, s, fall(oracle, s, y))
    d = torch.tensor([-0.1, 0.1]).view_as(x)
    first_of(live, ball, d, -d)
    assert torch.allclose(live.z, torch.full_like(x, 0.55))
    assert torch.equal(live.m, fall(oracle, Generous().scores(Pixel(), live.z), y)), "the engine's"
    assert ledger.queries.tolist() == [2, 3]
    assert ledger.checks.tolist() == [1, 1]
    first_of(live, ball, -d.abs() / 4, d.abs() / 4)  # both nearer, and seem to fool again
    first_of(live, ball, d.abs() / 4, -d.abs() / 2)  # first back, where both seem to fool too; then over the edge
    assert len(live) == 0
    assert torch.allclose(live.images(), torch.full_like(x, 0.475))
    assert ledger.queries.tolist() == [5, 6]
    assert ledger.checks.tolist() == [4, 4], "each that seemed to fool"


def test_without_replacement_the_distance_grows_like_the_root_of_the_steps() -> None:
    x = images()
    z, _ = attacked(Simba(basis="dct", step_size=0.01, steps=25), x, antiadv.L2(1.0), None)
    assert (antiadv.L2(1.0).distance(x, z) <= 0.01 * math.sqrt(25) + 1e-12).all()


@pytest.mark.parametrize("side", [1, 2, 5, 32])
def test_the_cosines_are_an_orthonormal_basis(side: int) -> None:
    c = cosines(side, torch.float64, torch.device("cpu"))
    torch.testing.assert_close(c @ c.T, torch.eye(side, dtype=torch.float64))
    assert (c[0] > 0).all()


def test_directions_are_those_of_the_inverse_dct() -> None:
    x = torch.zeros((1, *SHAPE), dtype=torch.float64)
    number = torch.arange(x.numel())
    flat = np.eye(x.numel()).reshape(-1, *SHAPE)
    assert np.array_equal(directions(number, "pixel", x).numpy(), flat)
    theirs = scipy.fft.idctn(flat, axes=(2, 3), norm="ortho")
    assert np.allclose(directions(number, "dct", x).numpy(), theirs, atol=1e-14)


def test_in_linf_a_step_is_as_long_as_said_whatever_the_direction() -> None:
    x = images(4)
    for basis in ("pixel", "dct"):
        z, _ = attacked(Simba(basis=basis, step_size=0.5, steps=1), x, antiadv.Linf(0.02), None)
        moved = (z - x).flatten(1).abs().amax(1)
        assert all(m == 0 or m == pytest.approx(0.01) for m in moved.tolist())
        assert (moved > 0).any()


def test_orders_are_permutations_of_each_samples_own(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = Draws.of(0, torch.arange(50))
    order = shuffled(draws, torch.zeros(60, dtype=torch.int64), 60)
    assert order.dtype == torch.int32
    assert torch.equal(order.sort(1).values, torch.arange(60, dtype=torch.int32).expand(50, 60))
    assert len({tuple(row) for row in order.tolist()}) == 50
    assert 20 < order[:, 0].float().mean() < 39  # uniform: 29.5 ± 2.4
    monkeypatch.setattr(simba, "KEYS", 180)
    assert torch.equal(shuffled(draws, torch.zeros(60, dtype=torch.int64), 60), order)
    assert torch.equal(shuffled(draws, torch.zeros(60, dtype=torch.int64), 7), order[:, :7])


def test_low_frequencies_come_first() -> None:
    band = bands(torch.Size((2, 12, 12)), 4).view(2, 12, 12)
    assert (band[:, :4, :4] == 0).all()
    assert [int(band[0, 0, j]) for j in range(12)] == [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert torch.equal(band[1], band[0].T)
    wide = bands(torch.Size((1, 224, 224)), 28).view(224, 224)
    assert [int(wide[0, j]) for j in (27, 28, 34, 35, 223)] == [0, 1, 1, 2, 28]
    order = shuffled(Draws.of(0, torch.arange(5)), band.flatten(), 288).long()
    assert (band.flatten()[order].diff(dim=1) >= 0).all()


def test_stp_draws_from_the_low_block_only() -> None:
    x = images()
    z, _ = attacked(Simba(basis="dct", rule="stp", step_size=0.01, frequencies=2, steps=60), x, antiadv.L2(1.0), None)
    spectrum = scipy.fft.dctn((z - x).numpy(), axes=(2, 3), norm="ortho")
    assert np.abs(spectrum[:, :, :2, :2]).max() > 1e-3
    spectrum[:, :, :2, :2] = 0
    assert np.abs(spectrum).max() < 1e-12


@pytest.mark.parametrize("text", ["simba:basis=dct", "simba:rule=stp", "simba:basis=dct,frequencies=3,rule=stp"])
@pytest.mark.parametrize("ball", [antiadv.Linf(0.1), antiadv.L2(1.0)], ids=str)
def test_other_forms_lower_the_margin_of_a_network(text: str, ball: Ball) -> None:
    net = small_net(classes=4)
    x = torch.rand((4, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    s = net(x)
    outcome = antiadv.attack(net, x, s.argmax(1), text, ball, queries=200)
    lower = net(outcome.images).log_softmax(1).gather(1, s.argmax(1)[:, None])
    assert (lower < s.log_softmax(1).amax(1, keepdim=True)).all()
    assert (ball.distance(x, outcome.images) <= ball.reach).all()


@pytest.mark.parametrize("bad", ["frequencies=3", "basis=dct,frequencies=0", "step_size=-1", "steps=-1", "rule=best"])
def test_bad_options_are_refused(bad: str) -> None:
    with pytest.raises(BadSpec):
        antiadv.attacks.parse(f"simba:{bad}")
