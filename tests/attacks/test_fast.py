"""MM, PMA and `fast`: what they find where the answer is known, what they cost, and when `fast` raises its alarm."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv import L2, Linf
from antiadv.attacks._search.survivors import Survivors
from antiadv.attacks.cascade import Cascade
from antiadv.attacks.white_box import apgd, fast, minimum_margin
from antiadv.attacks.white_box.autoattack import stages
from antiadv.attacks.white_box.fast import Fast
from antiadv.attacks.white_box.minimum_margin import MinimumMargin
from antiadv.attacks.white_box.probability_margin import LOSSES, ProbabilityMargin
from antiadv.core.ball import Ball
from antiadv.core.draws import Draws
from antiadv.core.ledger import Ledger
from antiadv.core.losses import gap
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.defences import wrap
from tests.toys import halfspace

BALL = Linf(8 / 255)


@functools.cache
def trades() -> tuple[nn.Module, Tensor, Tensor]:
    data = antiadv.data.load("cifar10")
    return antiadv.models.load("compact:trades"), data.images(range(12)), data.labels(range(12))


# ---------------------------------------------------------------- MM


class Linear(nn.Module):
    """s_k(x) = <w_k, x − ½> + b_k: the distance to each class has a closed form."""

    def __init__(self, classes: int, size: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.w = torch.randn((classes, size), generator=generator) * torch.linspace(0.2, 3, classes)[:, None]
        self.b = torch.randn(classes, generator=generator) * 0.5

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(1) - 0.5) @ self.w.T + self.b


@pytest.mark.parametrize("ball", [Linf(0.01), L2(0.1)])
def test_with_many_classes_targets_after_the_first_are_ranked_by_their_distance(ball: Ball) -> None:
    net, x = Linear(30, 48).eval(), torch.full((2, 3, 4, 4), 0.5)
    s = net(x)
    y = s.argmax(1)
    live = Survivors(Oracle(net, Threat(ball, Access.GRADIENTS), Ledger(2)), x, y, Draws.of(0, torch.arange(2)))
    ranked = apgd.rank(live, s, 20, 2)
    before = ranked.clone()
    minimum_margin._sort(ranked, live, ball)
    far = -gap(s, y, ranked[:, 1]) * 0
    for k in range(1, 20):
        t = ranked[:, k]
        slope = (net.w[t] - net.w[y]).norm(p=1 if ball.p == math.inf else 2, dim=1)
        here = -gap(s, y, t) / slope
        assert (here >= far - 1e-6).all()
        far = here
    assert torch.equal(ranked[:, 0], before[:, 0])
    assert torch.equal(ranked.sort(1).values, before.sort(1).values)
    assert not torch.equal(ranked, before)


def spent(attack: str, share: float, **more: Any) -> list[int]:
    toy = halfspace(math.inf)
    outcome = antiadv.attack(toy.model, toy.x, toy.y, attack, Linf(share * toy.distance), **more)
    assert not outcome.fooled.any()
    return [r.queries for r in outcome.records]


def test_mm_costs_one_query_to_rank_and_21_for_each_target() -> None:
    assert set(spent("minimum_margin", 0.8)) == {1 + 3 * 21}
    assert set(spent("minimum_margin:targets=9", 0.8)) == {1 + 3 * 21}, "four classes have three wrong ones"
    assert set(spent("minimum_margin:steps=7,targets=2", 0.8)) == {1 + 2 * 8}


def test_a_sample_out_of_reach_is_given_up_after_the_first_target() -> None:
    """At a share r of the distance a linear margin falls to 1 − r of what it was."""
    assert set(spent("minimum_margin:give_up=0.4", 0.5)) == {1 + 21}
    assert set(spent("minimum_margin:give_up=0.4", 0.7)) == {1 + 3 * 21}


def test_mm_breaks_as_many_as_long_runs_of_apgd() -> None:
    net, x, y = trades()
    short, long = (antiadv.attack(net, x, y, a, BALL).fooled for a in ("minimum_margin", "apgd:loss=dlr,steps=60"))
    assert int(short.sum()) >= int(long.sum()) > 0


# ---------------------------------------------------------------- PMA


def test_the_steps_begin_large_shrink_and_begin_again_in_the_middle() -> None:
    sizes = [ProbabilityMargin(steps=20)._size(i) for i in range(20)]
    assert sizes[:10] == sizes[10:]
    assert sizes[1] == 2
    assert sizes[1:10] == sorted(sizes[1:10], reverse=True)
    parts = [ProbabilityMargin(steps=6)._loss(turn, i) for turn in (0, 1) for i in range(6)]
    names = {loss: name for (name, on), loss in LOSSES.items() if on == "auto"}
    assert [names[p] for p in parts] == ["wrong_way", "own", "own", *["margin"] * 3, "wrong_way", "other", "other"] + [
        "margin"
    ] * 3


class Sure(nn.Module):
    """The same decisions with scores so large that the softmax is 1 in float32."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self.base(x) * 1000
        return s


def test_a_sure_network_is_attacked_by_its_scores() -> None:
    toy = halfspace(math.inf)
    found = {
        on: antiadv.attack(
            Sure(toy.model).eval(), toy.x, toy.y, f"probability_margin:steps=10,on={on}", Linf(1.2 * toy.distance)
        )
        for on in ("auto", "probabilities", "logits")
    }
    assert found["auto"].fooled.all()
    assert found["logits"].fooled.all()
    assert not found["probabilities"].fooled.any()
    assert all(r.zeros > 0 for r in found["probabilities"].records)


