"""HYDRA: exact share of pruned weights, straight-through gradient, plain networks after each phase."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from antiadv import models
from antiadv.models.checkpoints import mask
from antiadv.train import Settings, parse
from antiadv.train.hydra import Masked, Scored, first_scores, plain, prunable
from antiadv.train.step import Step
from tests.train.tiny import batch, colours, network


@pytest.mark.parametrize("keep", [0.1, 0.37, 0.5, 1.0])
@pytest.mark.parametrize("shape", [(7,), (16, 3, 3, 3), (1, 1), (10, 13)])
def test_a_mask_zeroes_exactly_the_lowest(keep: float, shape: tuple[int, ...]) -> None:
    a = torch.randn(shape, generator=torch.Generator().manual_seed(0)).abs()
    m = mask(a, keep)
    zeros = int((1 - keep) * a.numel())
    assert int((m == 0).sum()) == zeros
    assert int((m == 1).sum()) == a.numel() - zeros
    if 0 < zeros < a.numel():
        assert a[m == 0].max() <= a[m == 1].min()


def test_equal_scores_still_give_the_exact_fraction() -> None:
    assert int((mask(torch.ones(10, 10), 0.1) == 0).sum()) == int((1 - 0.1) * 100)


def test_every_layer_of_a_real_network_loses_its_fraction_and_the_first_scores_are_magnitudes() -> None:
    net = models.build("preact18:width=4")
    before = {name: net.get_parameter(name).detach().clone() for name in prunable(net)}
    assert len(before) == 21  # 17 convolutions of 3x3, three shortcuts, the head
    pruned = plain(Scored(net, 0.1))
    for name, w in before.items():
        now, zeros = pruned.get_parameter(name), int((1 - 0.1) * w.numel())
        assert int((now == 0).sum()) == zeros, name
        assert torch.equal(now[now != 0], w[now != 0])
        assert w[now == 0].abs().max() <= w[now != 0].abs().min()


def test_first_scores() -> None:
    w = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    s = first_scores(w)
    assert s.abs().max().item() == pytest.approx(math.sqrt(6 / 12))
    torch.testing.assert_close(s / s.abs().max(), w / w.abs().max())


def test_the_slope_passes_straight_through() -> None:
    """∂L/∂s = ∂L/∂(w ⊙ M) · w · sign s, for pruned and kept weights; w has no gradient."""
    layer = nn.Linear(6, 3)
    net = nn.Sequential(layer)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(1.0, 19.0).view(3, 6) * torch.tensor([1, -1, 1, -1, 1, -1]))
    scored = Scored(net, 0.5)
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    s = scored(x)
    (g,) = torch.autograd.grad((s * s).sum(), [scored.scores[0]])
    w = layer.weight.detach()
    effective = (w * mask(scored.scores[0].abs(), 0.5)).requires_grad_(True)
    out = nn.functional.linear(x, effective, layer.bias)
    (slope,) = torch.autograd.grad((out * out).sum(), effective)
    torch.testing.assert_close(g, slope * w * scored.scores[0].sign().detach())
    assert not layer.weight.requires_grad


def test_pruning_learns_scores_and_leaves_weights_then_fine_tuning_keeps_the_mask() -> None:
    prune, tune = parse("hydra").phases()[1:]
    sets, settings = colours(), Settings(epochs=1, batch=32)
    net = network()
    kernel = net[1].weight.detach().clone()  # type: ignore[index]

    def run(net: nn.Module, phase_index: int) -> Step:
        phase = (prune, tune)[phase_index]
        step = Step(phase.enter(net, 4), phase.recipe, sets.x, sets.y, settings)
        for k in range(6):
            step.draw(step.order(0, k)[:32], torch.tensor([0.3, 0.5, 0.5]), 0, k, k)
            step()
        return step

    step = run(net, 0)
    assert isinstance(step.net, Scored)
    assert torch.equal(step.net.net.get_parameter("1.weight"), kernel)
    assert torch.equal(step.averaged.net.get_parameter("1.weight"), kernel)  # type: ignore[union-attr]
    assert not torch.equal(step.net.scores[0], first_scores(kernel))
    pruned = prune.leave(step.finish())
    zero = pruned.get_parameter("1.weight") == 0
    assert int(zero.sum()) == int(0.9 * kernel.numel())

    step = run(pruned, 1)
    assert isinstance(step.net, Masked)
    tuned = tune.leave(step.finish())
    assert torch.equal(tuned.get_parameter("1.weight") == 0, zero)
    assert not torch.equal(tuned.get_parameter("1.weight")[~zero], kernel[~zero])


def test_a_wrapped_network_answers_as_the_plain_one_it_becomes() -> None:
    scored, x = Scored(network(), 0.3).eval(), batch().x
    s = scored(x)
    torch.testing.assert_close(plain(scored).eval()(x), s)
