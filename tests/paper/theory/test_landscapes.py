"""The curves the experiments climb: slopes are derivatives, and the constants are the true ones."""

from __future__ import annotations

import math

import pytest
import torch

from antiadv.paper.theory.landscapes import Hill, Landscape, Sigmoids, Valley

LANDS = [Sigmoids(), Hill(), Hill(2.5), Valley(), Valley(smoothness=3.0, radius=0.5)]
GRID = torch.linspace(-4, 4, 16001, dtype=torch.float64)


@pytest.mark.parametrize("land", LANDS, ids=str)
def test_the_slope_is_the_derivative(land: Landscape) -> None:
    h = 1e-6
    differences = (land.height(GRID + h) - land.height(GRID - h)) / (2 * h)
    assert torch.allclose(land.slope(GRID), differences, rtol=0, atol=1e-6 * land.smoothness)


@pytest.mark.parametrize("land", LANDS, ids=str)
def test_the_smoothness_is_the_largest_curvature_and_no_more(land: Landscape) -> None:
    curvature = (land.slope(GRID).diff() / GRID.diff()).abs()
    assert float(curvature.max()) <= land.smoothness * (1 + 1e-9)
    assert float(curvature.max()) == pytest.approx(land.smoothness, rel=1e-6)


@pytest.mark.parametrize("land", LANDS, ids=str)
def test_the_top_is_the_least_bound(land: Landscape) -> None:
    far = torch.tensor([-40.0, 0.0, 40.0], dtype=torch.float64)
    assert float(land.height(GRID).max()) <= land.top
    assert float(land.height(far).max()) == pytest.approx(land.top, abs=1e-12)
    x = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64)
    assert land.gap(x) == pytest.approx(3 * land.top - float(land.height(x).sum()))


def test_the_shapes() -> None:
    t = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0], dtype=torch.float64)
    assert Valley().height(t).tolist() == [0, 0.125, 0.5, 0.875, 1, 1]
    assert Valley().slope(-t).tolist() == [0, -0.5, -1, -0.5, 0, 0]
    assert Hill(2.0).height(t[:3]).tolist() == [0, -0.25, -1]
    assert (Sigmoids().slope(GRID) > 0).all(), "it rises everywhere"
    assert float(Sigmoids().slope(torch.tensor(-300.0, dtype=torch.float64))) == pytest.approx(math.exp(-300))
