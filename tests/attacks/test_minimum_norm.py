"""Fast minimum norm: true distances on linear networks, its price, its variants, the curve of one run."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv.attacks import parse
from antiadv.core.ball import L2, Ball
from antiadv.core.errors import BadSpec
from tests.contract import test_attacks as contract
from tests.toys import Toy, halfspace, sphere

NORMS = (2, math.inf)


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("name", ["minimum_norm:steps=40", "minimum_norm:step_size=0.5,gamma=0.1"])
def test_every_variant_keeps_the_contract(name: str, p: float) -> None:
    contract.check(name, p)


class Linear(nn.Module):
    """Five classes whose boundaries are planes."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.randn((5, 48), generator=torch.Generator().manual_seed(0))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(1) - 0.5) @ self.w.to(x).T

    def distance(self, x: Tensor, y: Tensor, p: float) -> Tensor:
        """min_k (s_y − s_k) / |w_y − w_k|_q. The faces of the box are too far away to matter."""
        s, w, q = self(x), self.w.to(x), 1 if p == math.inf else 2
        gaps, normals = s.gather(1, y[:, None]) - s, torch.linalg.vector_norm(w[y][:, None] - w, q, dim=2)
        found: Tensor = (gaps / normals).scatter(1, y[:, None], math.inf).amin(1)
        return found


@pytest.mark.parametrize("p", NORMS)
def test_finds_the_nearest_boundary_of_a_linear_network(p: float) -> None:
    """Within 1 %, unless the nearest boundary is not that of the class which leads among the others."""
    net = Linear()
    x = 0.5 + 0.02 * torch.randn((100, 3, 4, 4), generator=torch.Generator().manual_seed(1)).double()
    y = net(x).argmax(1)
    found = antiadv.attack(net, x, y, "minimum_norm", Ball(p, math.inf))
    ratio = torch.tensor([r.distance for r in found.records]) / net.distance(x, y, p)
    assert found.fooled.all()
    assert (ratio > 1 - 1e-5).all()
    assert (ratio < 1.01).float().mean() >= 0.9


@pytest.mark.parametrize("toy", [halfspace, sphere])
@pytest.mark.parametrize("p", NORMS)
def test_finds_the_true_distance(p: float, toy: Callable[[float], Toy]) -> None:
    known = toy(p)
    found = antiadv.attack(known.model, known.x, known.y, "minimum_norm", Ball(p, math.inf))
    assert all(1 - 1e-5 < r.distance / known.distance < 1.01 for r in found.records)
    aimed = antiadv.attack(known.model, known.x, 1 - known.y, "minimum_norm", Ball(p, math.inf), targeted=True)
    assert all(1 - 1e-5 < r.distance / known.distance < 1.01 for r in aimed.records)


def test_costs_what_its_head_says_and_stops_at_the_first_fooling_image_in_the_ball() -> None:
    toy = halfspace(2)
    endless = antiadv.attack(toy.model, toy.x, toy.y, "minimum_norm:steps=30", L2(math.inf)).records
    assert {(r.queries, r.gradients) for r in endless} == {(30, 30)}
    inside = antiadv.attack(toy.model, toy.x, toy.y, "minimum_norm", L2(1.1 * toy.distance))
    assert inside.fooled.all()
    assert {r.queries for r in inside.records} == {2}  # of a plane, the first step is enough
    outside = antiadv.attack(toy.model, toy.x, toy.y, "minimum_norm", L2(0.5 * toy.distance))
    assert not outside.fooled.any()
    assert all(abs(r.distance - toy.distance) < 1e-3 and r.attacked != r.label for r in outside.records)


def test_one_run_shows_every_radius() -> None:
    """The distances of one run without a radius agree with runs at single radii."""
    net, p = Linear(), math.inf
    x = 0.5 + 0.02 * torch.randn((40, 3, 4, 4), generator=torch.Generator().manual_seed(2))
    y = net(x).argmax(1)
    far = torch.tensor([r.distance for r in antiadv.attack(net, x, y, "minimum_norm", Ball(p, math.inf)).records])
    for eps in far.quantile(torch.tensor([0.2, 0.5, 0.8], dtype=far.dtype)).tolist():
        stands = (far > eps).double().mean().item()
        assert abs(antiadv.attack(net, x, y, "minimum_norm", Ball(p, eps)).robust_accuracy - stands) <= 0.05


def test_what_cannot_be_asked_for() -> None:
    for text in ("minimum_norm:steps=0", "minimum_norm:step_size=-1", "minimum_norm:gamma=0", "minimum_norm:gamma=1"):
        with pytest.raises(BadSpec):
            parse(text)
