"""FAB: exact projections against a linear program and against bisection, true distances, its price, the oracle's
Jacobian."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from torch import Tensor, nn

import antiadv
from antiadv.attacks import parse
from antiadv.attacks._search import projections
from antiadv.attacks._search.projections import to_plane
from antiadv.attacks.white_box.fab import linearise
from antiadv.core.ball import L2, Ball, Linf
from antiadv.core.engine import Eager
from antiadv.core.errors import AccessDenied, BadSpec
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from tests.contract import test_attacks as contract
from tests.toys import Halfspace, Spy, halfspace, small_net, sphere

NORMS = (2, math.inf)
VARIANTS = ["fab:targets=9,steps=20", "fab:steps=20,restarts=3", "fab:targets=2,steps=10,restarts=2"]


@pytest.mark.parametrize(("name", "p"), list(product(VARIANTS, NORMS)))
def test_every_variant_keeps_the_contract(name: str, p: float) -> None:
    contract.check(name, p)


# ---------------------------------------------------------------- the projections


def problem(seed: int, size: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Points inside, on faces and in corners; normals with zeros, of all sizes; planes near, far and out of reach."""
    rng = np.random.default_rng(seed)
    t = rng.random((12, size)) * (rng.random((12, size)) < 0.8)
    t = np.where(rng.random((12, size)) < 0.1, 1.0, t)
    w = rng.normal(size=(12, size)) * (rng.random((12, size)) < 0.85) * 10.0 ** rng.integers(-3, 3, (12, 1))
    most = (np.abs(w) * np.where(w > 0, 1 - t, t)).sum(1)
    least = -(np.abs(w) * np.where(w > 0, t, 1 - t)).sum(1)
    share = rng.random(12)
    c = np.where(rng.random(12) < 0.5, most, least) * share * np.where(rng.random(12) < 0.2, 4, 1)
    return torch.from_numpy(t).to(dtype), torch.from_numpy(w).to(dtype), torch.from_numpy(c)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("size", [3, 3072, 5000])
def test_one_kernel_finds_what_the_plain_way_finds(size: int, p: float) -> None:
    assert projections._kernel() is not None
    for seed in range(3):
        t, w, c = problem(seed, size, torch.float32)
        d = to_plane(t.view(12, 1, size).cuda(), w.view(12, 1, size).cuda(), c.cuda(), p)
        assert d.shape == (12, 1, size)
        torch.testing.assert_close(d.cpu().view(12, size), to_plane(t, w, c, p), rtol=1e-4, atol=1e-6)


def extreme(t: Tensor, w: Tensor, c: Tensor) -> Tensor:
    """c, or what the corner of the box gives where that is less."""
    most = (w.clamp_min(0) * (1 - t) - w.clamp_max(0) * t).sum(1).to(c)
    least = -(w.clamp_min(0) * t - w.clamp_max(0) * (1 - t)).sum(1).to(c)
    return torch.minimum(torch.maximum(c, least), most)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 99999), st.integers(1, 30))
