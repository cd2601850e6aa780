"""AWP: each tensor moves by the right distance, is restored, and the gradient is taken in between."""

from __future__ import annotations

import copy

import pytest
import torch

from antiadv.train import parse
from antiadv.train.awp import move, unchanged
from antiadv.train.recipe import descent
from tests.train.tiny import batch, network


def test_each_tensor_moves_by_gamma_times_its_norm_along_its_gradient() -> None:
    tensors = [torch.randn(s, generator=torch.Generator().manual_seed(i)) for i, s in enumerate([(4, 3), (2, 3, 3, 3)])]
    g = [torch.randn(t.shape, generator=torch.Generator().manual_seed(9)) * 10**i for i, t in enumerate(tensors)]
    before = [t.clone() for t in tensors]
    move(tensors, g, 0.01)
    for t, b, slope in zip(tensors, before, g, strict=True):
        step = t - b
        assert step.norm().item() == pytest.approx(0.01 * b.norm().item(), rel=1e-4)
        assert torch.cosine_similarity(step.flatten(), slope.flatten(), 0).item() == pytest.approx(1, abs=1e-4)


def test_a_tensor_without_slope_does_not_move() -> None:
    w = torch.ones(3, 3)
    move([w], [torch.zeros(3, 3)], 0.01)
    assert torch.equal(w, torch.ones(3, 3))


def test_what_is_unchanged_is_so_to_the_bit_even_after_an_error() -> None:
    w = torch.randn(50, generator=torch.Generator().manual_seed(0))
    before = w.clone()
    with pytest.raises(RuntimeError, match="shape"), unchanged([w]):
        w.mul_(3).view(7)
    assert torch.equal(w, before)


def test_the_gradient_is_that_of_the_wrapped_loss_at_the_moved_weights() -> None:
    net, found = network().train(), batch()
    recipe = parse("awp:recipe=pgd,gamma=0.05")
    g, loss = recipe.gradients(net, list(net.parameters()), found)

    by_hand = network().train()
    z = recipe.perturb(by_hand, found)
    kernels = [p for p in by_hand.parameters() if p.dim() > 1]
    statistics = copy.deepcopy([b.clone() for b in by_hand.buffers()])
    slope, _ = descent(parse("pgd"), by_hand, kernels, found, z)
    for b, value in zip(by_hand.buffers(), statistics, strict=True):
        b.copy_(value)
    with torch.no_grad():
        for w, s in zip(kernels, slope, strict=True):
            w.add_(0.05 * w.norm() * s / s.norm())
    expected, at = descent(parse("pgd"), by_hand, list(by_hand.parameters()), found, z)
    for a, b in zip(g, expected, strict=True):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(loss.value, at.value)
    for a, b in zip(net.buffers(), by_hand.buffers(), strict=True):
        torch.testing.assert_close(a, b)  # the pass that finds the direction leaves no trace in the statistics


def test_the_moved_weights_are_worse() -> None:
    found = batch()
    net = network().train()
    with_awp = parse("awp:recipe=pgd,gamma=0.05").gradients(net, list(net.parameters()), found)[1].value.mean()
    net = network().train()
    without = parse("pgd").gradients(net, list(net.parameters()), found)[1].value.mean()
    assert with_awp > without


def test_during_the_warm_up_it_is_the_wrapped_recipe() -> None:
    recipe = parse("awp:recipe=pgd,gamma=0.05,warmup=0.5")
    for t, same in ((0.4, True), (0.5, False)):
        net, found = network().train(), batch(t=t)
        g, _ = recipe.gradients(net, list(net.parameters()), found)
        net = network().train()
        expected, _ = parse("pgd").gradients(net, list(net.parameters()), found)
        assert all(torch.equal(a, b) for a, b in zip(g, expected, strict=True)) == same


def test_the_phases_of_a_phased_recipe_are_wrapped_one_by_one() -> None:
    phases = parse("awp:recipe=hydra").phases()
    assert [p.name for p in phases] == ["train", "prune", "fine-tune"]
    assert [p.recipe for p in phases] == [parse("awp")] * 3
