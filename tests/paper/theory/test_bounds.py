"""Corollary 1 and Theorems 1 to 3: known values to 1e-12, derivatives by algebra, laws by hypothesis, refusals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antiadv.core.errors import BadInput
from antiadv.paper.theory import BlackBox, WhiteBox, black_box, corollary_1, theorem_1, theorem_2, theorem_3, white_box
from antiadv.paper.theory.composition import expected, first_below, proof_ascent, proof_step, track
from antiadv.paper.theory.landscapes import Hill, Landscape, Sigmoids, Valley

CURVATURE = 1 / (6 * math.sqrt(3))
BOX = BlackBox(dimension=4, smoothness=CURVATURE, target=0.4, step=0.5 * 0.4 / (4 * CURVATURE))
LANDS = st.sampled_from([Sigmoids(), Hill(), Hill(3.0), Valley(), Valley(2.0, 0.7)])
shares = st.floats(0.05, 0.999)
cs = st.floats(0.01, 1)


@st.composite
def boxes(draw: st.DrawFn, low: float = 0.01, high: float = 0.999) -> BlackBox:
    n, smoothness, target = draw(st.integers(1, 50)), draw(st.floats(0.01, 100)), draw(st.floats(0.01, 100))
    step = draw(st.floats(low, high)) * target / (n * smoothness)
    return BlackBox(n, smoothness, target, step, beyond=high > 1)


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("c", "over", "enough", "needed", "factor"),
    [
        (1.0, Fraction(1600, 3), 51.32, 18, Fraction(1)),
        (0.5, Fraction(6400, 7), 87.98, 34, Fraction(12, 7)),
        (0.25, Fraction(5120, 3), 164.22, 66, Fraction(16, 5)),
        (0.1, Fraction(160000, 39), 394.77, 161, Fraction(100, 13)),
    ],
)
def test_the_sum_of_sigmoids_to_twelve_digits(
    c: float, over: Fraction, enough: float, needed: int, factor: Fraction
) -> None:
    """K(c) = 2L / ((0.1 − 0.025c)·0.05c) in closed form; the steps needed are those of an earlier computation."""
    p = black_box.point(c, BOX)
    assert p.enough == pytest.approx(float(over) * CURVATURE, rel=1e-12)
    assert round(p.enough, 2) == enough
    assert (p.needed, p.in_system) == (needed, 18)
    assert p.factor == pytest.approx(float(factor), rel=1e-12)
    bare = corollary_1.enough(2.0, BOX)
    assert p.enough / bare == pytest.approx(p.factor, rel=1e-12)


def test_the_known_setting_is_the_experiments_own() -> None:
    assert black_box.sigmoids() == BOX
    assert BOX.limit == pytest.approx(0.1 / CURVATURE, rel=1e-15)
    assert Sigmoids().smoothness == CURVATURE


@pytest.mark.parametrize(
    ("c", "enough", "needed", "honest", "factor"),
    [
        (1.0, Fraction(100, 3), 3, 3, Fraction(1)),
        (0.5, Fraction(400, 7), 6, 2, Fraction(12, 7)),
        (0.25, Fraction(320, 3), 13, 2, Fraction(16, 5)),
        (0.1, Fraction(10000, 39), 32, 2, Fraction(100, 13)),
    ],
)
def test_the_hill_to_twelve_digits(c: float, enough: Fraction, needed: int, honest: int, factor: Fraction) -> None:
    p = white_box.point(c)
    assert p.enough == pytest.approx(float(enough), rel=1e-12)
    assert (p.needed, p.in_system) == (needed, honest)
    assert p.factor == pytest.approx(float(factor), rel=1e-12)


def test_derivatives_by_algebra() -> None:
    """Both factors, typed here anew, differentiated by sympy; in print the first has an ε² below that is too much."""
    c, rho, n, smooth, eps, alpha = sympy.symbols("c rho n L eps alpha", positive=True)
    factor = (rho / n - smooth * eps / 2) / ((rho / n - smooth * eps * c / 2) * c)
    slope = sympy.lambdify((c, rho, n, smooth, eps), sympy.diff(factor, c))
    gradient_slope = sympy.lambdify((c, alpha), sympy.diff((2 - alpha) / ((2 - alpha * c) * c), c))
    for at in (0.03, 0.3, 0.77, 1.0):
        for box in (BOX, BlackBox(7, 2.0, 3.0, 0.05), BlackBox(3, 0.5, 0.2, 0.2, beyond=True)):
            true = slope(at, box.target, box.dimension, box.smoothness, box.step)
            assert theorem_1.derivative(at, box) == pytest.approx(true, rel=1e-11)
            assert theorem_1.printed_derivative(at, box) == pytest.approx(true / box.step**2, rel=1e-11)
        for share in (0.2, 1.0, 1.7):
            ascent = WhiteBox(1.0, 1.0, share, beyond=True)
            assert theorem_3.derivative(at, ascent) == pytest.approx(gradient_slope(at, share), rel=1e-11)


# ---------------------------------------------------------------- laws


@settings(deadline=None)
@given(box=boxes(), c=st.floats(0.02, 0.98))
def test_the_derivative_agrees_with_differences(box: BlackBox, c: float) -> None:
    h = 1e-4 * c
    differences = (theorem_1.factor(c + h, box) - theorem_1.factor(c - h, box)) / (2 * h)
    assert theorem_1.derivative(c, box) == pytest.approx(differences, rel=1e-5, abs=1e-5)


@settings(deadline=None)
@given(box=boxes(), share=st.floats(0.01, 1), pair=st.tuples(cs, cs))
def test_on_the_proved_range_the_factors_fall_to_one(box: BlackBox, share: float, pair: tuple[float, float]) -> None:
    low, high = sorted(pair)
    ascent = WhiteBox(1.0, 1.0, share)
    factors: tuple[Callable[[float], float], ...] = (
        lambda c: theorem_1.factor(c, box),
        lambda c: theorem_3.factor(c, ascent),
    )
    for factor in factors:
        assert factor(1.0) == pytest.approx(1, rel=1e-12)
        assert factor(high) >= 1 - 1e-12
        if high - low > 1e-6 and high < 0.999:
            assert factor(low) > factor(high)
    assert theorem_1.derivative(low, box) < 0
    assert theorem_1.below_one(box) is None
    assert theorem_3.below_one(ascent) is None


@settings(deadline=None)
@given(box=boxes(), c=cs)
def test_the_factor_is_the_ratio_of_the_bounds(box: BlackBox, c: float) -> None:
    ratio = corollary_1.enough(1.0, dataclasses.replace(box, step=c * box.step)) / corollary_1.enough(1.0, box)
    assert theorem_1.factor(c, box) == pytest.approx(ratio, rel=1e-9)


@settings(deadline=None)
@given(share=st.floats(0.01, 1), c=cs)
def test_the_factor_of_ascent_is_the_ratio_of_the_bounds(share: float, c: float) -> None:
    box = WhiteBox(2.0, 0.3, share)
    ratio = theorem_2.enough(1.0, dataclasses.replace(box, share=c * share)) / theorem_2.enough(1.0, box)
    assert theorem_3.factor(c, box) == pytest.approx(ratio, rel=1e-9)


@settings(deadline=None)
@given(c=cs, box=boxes(low=1e-9, high=1e-8))
def test_for_tiny_steps_the_factor_is_one_over_c(c: float, box: BlackBox) -> None:
    assert theorem_1.factor(c, box) == pytest.approx(1 / c, rel=1e-7)
    assert theorem_3.factor(c, WhiteBox(1.0, 1.0, 1e-8)) == pytest.approx(1 / c, rel=1e-7)


@settings(deadline=None)
@given(box=boxes(), power=st.integers(3, 12))
def test_near_zero_the_factor_grows_without_bound(box: BlackBox, power: int) -> None:
    c = 10.0**-power
    a, b = box.target / box.dimension, box.smoothness * box.step / 2
    assert theorem_1.factor(c, box) * c == pytest.approx(1 - b / a, rel=1e-3)


@settings(deadline=None)
@given(box=boxes(low=1.001, high=1.99), share=st.floats(1.001, 1.99), c=st.floats(0.001, 0.999))
def test_past_the_range_the_factor_is_below_one_just_where_said(box: BlackBox, share: float, c: float) -> None:
    ascent = WhiteBox(1.0, 1.0, share, beyond=True)
    for theorem, setting in ((theorem_1, box), (theorem_3, ascent)):
        low, high = theorem.below_one(setting)
        assert high == 1
        if abs(c - low) > 1e-6:
            assert (theorem.factor(c, setting) < 1) == (c > low)
    for found, low in (
        (theorem_1.below_one(box), 2 * box.limit / box.step - 1),
        (theorem_3.below_one(ascent), 2 / share - 1),
    ):
        assert found is not None
        assert found[0] == pytest.approx(low)


@settings(max_examples=60, deadline=None)
@given(land=LANDS, n=st.integers(1, 4), start=st.floats(-1.2, 1.2), share=st.floats(0.3, 1.9), aim=st.floats(0.3, 0.9))
def test_more_than_k_steps_of_stp_are_enough(land: Landscape, n: int, start: float, share: float, aim: float) -> None:
    """On smooth bounded losses of all shapes, monotone or not, up to ε = 2ρ/(nL)."""
    steepest = float(land.slope(torch.linspace(-1.5, 1.5, 301, dtype=torch.float64)).abs().max())
    target = aim * n * steepest
    box = BlackBox(n, land.smoothness, target, share * target / (n * land.smoothness), beyond=True)
    enough = corollary_1.enough(land.gap(torch.full((n,), start, dtype=torch.float64)), box)
    d = torch.tensor([box.step], dtype=torch.float64)
    path = track(lambda x: proof_step(land.loss, x, d, 1.0), start, math.floor(enough) + 1)
    needed = first_below(expected(land.slope(path).abs(), n), target)
    assert needed is not None
    assert needed <= math.floor(enough) + 1


@settings(deadline=None)
@given(land=LANDS, start=st.floats(-1.2, 1.2), share=st.floats(0.1, 1.9), aim=st.floats(0.2, 0.9))
def test_more_than_k_steps_of_ascent_are_enough(land: Landscape, start: float, share: float, aim: float) -> None:
    target = (aim * land.smoothness) ** 2
    box = WhiteBox(land.smoothness, target, share, beyond=True)
    enough = theorem_2.enough(land.gap(torch.tensor([start], dtype=torch.float64)), box)
    path = track(lambda x: proof_ascent(land, x, share, 1.0), start, math.floor(enough) + 1)
    needed = first_below(land.slope(path).square().tolist(), target)
    assert needed is not None
    assert needed <= math.floor(enough) + 1


@pytest.mark.parametrize(("module", "gain"), [("black", 0.375), ("white", 0.375)])
def test_no_smaller_k_is_proved(module: str, gain: float) -> None:
    """A step that gains exactly what the proof counts on: the bound is as sharp as its one inequality.

    From slope ρ (n = 1) up a parabola that bends down by L, a step of ½ρ/L gains ½·(ρ − ½·½ρ)·ρ/L = ⅜ρ²/L.
    """
    x = torch.tensor([-1.0], dtype=torch.float64)
    if module == "black":
        bound = 1 / corollary_1.enough(1.0, BlackBox(1, 1.0, 1.0, 0.5))
        after = proof_step(Hill().loss, x, torch.tensor([0.5], dtype=torch.float64), 1.0)
    else:
        bound = 1 / theorem_2.enough(1.0, WhiteBox(1.0, 1.0, 0.5))
        after = proof_ascent(Hill(), x, 0.5, 1.0)
    assert bound == gain
    assert float(Hill().loss(after) - Hill().loss(x)) == gain


@settings(deadline=None)
@given(rate=st.floats(-0.99, 0.99), target=st.floats(1e-6, 0.99))
def test_the_first_step_in_closed_form_is_that_of_a_loop(rate: float, target: float) -> None:
    found = white_box.first(rate, WhiteBox(1.0, target, 0.5))
    assert found is not None
    assert rate ** (2 * found) < target * (1 + 1e-9)
    assert found == 1 or rate ** (2 * found - 2) >= target * (1 - 1e-9)
    assert white_box.first(1.0, WhiteBox(1.0, target, 0.5)) is None
    assert white_box.first(-1.6, WhiteBox(1.0, target, 0.5)) is None


# ---------------------------------------------------------------- local monotonicity


@settings(deadline=None)
@given(t=st.floats(-3, 3), limit=st.floats(0.05, 1))
def test_a_hill_is_locally_monotone_just_outside_half_the_limit(t: float, limit: float) -> None:
    if abs(abs(t) - limit / 2) > limit / 1000:
        assert theorem_1.locally_monotone(Hill().height, t, limit) == (abs(t) > limit / 2)


@settings(deadline=None)
@given(t=st.floats(-10, 10), limit=st.floats(0.05, 5))
def test_sigmoids_are_monotone_at_any_step_up_and_down(t: float, limit: float) -> None:
    assert theorem_1.locally_monotone(Sigmoids().height, t, limit)
    assert theorem_1.locally_monotone(lambda v: -Sigmoids().height(v), t, limit)


def test_flat_is_locally_monotone_and_a_bowl_is_not() -> None:
    assert theorem_1.locally_monotone(torch.zeros_like, 0.3, 1.0)
    assert not theorem_1.locally_monotone(Valley().height, 0.0, 0.1)
    assert theorem_1.locally_monotone(Valley().height, 3.0, 0.5), "flat, beyond the rim"


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"dimension": 0}, "dimension"),
        ({"dimension": 2.5}, "dimension"),
        ({"smoothness": 0.0}, "smoothness"),
        ({"target": math.inf}, "target"),
        ({"target": math.nan}, "target"),
        ({"step": 0.0}, "beyond=True"),
        ({"step": BOX.limit}, "beyond=True"),
        ({"step": math.nan}, "beyond=True"),
        ({"step": 2 * BOX.limit, "beyond": True}, r"2ρ/\(nL\)"),
    ],
)
def test_what_corollary_1_does_not_assume_is_refused(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        dataclasses.replace(BOX, **change)


def test_beyond_the_range_knowingly() -> None:
    far = dataclasses.replace(BOX, step=1.5 * BOX.limit, beyond=True)
    assert theorem_1.factor(0.5, far) == pytest.approx(0.8, rel=1e-12)
    assert theorem_1.factor(-0.99, BOX) == math.inf
    for c in (-1.01, -7.0):
        with pytest.raises(BadInput, match="= -1; found"):
            theorem_1.factor(c, BOX)
        assert theorem_1.factor(c, dataclasses.replace(BOX, beyond=True)) == math.inf
    ascent = WhiteBox(1.0, 0.04, 0.5)
    assert theorem_3.factor(-4.0, ascent) == math.inf
    with pytest.raises(BadInput, match="= -4; found"):
        theorem_3.factor(-4.01, ascent)
    assert theorem_3.factor(-4.01, dataclasses.replace(ascent, beyond=True)) == math.inf


@pytest.mark.parametrize("share", [0.0, 1.01, -1.0, math.nan])
def test_what_theorem_2_does_not_assume_is_refused(share: float) -> None:
    with pytest.raises(BadInput, match="beyond=True"):
        WhiteBox(1.0, 1.0, share)
    with pytest.raises(BadInput, match=r"\(0, 2\)"):
        WhiteBox(1.0, 1.0, 2.0, beyond=True)


@pytest.mark.parametrize("c", [1.01, math.inf, math.nan, -math.inf])
def test_no_c_above_one(c: float) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: theorem_1.factor(c, BOX),
        lambda: theorem_3.factor(c, white_box.BOX),
    )
    for call in calls:
        with pytest.raises(BadInput, match="c must be"):
            call()


@pytest.mark.parametrize("c", [0.0, -0.5, 1.5, math.nan])
def test_no_derivative_outside(c: float) -> None:
    for call in (theorem_1.derivative, theorem_1.printed_derivative):
        with pytest.raises(BadInput, match=r"\(0, 1\]"):
            call(c, BOX)
    with pytest.raises(BadInput, match=r"\(0, 1\]"):
        theorem_3.derivative(c, white_box.BOX)


@pytest.mark.parametrize("gap", [-0.1, math.inf, math.nan])
def test_a_gap_is_at_least_zero(gap: float) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: corollary_1.enough(gap, BOX),
        lambda: theorem_2.enough(gap, white_box.BOX),
    )
    for call in calls:
        with pytest.raises(BadInput, match=r"L\(x⁰\)"):
            call()
    assert corollary_1.enough(0.0, BOX) == theorem_2.enough(0.0, white_box.BOX) == 0
