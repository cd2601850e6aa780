"""Randomised smoothing: votes, scores, gradients, and how close it comes to its closed form."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import norm
from torch import Tensor, nn

import antiadv
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.defences.smoothing import Smoothing
from tests.toys import halfspace, small_net

SMALL = (1, 2, 2)


def draws_of(n: int) -> Draws:
    return Draws.of(3, torch.arange(n))


def by_hand(net: nn.Module, x: Tensor, std: float, samples: int) -> tuple[Tensor, Tensor]:
    """Votes and mean probabilities, in plain sums."""
    each = [net(x + std * draws_of(len(x)).fold(m).normal(*x.shape[1:])).double() for m in range(samples)]
    votes = sum(torch.nn.functional.one_hot(s.argmax(1), s.shape[1]) for s in each)
    assert isinstance(votes, Tensor)
    return votes, torch.stack([s.softmax(1) for s in each]).mean(0)


def test_scores_are_the_votes_and_the_mean_probabilities() -> None:
    net, x = small_net(classes=5), torch.rand((6, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    votes, p = by_hand(net, x, 2.0, 7)
    assert (votes > 0).sum() > 6, "some samples have votes for several classes"
    s = Smoothing(net, std=2.0, samples=7)(x, draws_of(6))
    torch.testing.assert_close(s.double().exp(), (votes + p) / 8, rtol=1e-5, atol=1e-6)
    assert s.dtype == x.dtype


class Rare(nn.Module):
    """Class 0 with a small margin for most noise, class 1 with a huge margin for the rest."""

    def forward(self, x: Tensor) -> Tensor:
        v = x.flatten(1).mean(1)
        return torch.stack([torch.full_like(v, 0.01), torch.where(v > 0.7, 1000.0, 0.0)], 1)


def test_the_majority_decides_and_not_the_mean() -> None:
    x = torch.full((8, 1, 1, 1), 0.5)
    g = Smoothing(Rare().eval(), std=0.25, samples=101)
    votes, p = by_hand(Rare(), x, 0.25, 101)
    assert (votes[:, 1] > 0).all()
    assert (p.argmax(1) == 1).all(), "the mean of the probabilities says class 1"
    s = g(x, draws_of(8))
    assert (s.argmax(1) == 0).all()
    assert torch.isfinite(s).all()


@pytest.mark.parametrize("distance", [0.05, 0.2])
def test_vote_shares_of_a_half_space_have_a_closed_form(distance: float) -> None:
    toy = halfspace(2, n=4, shape=SMALL, distance=distance)
    share = Smoothing(toy.model, std=0.25, samples=1000)(toy.x, draws_of(4)).exp()
    expected = norm.cdf(distance / 0.25)
    assert share[torch.arange(4), toy.y].tolist() == pytest.approx([expected] * 4, abs=0.06)


def test_the_gradient_is_that_of_the_mean_probabilities() -> None:
    net = small_net(classes=5).double()
    x = torch.rand((3, 3, 8, 8), dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    s = Smoothing(net, std=2.0, samples=7)(x, draws_of(3))
    votes, p = by_hand(net, x, 2.0, 7)
    for k in range(5):
        (found,) = torch.autograd.grad(s[:, k].sum(), x, retain_graph=True)
        (asked,) = torch.autograd.grad((p[:, k] / (votes + p.detach())[:, k]).sum(), x, retain_graph=True)
        torch.testing.assert_close(found, asked)
        assert (found != 0).any()


@pytest.mark.parametrize(
    ("attack", "times", "robust"),
    [("adaptive:steps=20,samples=2", 1.6, 0.0), ("eot:attack=(apgd:steps=10),samples=2", 0.5, 1.0)],
)
def test_an_attack_that_knows_it_reaches_the_boundary_and_no_further(attack: str, times: float, robust: float) -> None:
    """The smoothed half-space is the half-space. With few copies the vote is uncertain near its boundary."""
    toy = halfspace(2, n=4, shape=SMALL)
    g = Smoothing(toy.model, std=0.05, samples=50)
    made = antiadv.attack(g, toy.x, toy.y, attack, antiadv.L2(times * toy.distance), looks=3)
    assert made.robust_accuracy == robust


def test_huge_logits_give_finite_scores() -> None:
    layer = nn.Linear(4, 3)
    layer.weight.data.mul_(1e6)
    net = nn.Sequential(nn.Flatten(), layer).eval()
    assert torch.isfinite(Smoothing(net)(torch.rand(5, *SMALL))).all()


@pytest.mark.parametrize("std", ["a", None, True, 0, -1, math.nan, 1e39])
def test_a_std_that_is_no_positive_number_is_refused(std: float) -> None:
    with pytest.raises(BadInput, match="std"):
        Smoothing(small_net(), std=std)


@pytest.mark.parametrize("samples", [0, 1.5, True, None])
def test_a_number_of_copies_below_one_is_refused(samples: int) -> None:
    with pytest.raises(BadInput, match="samples"):
        Smoothing(small_net(), samples=samples)
