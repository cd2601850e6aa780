"""Adaptive attacks: they undo the layer, and average over the noise of a randomised defence."""

from __future__ import annotations

import functools
import math
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv import L2, Linf
from antiadv.attacks import parse
from antiadv.attacks.adaptive.adaptive import Adaptive
from antiadv.attacks.adaptive.eot import Averaged
from antiadv.attacks.adaptive.many_draws import ManyDraws
from antiadv.attacks.adaptive.straight_through import Straight
from antiadv.attacks.cascade import Cascade
from antiadv.core.attack import Attack
from antiadv.core.ball import Ball
from antiadv.core.defence import FURTHER, TRANSFERS, Defence
from antiadv.core.draws import Draws
from antiadv.core.ledger import Ledger
from antiadv.core.losses import ce, margin
from antiadv.core.oracle import Oracle
from antiadv.core.spec import text
from antiadv.core.threat import Access, Threat
from antiadv.defences import wrap
from antiadv.defences.anti_adversary import AntiAdversary
from antiadv.defences.small_noise import SmallNoise
from tests.toys import Spy, halfspace, small_net, sphere

BALL = Linf(8 / 255)


@functools.cache
def trades() -> tuple[nn.Module, Tensor, Tensor]:
    data = antiadv.data.load("cifar10")
    return antiadv.models.load("compact:trades"), data.images(range(12)), data.labels(range(12))


@functools.cache
def robust(defence: str, attack: str) -> float:
    net, x, y = trades()
    return antiadv.attack(wrap(defence, net), x, y, attack, BALL).robust_accuracy


@pytest.mark.parametrize(
    "attack", ["transfer:attack=(apgd:steps=10)", "bpda:attack=(apgd:steps=10)", "pseudo_label:steps=10"]
)
def test_the_gain_of_the_layer_is_taken_away(attack: str) -> None:
    bare, naive = robust("none", "apgd:steps=10"), robust("anti_adversary", "apgd:steps=10")
    assert naive > bare
    assert robust("anti_adversary", attack) <= bare


def test_bpda_tests_the_defence_and_climbs_the_base() -> None:
    toy = halfspace(math.inf)
    spy, ledger = Spy(toy.model), Ledger(6)
    oracle = Oracle(spy, Threat(Linf(0.09), Access.INTERNALS), ledger)
    draws = Draws.of(0, torch.arange(6))
    parse("bpda:attack=(pgd:steps=3)")(oracle, toy.x, toy.y, Linf(0.09), draws)
    assert ledger.queries.tolist() == [4] * 6
    assert ledger.gradients.tolist() == [0] * 6
    assert spy.seen == 24


def test_eot_charges_every_draw() -> None:
    toy = halfspace(math.inf)
    ledger = Ledger(6, 100)
    oracle = Oracle(SmallNoise(toy.model, 0.1), Threat(Linf(0.09), Access.GRADIENTS, 100), ledger)
    parse("eot:attack=(pgd:steps=3),samples=7")(oracle, toy.x, toy.y, Linf(0.05), Draws.of(0, torch.arange(6)))
    assert all(q % 7 == 0 and q <= 28 for q in ledger.queries.tolist())


def test_eot_beats_the_plain_attack_on_noise() -> None:
    toy = halfspace(math.inf, n=12)
    g = SmallNoise(toy.model, 0.3)
    plain, averaged = (
        antiadv.attack(g, toy.x, toy.y, attack, Linf(0.115)).robust_accuracy
        for attack in ("pgd:steps=10", "eot:attack=(pgd:steps=10),samples=20")
    )
    assert averaged < plain


def test_eot_averages_the_noise_out_of_a_gradient() -> None:
    """On m = r² − |z + σn − c|² the margin's gradient is −2(z − c + σn): its error falls as 2σ/√m."""
    toy, n, std = sphere(2, n=200), 200, 0.05
    for samples in (1, 16):
        oracle = Oracle(SmallNoise(toy.model, std), Threat(Linf(0.1), Access.GRADIENTS), Ledger(n))
        _, g = Averaged(oracle, samples).gradient(toy.x + 0.1, margin, toy.y)
        error = (g + 2 * 0.1).std().item()
        assert error == pytest.approx(2 * std / math.sqrt(samples), rel=0.05)


