"""The losses against their closed forms, and the inner maximisation against its ball."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.train import Batch, parse
from antiadv.train.inner import attacked, divergence, maximise, uniform
from antiadv.train.mart import boosted_cross_entropy, weight
from tests.train.tiny import batch, network, scores


class Table(nn.Module):
    """A network with one row of logits for x and another for all other images: losses have a closed form."""

    def __init__(self, x: Tensor, at_x: Tensor, elsewhere: Tensor) -> None:
        super().__init__()
        self.x, self.at_x, self.elsewhere = x, at_x, elsewhere

    def forward(self, z: Tensor) -> Tensor:
        return self.at_x if torch.equal(z, self.x) else self.elsewhere


X, Z, Y = torch.zeros(16, 1, 2, 2), torch.ones(16, 1, 2, 2), torch.arange(16) % 5
S, R = scores(seed=1), scores(seed=2)


def test_divergence_of_equal_scores_is_0_and_else_positive() -> None:
    assert torch.equal(divergence(S, S), torch.zeros(16))
    assert (divergence(S, R) > 0).all()
    expected = F.kl_div(R.log_softmax(1), S.softmax(1), reduction="none").sum(1)
    torch.testing.assert_close(divergence(S, R), expected)


def test_divergence_of_a_hand_made_pair() -> None:
    half, quarter = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    assert divergence(half, quarter).item() == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))


def test_trades_with_beta_0_is_cross_entropy() -> None:
    net = Table(X, S, R)
    assert torch.equal(parse("trades:beta=0").loss(net, X, Z, Y).value, F.cross_entropy(S, Y, reduction="none"))


def test_trades_is_cross_entropy_plus_beta_divergence() -> None:
    net = Table(X, S, R)
    extra = parse("trades:beta=6").loss(net, X, Z, Y).value - parse("trades:beta=2").loss(net, X, Z, Y).value
    torch.testing.assert_close(extra, 4 * divergence(S, R))


def test_pgd_is_cross_entropy_at_z() -> None:
    assert torch.equal(parse("pgd").loss(Table(X, S, R), X, Z, Y).value, F.cross_entropy(R, Y, reduction="none"))


def test_mart_in_full() -> None:
    """The authors' expression, with their constants, written out with probabilities."""
    p, q = S.softmax(1), R.softmax(1)
    rows = torch.arange(16)
    wrong = q.clone()
    wrong[rows, Y] = -1
    bce = -q[rows, Y].log() - (1.0001 - wrong.max(1).values + 1e-12).log()
    kl = (p * (p.log() - (q + 1e-12).log())).sum(1)
    expected = bce + 5 * kl * (1.0000001 - p[rows, Y])
    torch.testing.assert_close(parse("mart:beta=5").loss(Table(X, S, R), X, Z, Y).value, expected)


def slopes(text: str) -> tuple[Tensor, Tensor]:
    """Return the gradients of a loss with respect to the logits at x and at z."""
    s, r = (scores.clone().requires_grad_() for scores in (S, R))
    at_x, at_z = torch.autograd.grad(parse(text).loss(Table(X, s, r), X, Z, Y).value.sum(), (s, r))
    return at_x, at_z


def test_trades_teaches_by_both_sides_of_the_divergence() -> None:
    s, r = (scores.clone().requires_grad_() for scores in (S, R))
    p, q = s.softmax(1), r.softmax(1)
    loss = -p[torch.arange(16), Y].log() + 6 * (p * (p.log() - q.log())).sum(1)
    torch.testing.assert_close(slopes("trades:beta=6"), torch.autograd.grad(loss.sum(), (s, r)))


def test_mart_teaches_by_the_weight_and_by_both_sides_of_the_divergence() -> None:
    s, r = (scores.clone().requires_grad_() for scores in (S, R))
    p, q = s.softmax(1), r.softmax(1)
    rows = torch.arange(16)
    wrong = q.scatter(1, Y[:, None], 0.0).amax(1)
    loss = -q[rows, Y].log() - (1.0001 - wrong).log() + 5 * (1 - p[rows, Y]) * (p * (p.log() - q.log())).sum(1)
    torch.testing.assert_close(slopes("mart:beta=5"), torch.autograd.grad(loss.sum(), (s, r)))