@pytest.mark.parametrize("on", ["auto", "logits"])
def test_a_sure_network_is_led_to_a_target(on: str) -> None:
    toy = halfspace(math.inf)
    net = Sure(toy.model).eval()
    target, attack = net(toy.x).topk(2, 1).indices[:, 1], f"probability_margin:steps=20,on={on}"
    found = antiadv.attack(net, toy.x, target, attack, Linf(1.2 * toy.distance), targeted=True)
    assert found.fooled.all()
    assert not any(r.zeros for r in found.records)


# ---------------------------------------------------------------- the alarm


class Steps(nn.Module):
    """Images are rounded first: the gradient is zero everywhere."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.base((x * 256).round() / 256)
        return scores


class _Backwards(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return -g


class Backwards(nn.Module):
    """The gradient points the wrong way."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.base(_Backwards.apply(x))  # type: ignore[no-untyped-call]
        return scores


@pytest.mark.parametrize("mask", [Steps, Backwards])
def test_masked_gradients_raise_the_alarm_and_autoattack_breaks_the_sample(mask: type[nn.Module]) -> None:
    toy = halfspace(math.inf, n=4)
    net, ball = mask(toy.model).eval(), Linf(1.25 * toy.distance)
    search = antiadv.attack(net, toy.x, toy.y, "minimum_margin", ball)
    assert not search.fooled.any()
    assert antiadv.attack(net, toy.x, toy.y, "fast", ball).fooled.all()


@pytest.mark.parametrize("mask", [Steps, Backwards])
def test_a_masked_sample_that_stands_has_gone_through_autoattack(mask: type[nn.Module]) -> None:
    toy = halfspace(math.inf, n=2)
    net, attack = mask(toy.model).eval(), Fast()
    records = antiadv.attack(net, toy.x, toy.y, attack, Linf(0.7 * toy.distance), queries=2000).records
    assert min(r.queries for r in records) > attack.most_queries


def test_on_a_robust_network_it_raises_none_and_breaks_what_apgd_breaks() -> None:
    net, x, y = trades()
    outcome = antiadv.attack(net, x, y, "fast", BALL)
    assert max(r.queries for r in outcome.records) <= Fast().most_queries
    assert int(outcome.fooled.sum()) >= int(antiadv.attack(net, x, y, "apgd:steps=30", BALL).fooled.sum())


class Lame(MinimumMargin):
    """It goes a tenth of the way."""

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        return x + 0.1 * (super().__call__(oracle, x, y, ball, draws) - x)


def test_a_sample_out_of_reach_gets_the_second_attack_before_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blind probe comes further than the first attack, and the second attack further than the probe."""
    (net, x, y), ball = trades(), Linf(1 / 255)
    right = net(x).argmax(1) == y
    monkeypatch.setattr(fast, "MM", Lame(**vars(fast.MM)))
    second = antiadv.attack(net, x[right], y[right], Fast(), ball, precision="float32")
    assert max(r.queries for r in second.records) <= Fast().most_queries
    assert max(r.queries for r in second.records) > 78, "the second attack ran"

    monkeypatch.setattr(fast, "PMA", ProbabilityMargin(steps=1))  # now the probe comes further than both
    records = antiadv.attack(
        net, x[right], y[right], fast.Fast(probe=200), ball, precision="float32", queries=600
    ).records
    assert any(r.queries > Fast(probe=200).most_queries for r in records)


def test_a_randomised_defence_is_averaged() -> None:
    toy = halfspace(math.inf, n=2)
    noise = wrap("small_noise:std=0.01", toy.model)
    outcome = antiadv.attack(noise, toy.x, toy.y, "fast", Linf(1.3 * toy.distance))
    assert outcome.fooled.all()
    assert all(r.queries % fast.RANDOMISED.samples == 0 for r in outcome.records)
    rand = antiadv.attack(noise, toy.x, toy.y, "autoattack:version=rand", Linf(1.3 * toy.distance))
    assert rand.fooled.all()
    parts = [a for a in stages("rand") if isinstance(a, apgd.APGD)]
    assert fast.RANDOMISED.attack == Cascade(tuple(dataclasses.replace(a, eot=1) for a in parts))
    assert {a.eot for a in parts} == {fast.RANDOMISED.samples}, "the same draws in another place"
    assert ("went on to AutoAttack, at least", "2") in outcome.counts


def test_printed_it_says_on_how_many_samples_it_ran_autoattack() -> None:
    toy, name = halfspace(math.inf, n=2), "went on to AutoAttack, at least"
    ball = Linf(0.7 * toy.distance)
    plain = antiadv.attack(toy.model, toy.x, toy.y, "fast", ball)
    masked = antiadv.attack(Backwards(toy.model).eval(), toy.x, toy.y, "fast", ball, queries=400)
    assert (name, "0") in plain.counts
    assert (name, "2") in masked.counts
    assert name in str(masked)
    assert name not in dict(antiadv.attack(toy.model, toy.x, toy.y, "pgd", ball).counts)


def test_its_edition_rises_with_that_of_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Fast().edition
    monkeypatch.setattr(MinimumMargin, "edition", 5)
    assert Fast().edition == before + 4


def test_behind_the_layer_it_breaks_what_autoattack_breaks_at_once() -> None:
    """APGD breaks these through the layer within a few steps. Its margin attacks and its probe alone leave them."""
    net, images, ids = antiadv.models.load("compact:trades"), antiadv.data.load("cifar10"), [162, 457, 476]
    layer, x, y = wrap("anti_adversary", net), images.images(ids), images.labels(ids)
    assert antiadv.attack(layer, x, y, "apgd:steps=20", BALL).fooled.sum() >= 2, "on any CPU"
    fast = antiadv.attack(layer, x, y, "fast", BALL, queries=400)
    assert fast.fooled.sum() >= 2