def test_linf_projection_solves_the_linear_program(seed: int, size: int) -> None:
    t, w, c = problem(seed, size)
    d = to_plane(t, w, c, math.inf)
    goal = extreme(t, w, c)
    assert ((t + d) >= -1e-12).all()
    assert ((t + d) <= 1 + 1e-12).all()
    scale = 1 + w.abs().sum(1)
    assert (((w * d).sum(1) - goal).abs() <= 1e-9 * scale).all()
    for i in range(len(t)):  # minimise r over (d, r):  |d_i| ≤ r,  <w, d> = goal,  −t ≤ d ≤ 1 − t
        eye = np.eye(size)
        above = np.block([[eye, -np.ones((size, 1))], [-eye, -np.ones((size, 1))]])
        bounds = [(-a, 1 - a) for a in t[i].tolist()] + [(0, None)]
        row = np.append(w[i].numpy() / scale[i].item(), 0)[None]
        reach = goal[i].item() / scale[i].item() * (1 - 1e-12)
        best = linprog(np.append(np.zeros(size), 1), above, np.zeros(2 * size), row, [reach], bounds)
        assert best.status == 0
        assert best.fun is not None
        assert abs(d[i].abs().max().item() - best.fun) < 1e-6


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 99999), st.integers(1, 30))
def test_l2_projection_is_where_bisection_finds_it(seed: int, size: int) -> None:
    t, w, c = problem(seed, size)
    d = to_plane(t, w, c, 2)
    goal = extreme(t, w, c)
    scale = 1 + w.abs().sum(1)
    assert (((w * d).sum(1) - goal).abs() <= 1e-9 * scale).all()
    v = w / w.abs().amax(1, keepdim=True).clamp_min(1e-300)
    low, high = torch.full_like(c, -1e13)[:, None], torch.full_like(c, 1e13)[:, None]
    for _ in range(200):
        middle = (low + high) / 2
        far = (w * torch.minimum(torch.maximum(middle * v, -t), 1 - t)).sum(1, keepdim=True) > goal[:, None]
        low, high = torch.where(far, low, middle), torch.where(far, middle, high)
    bisected = torch.minimum(torch.maximum(low * v, -t), 1 - t)
    assert ((d.norm(dim=1) - bisected.norm(dim=1)).abs() < 1e-6).all()


@pytest.mark.parametrize("p", NORMS)
def test_projection_in_float32_of_whole_images(p: float) -> None:
    t, w, c = problem(0, 3072, torch.float32)
    d = to_plane(t.view(12, 3, 32, 32), w.view(12, 3, 32, 32), c, p)
    exact = to_plane(t.double(), w.double(), c, p)
    assert d.shape == (12, 3, 32, 32)
    assert d.dtype == torch.float32
    assert torch.allclose(d.flatten(1).double(), exact, atol=1e-5)


@pytest.mark.parametrize("p", NORMS)
def test_projection_on_a_ladder_of_kinks(p: float) -> None:
    """Rooms and weights of every size, so that coordinates run out of room one by one."""
    size = 40
    t = 1 - 2.0 ** -torch.arange(size, dtype=torch.float64)[None]
    w = 2.0 ** (torch.arange(size, dtype=torch.float64)[None] - size)
    for share in (0.001, 0.3, 0.9, 0.999999):
        c = share * (w * (1 - t)).sum(1)
        d = to_plane(t, w, c, p)
        assert torch.allclose((w * d).sum(1), c, rtol=1e-9)


@pytest.mark.parametrize("p", NORMS)
def test_no_plane_no_way(p: float) -> None:
    t = torch.rand((3, 5), generator=torch.Generator().manual_seed(0))
    assert torch.equal(to_plane(t, torch.zeros(3, 5), torch.tensor([1.0, 0.0, -1.0]), p), torch.zeros(3, 5))
    assert torch.equal(to_plane(t, torch.ones(3, 5), torch.zeros(3), p), torch.zeros(3, 5))
    assert to_plane(t[:0], t[:0], torch.zeros(0), p).shape == (0, 5)


# ---------------------------------------------------------------- distances


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("name", ["fab", "fab:targets=9", "fab:restarts=2,steps=30"])
@pytest.mark.parametrize("distance", [0.02, 0.1])
def test_returns_the_true_distance_of_a_linear_model(name: str, p: float, distance: float) -> None:
    toy = halfspace(p, distance=distance)
    ball = Ball(p, math.inf)
    for targeted, y in ((False, toy.y), (True, 1 - toy.y)):
        outcome = antiadv.attack(toy.model, toy.x, y, name, ball, targeted=targeted)
        assert outcome.fooled.all()
        found = ball.distance(toy.x, outcome.images)
        assert (found >= distance * (1 - 1e-5)).all()
        assert (found <= distance * (1 + 1e-3)).all()