def test_trades_climbs_the_divergence_from_x_to_z() -> None:
    """One step on KL(p(x) ‖ p(z)); the reverse divergence has another gradient."""
    net, found = network(), batch()
    found = Batch(found.x, found.y, 100 * found.d, found.t)  # far from x, where the two differ
    start = (found.x + 0.001 * found.d).clamp(found.x - 0.5, found.x + 0.5).clamp(0, 1).requires_grad_()
    p, q = net.eval()(found.x).softmax(1).detach(), net(start).softmax(1)
    (right,) = torch.autograd.grad((p * (p.log() - q.log())).sum(), start, retain_graph=True)
    (wrong,) = torch.autograd.grad((q * (q.log() - p.log())).sum(), start)
    assert (right.sign() != wrong.sign()).any(), "else this would tell nothing"
    low, high = (found.x - 0.5).clamp(min=0), (found.x + 0.5).clamp(max=1)
    expected = (start.detach() + 0.05 * right.sign()).clamp(low, high)
    torch.testing.assert_close(parse("trades:eps=0.5,steps=1,step_size=0.1").perturb(net, found), expected)


def test_mart_weights_lie_above_0_and_up_to_1() -> None:
    sure = torch.tensor([[80.0, 0.0], [-80.0, 0.0], [0.0, 0.0]])
    found = weight(sure, torch.zeros(3, dtype=torch.int64))
    assert (found > 0).all()
    assert (found <= 1).all()
    assert found[1] == 1
    assert found[2] == 0.5
    assert torch.isfinite(boosted_cross_entropy(sure, torch.ones(3, dtype=torch.int64))).all()


@pytest.mark.parametrize("text", ["pgd", "trades", "mart", "pgd:eps=0.2,step_size=0.7", "trades:steps=0"])
def test_inner_images_stay_in_ball_and_box(text: str) -> None:
    recipe, net, found = parse(text), network(), batch()
    found = Batch((found.x * 2 - 0.5).clamp(0, 1), found.y, 50 * found.d, found.t)  # at the walls, and wild dice
    z = recipe.perturb(net, found)
    eps: float = recipe.eps  # type: ignore[attr-defined]
    assert (z - found.x).abs().max() <= eps + 1e-7
    assert z.min() >= 0
    assert z.max() <= 1
    assert not torch.equal(z, found.x)


def test_ascent_reaches_the_far_corner_of_a_linear_loss() -> None:
    w = scores(4, 12).view(4, 3, 2, 2)
    x = torch.full((4, 3, 2, 2), 0.5)
    z = maximise(lambda z: (w * z).flatten(1).sum(1), x, x, 0.1, steps=4, step_size=0.25)
    torch.testing.assert_close(z, x + 0.1 * w.sign())


def test_ascent_of_three_steps_goes_three_steps() -> None:
    x = torch.full((2, 1, 2, 2), 0.5)
    z = maximise(lambda z: z.flatten(1).sum(1), x, x, 0.1, steps=3, step_size=0.25)
    torch.testing.assert_close(z, x + 0.075)


def test_uniform_numbers_are_uniform() -> None:
    u = uniform(torch.randn(100_000, generator=torch.Generator().manual_seed(0)))
    assert u.abs().max() <= 1
    shares = torch.histc(u, 10, -1, 1) / len(u)
    assert (shares - 0.1).abs().max() < 0.005


def test_an_attacked_network_is_as_before_even_after_an_error() -> None:
    net = network().train()
    net[1].weight.requires_grad_(False)  # type: ignore[index]
    net[1].eval()  # type: ignore[index]
    before = [p.requires_grad for p in net.parameters()]
    modes = [m.training for m in net.modules()]
    with attacked(net):
        assert not net.training
        assert not any(p.requires_grad for p in net.parameters())
    with pytest.raises(RuntimeError, match="channels"), attacked(net):
        net(torch.zeros(1, 1, 8, 8))
    assert net.training
    assert [m.training for m in net.modules()] == modes
    assert [p.requires_grad for p in net.parameters()] == before