def test_the_stand_in_is_the_layer_where_it_is_sharp_and_its_gradient_sees_gamma() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3)).double().eval()
    layer = AntiAdversary(net, steps=2, step_size=0.05)
    x = torch.rand((2, 3, 2, 2), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(layer.surrogate(1e9)(x), layer(x))
    soft = layer.surrogate(0.5)
    (g,) = torch.autograd.grad(soft(x.requires_grad_())[:, 0].sum(), x)
    (held,) = torch.autograd.grad(layer(x)[:, 0].sum(), x)
    assert torch.isfinite(g).all()
    assert (g != held).any()  # it sees γ
    with torch.no_grad():
        torch.testing.assert_close(soft(x), soft(x.detach()))


def test_the_stand_in_of_a_network_has_a_gradient() -> None:
    net, x = small_net(), torch.rand((3, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    oracle = Oracle(wrap("anti_adversary", net), Threat(BALL, Access.INTERNALS), Ledger(3))
    _, g = oracle.on_own_model(AntiAdversary(net).surrogate()).gradient(x, ce, net(x).argmax(1))
    assert torch.isfinite(g).all()
    assert (g.flatten(1) != 0).any(1).all()


def test_adaptive_is_made_of_what_the_defence_names_then_square_and_rays() -> None:
    net = small_net()
    assert names(Adaptive().against(net, BALL)) == [*TRANSFERS]
    layer = wrap("anti_adversary", net)
    assert isinstance(layer, Defence)
    own = [*TRANSFERS, "bpda:attack=apgd", "straight_through:attack=(probability_margin:steps=20)", "pseudo_label"]
    assert list(layer.adaptive) == own
    assert names(Adaptive(steps=9).against(layer, BALL)) == [*own, "square:steps=9", "rays:steps=9"]
    assert names(Adaptive(steps=9).against(layer, L2(0.5))) == [*own, "square:steps=9"]  # rays knows Linf alone


def test_adaptive_asks_a_randomised_defence_through_eot() -> None:
    noise = Adaptive(steps=9, samples=5).against(wrap("small_noise", small_net()), BALL)
    assert isinstance(noise, ManyDraws)
    assert noise.samples == 5
    own = [*TRANSFERS, FURTHER, "go_on", "apgd", "apgd:loss=dlr"]
    assert names(noise) == [*own, "square:steps=9", "rays:steps=9"]


def test_go_on_moves_an_image_far_beyond_the_edge() -> None:
    net, x, y = trades()
    right = net(x).argmax(1) == y
    x, y = x[right], y[right]
    margins, queries = [], []
    for attack in ("minimum_margin:targets=1", "go_on:attack=(minimum_margin:targets=1)"):
        oracle = Oracle(net, Threat(BALL, Access.GRADIENTS), ledger := Ledger(len(x)))
        z = parse(attack)(oracle, x, y, BALL, Draws.of(0, torch.arange(len(x))))
        margins.append(margin(net(z), y))
        queries.append(ledger.queries)
    (stopped, beyond), (few, all_of_them) = margins, queries
    fell = stopped < 0
    assert fell.any()
    torch.testing.assert_close(beyond[~fell], stopped[~fell])
    assert (beyond[fell] < stopped[fell]).all()
    assert (all_of_them == 22).all()
    assert (few[fell] < 22).all()


def test_straight_through_follows_the_base_where_it_sees_the_image() -> None:
    """The base has its slope between the grey levels only, so at z itself there is nothing to follow."""
    levels = 2**2 - 1

    class Picky(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            v = torch.where((x * levels - (x * levels).round()).abs() < 0.05, x, x.detach()).flatten(1).mean(1)
            return torch.stack([4 * v, -4 * v], 1)

    x, y = torch.full((2, 3, 4, 4), 0.3), torch.zeros(2, dtype=torch.int64)
    g = wrap("bit_depth:bits=2", Picky().eval())
    assert isinstance(g, Defence)
    oracle = Oracle(g, Threat(BALL, Access.INTERNALS), Ledger(2))
    at_z = oracle.on_own_model(g.base).gradient(x, margin, y)[1]
    seen = oracle.on_own_model(Straight(g.base, g.shown)).gradient(x, margin, y)[1]
    assert (at_z == 0).all()
    assert (seen != 0).all()
    torch.testing.assert_close(Straight(g.base, g.shown)(x), g(x))


def test_straight_through_is_bpda_for_a_defence_that_names_no_images() -> None:
    toy, found = halfspace(math.inf), []
    for attack in ("bpda:attack=(pgd:steps=3)", "straight_through:attack=(pgd:steps=3)"):
        oracle = Oracle(wrap("anti_adversary", toy.model), Threat(Linf(0.09), Access.INTERNALS), Ledger(6))
        found.append(parse(attack)(oracle, toy.x, toy.y, Linf(0.09), Draws.of(0, torch.arange(6))))
    assert torch.equal(*found)


class Coin(SmallNoise):
    """A classifier whose answer at any moved image is right in this share of the draws; at x it is always right."""

    def __init__(self, base: nn.Module, x: Tensor, right: float) -> None:
        super().__init__(base, 0.1)
        self.x, self.right = x, right

    def answer(self, x: Tensor, draws: Draws) -> Tensor:
        still = (x.flatten(1)[:, None] == self.x.flatten(1)[None]).all(2).any(1)
        on = still | (draws.uniform(1).squeeze(1) < self.right).to(x.device)
        return 9.0 * torch.stack([on, ~on], 1).to(x)


def moved(shift: float) -> type:
    """An attack that moves every image by this much."""

    class Moved:
        access, norms, minimal, edition = Access.LABELS, frozenset({math.inf}), False, 1
        ran: ClassVar[list[int]] = []

        def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
            self.ran.append(len(x))
            return x + shift

    return Moved


@pytest.mark.parametrize(("right", "broken"), [(0.05, True), (0.45, False)])
def test_many_draws_go_on_where_an_image_fools_hardly_more_than_half_of_them(right: float, broken: bool) -> None:
    x, y, ball = torch.full((8, 1, 2, 2), 0.5), torch.zeros(8, dtype=torch.int64), Linf(0.1)
    first, second, outside = moved(0.05)(), moved(0.07)(), moved(0.5)()
    ledger = Ledger(8)
    oracle = Oracle(Coin(halfspace(math.inf).model, x, right), Threat(ball, Access.LABELS), ledger)
    z = ManyDraws((first, second, outside))(oracle, x, y, ball, Draws.of(0, torch.arange(8)))
    assert first.ran == [8]
    assert (not second.ran) == broken
    assert ((z - x).abs() <= 0.1).all(), "an image outside the ball is no result"
    tested = 1 if broken else 2
    assert set(ledger.queries.tolist()) <= {20 * n for n in range(1, tested + 1)}


def test_many_draws_keep_the_first_image_where_the_budget_ends() -> None:
    x, y, ball = torch.full((2, 1, 2, 2), 0.5), torch.zeros(2, dtype=torch.int64), Linf(0.1)
    oracle = Oracle(Coin(halfspace(math.inf).model, x, 0.5), Threat(ball, Access.LABELS, 30), ledger := Ledger(2, 30))
    z = ManyDraws((moved(0.05)(), moved(0.07)()))(oracle, x, y, ball, Draws.of(0, torch.arange(2)))
    assert ledger.queries.tolist() == [20, 20]
    assert torch.equal(z, x + 0.05)


def names(attack: Attack) -> list[str]:
    assert isinstance(attack, Cascade)
    return [text(stage) for stage in attack.stages]