@pytest.mark.parametrize("p", NORMS)
def test_returns_the_true_distance_where_the_box_is_in_the_way(p: float) -> None:
    """A third of the pixels cannot move towards the boundary, and some only a little."""
    model = Halfspace((3, 4, 4))
    w = model.w
    generator = torch.rand((4, 3, 4, 4), generator=torch.Generator().manual_seed(3))
    side = (w > 0).float()
    x = torch.where(generator < 0.35, 1 - side, torch.where(generator < 0.5, 0.5 + (0.5 - side).sign() * 0.48, side))
    m = ((x - 0.5) * w).flatten(1).sum(1)
    y = (m < 0).long()
    exact = to_plane(x.double(), w.double().repeat(4, 1, 1, 1), -m.double(), p)
    ball = Ball(p, math.inf)
    true = ball.distance(x, x + exact)
    free = m.abs() / (w.abs().sum() if p == math.inf else w.norm())
    assert (true > 1.2 * free).all()  # without the box they would be closer
    outcome = antiadv.attack(model, x, y, "fab", ball)
    assert torch.allclose(ball.distance(x, outcome.images), true, rtol=1e-3)


@pytest.mark.parametrize("p", NORMS)
def test_from_a_point_without_a_gradient(p: float) -> None:
    """The centre of the sphere, where all directions are equal."""
    toy = sphere(p)
    ball = Ball(p, math.inf)
    found = ball.distance(toy.x, antiadv.attack(toy.model, toy.x, toy.y, "fab", ball).images)
    assert (found >= toy.distance * (1 - 1e-5)).all()
    assert (found <= toy.distance * 1.02).all()


