"""Ball: distance is a norm, projection is idempotent and nearest, steepest is steepest, random stays inside."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from antiadv.core.ball import L2, Ball, Linf
from antiadv.core.draws import Draws
from antiadv.core.errors import BadSpec

balls = st.builds(Ball, st.sampled_from([2.0, math.inf]), st.floats(0.001, 2.0))
seeds = st.integers(0, 10_000)


def points(seed: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    return torch.rand((4, 2, 3, 3), generator=torch.Generator().manual_seed(seed)) * (high - low) + low


@settings(max_examples=40, deadline=None)
@given(balls, seeds)
def test_projection_lands_inside_and_is_idempotent(ball: Ball, seed: int) -> None:
    x, z = points(seed), points(seed + 1, -2, 3)
    once = ball.project(x, z)
    assert 0 <= once.min() <= once.max() <= 1
    assert (ball.distance(x, once) <= ball.reach).all()
    torch.testing.assert_close(ball.project(x, once), once, rtol=0, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.001, 1.0), seeds)
def test_linf_projection_is_the_nearest_point(eps: float, seed: int) -> None:
    ball, x, z = Linf(eps), points(seed), points(seed + 1, -2, 3)
    near = ball.project(x, z)
    other = ball.project(x, points(seed + 2))
    assert ((near - z).abs() <= (other - z).abs() + 1e-6).all()


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 0.3), seeds)
def test_l2_projection_is_the_nearest_point_away_from_the_box(eps: float, seed: int) -> None:
    ball, x, z = L2(eps), points(seed, 0.4, 0.6), points(seed + 1, 0.3, 0.7)
    near, other = ball.project(x, z), ball.project(x, points(seed + 2, 0.4, 0.6))
    assert (L2(1).distance(near, z) <= L2(1).distance(other, z) + 1e-6).all()


@settings(max_examples=40, deadline=None)
@given(balls, seeds)
def test_distance_is_a_norm(ball: Ball, seed: int) -> None:
    a, b, c = points(seed), points(seed + 1), points(seed + 2)
    assert torch.equal(ball.distance(a, a), torch.zeros(4, dtype=torch.float64))
    assert torch.equal(ball.distance(a, b), ball.distance(b, a))
    assert (ball.distance(a, c) <= ball.distance(a, b) + ball.distance(b, c) + 1e-9).all()
    scaled = ball.distance(torch.zeros_like(a), 3 * (a - b))
    torch.testing.assert_close(scaled, 3 * ball.distance(a, b), rtol=1e-5, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(balls, seeds)
def test_steepest_beats_every_direction_of_norm_one(ball: Ball, seed: int) -> None:
    g, d = points(seed, -1, 1), points(seed + 1, -1, 1)
    zero = torch.zeros_like(d)
    d = d / ball.distance(zero, d).view(-1, 1, 1, 1).float()
    best = ball.steepest(g)
    torch.testing.assert_close(ball.distance(zero, best), torch.ones(4, dtype=torch.float64), rtol=1e-5, atol=1e-5)
    assert ((g * best).flatten(1).sum(1) >= (g * d).flatten(1).sum(1) - 1e-5).all()


@pytest.mark.parametrize("ball", [Linf(0.1), L2(0.5)])
def test_a_zero_gradient_has_no_direction(ball: Ball) -> None:
    assert torch.equal(ball.steepest(torch.zeros(2, 3)), torch.zeros(2, 3))


@pytest.mark.parametrize("ball", [Linf(0.1), L2(0.1)])
def test_random_fills_the_ball(ball: Ball) -> None:
    x = torch.full((500, 1, 2, 2), 0.5)
    d = ball.distance(x, ball.random(x, Draws.of(0, torch.arange(500))))
    assert (d <= ball.reach).all()
    inner = (d < ball.eps / 2 ** (1 / 4)).double().mean()  # half the volume in four dimensions
    assert 0.4 < inner < 0.6


def test_text_and_bad_radius() -> None:
    assert str(Linf(8 / 255)) == "linf:8/255"
    assert str(L2(0.5)) == "l2:0.5"
    for p, eps in ((1.0, 0.1), (2.0, -1.0), (math.inf, math.nan)):
        with pytest.raises(BadSpec):
            Ball(p, eps)
    with pytest.raises(BadSpec, match=r"radius.*found '8/255'.*a number"):
        Linf("8/255")  # type: ignore[arg-type]


def test_an_infinite_radius_leaves_the_box_alone() -> None:
    z = points(0, -1, 2)
    assert torch.equal(Linf(math.inf).project(points(1), z), z.clamp(0, 1))


@pytest.mark.parametrize("ball", [Linf(8 / 255), L2(0.5), L2(20.0)], ids=str)
def test_the_judge_allows_for_rounding_and_no_more(ball: Ball) -> None:
    assert ball.eps < ball.reach <= ball.eps + 2e-6 * max(1, ball.eps)
