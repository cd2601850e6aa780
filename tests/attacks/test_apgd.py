"""APGD: schedule, cost, and losses with few classes. tests/parity compares iterates with the authors'."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv.attacks import parse
from antiadv.attacks._search.survivors import Survivors
from antiadv.attacks.white_box.apgd import APGD, checkpoints, rank, start
from antiadv.core.ball import Ball, Linf
from antiadv.core.draws import Draws
from antiadv.core.errors import BadSpec
from antiadv.core.ledger import Ledger
from antiadv.core.losses import ce, ce_to, dlr, dlr_lead, dlr_to, gap, margin
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from tests.contract import test_attacks as contract
from tests.toys import halfspace, small_net

NORMS = (2, math.inf)
VARIANTS = [
    "apgd:loss=dlr,steps=30",
    "apgd:loss=dlr,targets=9,steps=30",
    "apgd:loss=ce,targets=2,steps=30",
    "apgd:steps=20,restarts=3",
    "apgd:steps=20,eot=3",
]
everywhere = pytest.mark.parametrize(("name", "p"), list(product(VARIANTS, NORMS)))


@everywhere
def test_every_variant_keeps_the_contract(name: str, p: float) -> None:
    contract.check(name, p)


def test_checkpoints_are_the_papers() -> None:
    assert checkpoints(100) == {22: 22, 41: 19, 57: 16, 70: 13, 80: 10, 87: 7, 93: 6, 99: 6}
    assert list(checkpoints(50)) == [11, 21, 30, 38, 45]
    assert list(checkpoints(3)) == [1, 2, 3]
    assert checkpoints(1) == {1: 1}


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("name", ["apgd", "apgd:loss=dlr", "apgd:loss=dlr,targets=9"])
def test_succeeds_exactly_beyond_the_true_distance(name: str, p: float) -> None:
    toy = halfspace(p)
    for share, broken in ((0.99, False), (1.01, True)):
        outcome = antiadv.attack(toy.model, toy.x, toy.y, name, Ball(p, share * toy.distance))
        assert outcome.fooled.tolist() == [broken] * 6


@pytest.mark.parametrize(
    ("name", "queries", "gradients"),
    [
        ("apgd", 101, 100),
        ("apgd:restarts=3", 303, 300),
        ("apgd:steps=7", 8, 7),
        ("apgd:eot=2,steps=7", 16, 14),
        ("apgd:loss=dlr,targets=9", 910, 900),
        ("apgd:loss=dlr,targets=9,steps=4,restarts=2", 91, 72),
        ("apgd:loss=ce,targets=3,steps=4,eot=2", 31, 24),
    ],
)
def test_costs_what_its_head_says(name: str, queries: int, gradients: int) -> None:
    net = small_net()
    x = torch.rand((2, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    records = antiadv.attack(net, x, net(x).argmax(1), name, Linf(1e-4)).records
    assert [(r.queries, r.gradients) for r in records] == [(queries, gradients)] * 2


def test_a_sample_that_cannot_pay_for_a_whole_average_stops() -> None:
    toy = halfspace(2)
    records = antiadv.attack(toy.model, toy.x, toy.y, "apgd:eot=3", Ball(2, 0.01), queries=8).records
    assert {r.queries for r in records} == {6}
    records = antiadv.attack(toy.model, toy.x, toy.y, "apgd:eot=3", Ball(2, 0.01), queries=2).records
    assert {r.queries for r in records} == {0}


def test_averages_over_the_dice_of_the_classifier() -> None:
    """Every second answer has a gradient of twice the size in the wrong direction, so the mean of two is wrong."""

    class Dice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.toy, self.turn = halfspace(2).model, 0

        def forward(self, x: Tensor) -> Tensor:
            self.turn += 1
            odd = x - 3 * (x - x.detach()) if self.turn % 2 else x  # the same scores, another gradient
            s: Tensor = self.toy(odd)
            return s

    toy = halfspace(2)
    ball = Ball(2, 1.1 * toy.distance)
    turned = antiadv.attack(Dice().eval(), toy.x, toy.y, "apgd:eot=2,steps=10", ball)
    assert not turned.fooled.any()
    assert antiadv.attack(toy.model, toy.x, toy.y, "apgd:eot=2,steps=10", ball).fooled.all()


def test_of_a_classifier_without_dice_the_mean_is_each_answer() -> None:
    """So the image that is kept is the same, the last iterate among them, whose margin is compared with means."""
    net, x = small_net(), torch.rand((8, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    y = net(x).argmax(1)
    one, four = (antiadv.attack(net, x, y, f"apgd:steps=1,eot={eot}", antiadv.Linf(0.01)) for eot in (1, 4))
    assert not one.fooled.all()
    torch.testing.assert_close(four.images, one.images)


def test_starts_on_the_sphere() -> None:
    x = torch.full((5, 3, 6, 4), 0.5)
    for p in NORMS:
        ball = Ball(p, 0.1)
        z = start(x, ball, Draws.of(0, torch.arange(5)))
        assert torch.allclose(ball.distance(x, z), torch.full((5,), 0.1, dtype=torch.float64), atol=1e-6)
    corner = start(torch.zeros(5, 3, 6, 4), ball, Draws.of(0, torch.arange(5)))
    assert corner.min() >= 0


def test_targets_are_the_classes_after_y_at_the_clean_point() -> None:
    net, x = small_net(classes=5), torch.rand((8, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    s = net(x).detach()
    y = s.argmax(1)
    ledger = Ledger(8, budget=4)
    ledger.queries[3] = 4
    live = Survivors(Oracle(net, Threat(Linf(0.1), Access.SCORES), ledger), x, y, Draws.of(0, torch.arange(8)))
    others, right = torch.arange(8) != 3, s.argsort(dim=1, descending=True)[:, 1:]
    ranked = rank(live, s[others], 9, 8)
    assert torch.equal(ranked, right * others[:, None])  # the fourth has left
    assert torch.equal(rank(live, s[others], 2, 8), ranked[:, :2])


def test_known_values_of_the_targeted_losses() -> None:
    s, y, t = torch.tensor([[4.0, 1.0, 2.0, 0.0, -1.0]]), torch.tensor([0]), torch.tensor([2])
    assert gap(s, y, t).item() == -2
    assert abs(dlr_to(s, y, t).item() + 2 / 3.5) < 1e-6  # (2 − 4) / (4 − ½(1 + 0))
    assert torch.allclose(dlr_to(s * 10, y, t), dlr_to(s, y, t))
    assert torch.equal(dlr_lead(s, y), dlr_to(s, y, t))
    assert torch.equal(ce_to(s, y, t), -ce(s, t))


@pytest.mark.parametrize("classes", [2, 3, 4, 10])
def test_no_loss_is_flat_with_few_classes_or_a_far_target(classes: int) -> None:
    """dlr of two classes, or towards the third of three, would be constant without its fallback."""
    s = torch.linspace(1, 0, classes)[None].requires_grad_()
    y = torch.tensor([0])
    for k in range(1, classes):
        t = torch.tensor([k])
        for loss in (dlr(s, y), dlr_to(s, y, t), dlr_lead(s, t)):
            (g,) = torch.autograd.grad(loss.sum(), s)
            assert g.abs().max() > 1e-3
    if classes == 2:
        assert torch.equal(dlr(s, y), -margin(s, y))


@pytest.mark.parametrize("name", ["apgd", "apgd:loss=dlr", "apgd:loss=dlr,targets=9", "apgd:loss=ce,targets=9"])
@pytest.mark.parametrize("classes", [2, 3])
def test_few_classes(name: str, classes: int) -> None:
    class Few(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            s: Tensor = toy.model(x)[:, :classes]
            return s

    for p in NORMS:
        toy = halfspace(p)
        ball = Ball(p, 1.01 * toy.distance)
        assert antiadv.attack(Few().eval(), toy.x, toy.y, name, ball).fooled.all()
        assert antiadv.attack(Few().eval(), toy.x, 1 - toy.y, name, ball, targeted=True).fooled.all()


def test_samples_without_a_gradient_do_not_disturb_the_others() -> None:
    """The brightness of the first pixel says whether a sample's scores move at all."""

    class Dead(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            s = toy.model(x)
            dead = (x[:, 0, 0, 0] > 0.9)[:, None]
            return torch.where(dead, s.detach() * 0 + torch.tensor([1.0, 0.0, 0.0, 0.0]), s)

    toy = halfspace(math.inf, n=6)
    x, y = toy.x.clone(), toy.y
    x[::3, 0, 0, 0] = 1
    y = torch.where(x[:, 0, 0, 0] == 1, 0, y)
    for name in ("apgd", "apgd:loss=dlr", "apgd:loss=dlr,targets=9,steps=20"):
        outcome = antiadv.attack(Dead().eval(), x, y, name, Linf(0.09))
        assert torch.isfinite(outcome.images).all()
        assert not outcome.fooled[::3].any()
        assert outcome.records[0].zeros == outcome.records[0].gradients > 0
        alive = [1, 2, 4, 5]
        alone = antiadv.attack(Dead().eval(), x[alive], y[alive], name, Linf(0.09), ids=torch.tensor(alive))
        assert alone.records == [outcome.records[i] for i in alive]


def test_one_image_may_be_a_vector() -> None:
    net = nn.Sequential(nn.Linear(7, 3)).eval()
    x = torch.rand((4, 7), generator=torch.Generator().manual_seed(0))
    assert antiadv.attack(net, x, net(x).argmax(1), "apgd:loss=dlr,targets=9,steps=5", Linf(0.4)).images.shape == (4, 7)


def test_what_cannot_be_asked_for() -> None:
    for text in ("apgd:steps=0", "apgd:restarts=0", "apgd:eot=0", "apgd:targets=-1", "apgd:loss=margin"):
        with pytest.raises(BadSpec):
            parse(text)
    assert APGD(loss="dlr", targets=9) == parse("apgd:dlr,targets=9")