def test_more_restarts_and_targets_never_lead_further_away() -> None:
    net, x = small_net(classes=5), torch.rand((6, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    y, ball = net(x).argmax(1), L2(math.inf)

    def found(name: str) -> Tensor:
        outcome = antiadv.attack(net, x, y, name, ball)
        assert outcome.fooled.all()
        return ball.distance(x, outcome.images)

    assert (found("fab:steps=10,restarts=3") <= 1.001 * found("fab:steps=10")).all()
    assert (found("fab:steps=10,targets=4") <= 1.001 * found("fab:steps=10,targets=1")).all()


# ---------------------------------------------------------------- cost


@pytest.mark.parametrize(
    ("name", "queries", "gradients"),
    [
        ("fab", 200, 400),  # four classes
        ("fab:restarts=2", 400, 800),
        ("fab:steps=3", 6, 12),
        ("fab:targets=9", 601, 300),  # three targets
        ("fab:targets=2,steps=3", 13, 6),
    ],
)
def test_costs_what_its_head_says(name: str, queries: int, gradients: int) -> None:
    toy = halfspace(2)
    records = antiadv.attack(toy.model, toy.x, toy.y, name, L2(0.8 * toy.distance)).records
    assert [(r.queries, r.gradients) for r in records] == [(queries, gradients)] * 6
    endless = antiadv.attack(toy.model, toy.x, toy.y, name, L2(math.inf)).records
    assert {r.queries for r in endless} == {queries + 8}
    aimed = antiadv.attack(toy.model, toy.x, 1 - toy.y, "fab:steps=3", L2(0.01), targeted=True).records
    assert {(r.queries, r.gradients) for r in aimed} == {(6, 3)}


def test_stops_at_the_first_fooling_point_in_the_ball_and_keeps_the_closest_outside() -> None:
    toy = halfspace(math.inf)
    inside = antiadv.attack(toy.model, toy.x, toy.y, "fab", Linf(1.1 * toy.distance))
    assert inside.fooled.all()
    assert {r.queries for r in inside.records} == {2}
    outside = antiadv.attack(toy.model, toy.x, toy.y, "fab", Linf(0.5 * toy.distance))
    assert not outside.fooled.any()
    assert all(abs(r.distance - toy.distance) < 1e-3 and r.attacked != r.label for r in outside.records)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", ["fab", "fab:targets=9"])
def test_few_classes(name: str, classes: int) -> None:
    class Few(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            s: Tensor = toy.model(x)[:, :classes]
            return s

    for p in NORMS:
        toy = halfspace(p)
        found = antiadv.attack(Few().eval(), toy.x, toy.y, name, Ball(p, math.inf))
        assert all(abs(r.distance - toy.distance) < 1e-3 for r in found.records)


def test_samples_without_a_gradient_do_not_disturb_the_others() -> None:
    class Dead(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            s = toy.model(x)
            dead = (x[:, 0, 0, 0] > 0.7)[:, None]
            return torch.where(dead, s.detach() * 0 + torch.tensor([1.0, 0.0, 0.0, 0.0]), s)

    toy = halfspace(math.inf, n=6)
    x = toy.x.clone()
    x[::3, 0, 0, 0] = 1
    y = torch.where(x[:, 0, 0, 0] == 1, 0, toy.y)
    for name in ("fab:steps=20", "fab:targets=9,steps=20"):
        outcome = antiadv.attack(Dead().eval(), x, y, name, Linf(0.09))
        assert torch.isfinite(outcome.images).all()
        assert not outcome.fooled[::3].any()
        alive = [1, 2, 4, 5]
        alone = antiadv.attack(Dead().eval(), x[alive], y[alive], name, Linf(0.09), ids=torch.tensor(alive))
        assert alone.records == [outcome.records[i] for i in alive]


# ---------------------------------------------------------------- the Jacobian


def jacobian_of(net: nn.Module, x: Tensor, batch: int) -> tuple[Tensor, Tensor, Ledger]:
    ledger = Ledger(len(x))
    s, j = Oracle(net, Threat(Linf(0.1), Access.GRADIENTS), ledger, Eager(batch)).jacobian(x)
    return s, j, ledger


def test_the_jacobian_is_autograds_and_costs_one_query_and_a_gradient_per_class() -> None:
    net, x = small_net(classes=4), torch.rand((5, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    spy = Spy(net)
    s, j, ledger = jacobian_of(spy, x, 2)
    true = torch.stack([torch.autograd.functional.jacobian(net, v[None])[0, :, 0] for v in x])
    assert torch.allclose(s, net(x))
    assert torch.allclose(j, true, atol=1e-6)
    assert ledger.queries.tolist() == [1] * 5
    assert ledger.gradients.tolist() == [4] * 5
    assert ledger.zeros.sum() == 0
    assert spy.seen == 5
    assert all(q.grad is None for q in net.parameters())


def test_the_jacobian_is_refused_without_access_and_counts_zeros() -> None:
    toy = halfspace(2)
    with pytest.raises(AccessDenied):
        Oracle(toy.model, Threat(Linf(0.1), Access.SCORES), Ledger(6)).jacobian(toy.x)
    _, _, ledger = jacobian_of(toy.model, toy.x, 100)
    assert ledger.zeros.tolist() == [2] * 6  # the two classes that never move
    none = Oracle(toy.model, Threat(Linf(0.1), Access.GRADIENTS), Ledger(0)).jacobian(toy.x[:0])
    assert none[1].shape == (0, 2, 3, 4, 4)


@pytest.mark.parametrize("p", NORMS)
def test_aims_at_the_nearest_boundary(p: float) -> None:
    """Class 2 is closer in score, but class 1 in distance, since its gradient is larger."""

    class Two(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            mean = x.flatten(1).mean(1)
            return torch.stack([mean * 0, 10 * (mean - 0.6), (mean - 0.8)], 1)

    x = torch.full((1, 1, 2, 2), 0.5)
    oracle = Oracle(Two().eval(), Threat(Ball(p, 0.1), Access.GRADIENTS), Ledger(1))
    s, f, w = linearise(oracle, x, torch.tensor([0]), None, p)
    assert s.argmax(1).item() == 0
    assert abs(f.item() + 1) < 1e-6
    assert torch.allclose(w, torch.full_like(x, 2.5))


def test_what_cannot_be_asked_for() -> None:
    for text in ("fab:steps=0", "fab:restarts=0", "fab:targets=-1", "fab:beta=1.5", "fab:alpha_max=-1", "fab:eta=0.5"):
        with pytest.raises(BadSpec):
            parse(text)
