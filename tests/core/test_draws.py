"""Draws: keyed by seed, sample and step alone; the right distributions; independent across keys; cheap."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from scipy import stats

from antiadv.core import draws, draws_cuda
from antiadv.core.draws import Draws
from antiadv.models import build


def dice(n: int = 64, seed: int = 0) -> Draws:
    return Draws.of(seed, torch.arange(n))


@pytest.mark.parametrize("kind", ["uniform", "normal", "signs"])
def test_batch_and_order_cannot_change_a_draw(kind: str) -> None:
    def draw(d: Draws) -> torch.Tensor:
        s: torch.Tensor = getattr(d, kind)(3, 5, 5)
        return s

    whole = draw(dice().fold(7))
    rows = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(draw(dice()[rows].fold(7)), whole[rows])
    assert torch.equal(draw(Draws.of(0, torch.tensor([17])).fold(7)), whole[17:18])


def test_blocks_cannot_change_a_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = dice(9).uniform(1001)
    monkeypatch.setattr("antiadv.core.draws._BLOCK", 600)
    assert torch.equal(dice(9).uniform(1001), whole)


def test_a_shorter_draw_is_the_start_of_a_longer_one() -> None:
    assert torch.equal(dice().uniform(100)[:, :37], dice().uniform(37))


def test_the_dice_are_what_they_were() -> None:
    """Fixed integers, the same on every machine. A change here would make every stored result irreproducible."""
    d = Draws.of(7, torch.tensor([0, 1, 123456])).fold(5)
    assert d.keys.tolist() == [2023918184629033596, -4179084732646096108, -6107593605828920871]
    assert (d.uniform(3) * 2**24).long().tolist() == [
        [12981044, 5551825, 15587722],
        [10276964, 16104186, 102177],
        [10902898, 6247995, 6502643],
    ]
    assert d.signs(4).long().tolist() == [[1, -1, 1, 1], [1, 1, -1, -1], [1, -1, -1, 1]]


def test_seed_sample_and_step_each_matter() -> None:
    plain = dice().uniform(8)
    for other in (dice(seed=1), Draws.of(0, torch.arange(64) + 64), dice().fold(0), dice().fold(0).fold(1)):
        assert not torch.equal(other.uniform(8), plain)
        assert len(torch.unique(torch.cat([other.keys, dice().keys]))) == 128


def test_fold_takes_a_number_per_sample() -> None:
    steps = torch.arange(64) % 3
    each = dice().fold(steps).keys
    assert torch.equal(each[5:6], dice()[torch.tensor([5])].fold(2).keys)


def test_repeat_gives_dice_of_their_own() -> None:
    many = dice(3).repeat(4)
    assert len(torch.unique(many.keys)) == 12
    assert torch.equal(many[torch.arange(4, 8)].keys, dice(3)[torch.tensor([1])].repeat(4).keys)


def test_a_block_of_steps_holds_the_dice_of_each() -> None:
    block = dice(5).repeat(4, first=9).keys.view(5, 4)
    for k in range(4):
        assert torch.equal(block[:, k], dice(5).fold(9 + k).keys)


def test_distributions() -> None:
    d = dice(200)
    assert stats.kstest(d.uniform(500).flatten().numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(d.normal(500).flatten().numpy(), "norm").pvalue > 1e-3
    assert stats.binomtest(int((d.signs(500) > 0).sum()), 100_000).pvalue > 1e-3
    counts = torch.bincount(d.below(7, 500).flatten(), minlength=7)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3
    assert d.uniform(500).min() >= 0
    assert d.uniform(500).max() < 1
    assert torch.isfinite(d.normal(500)).all()


def test_neighbouring_keys_positions_and_steps_are_uncorrelated() -> None:
    u = dice(400).normal(400).double()
    pairs = [(u[:-1], u[1:]), (u[:, :-1], u[:, 1:]), (u, dice(400).fold(1).normal(400)), (u, dice(400, 1).normal(400))]
    for a, b in pairs:
        z = (a * b).mean() * (a.numel() ** 0.5)
        assert abs(z) < 4


def test_global_generators_are_left_alone() -> None:
    before = torch.random.get_rng_state()
    dice().normal(10)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    assert dice(4).uniform(*shape).shape == (4, *shape)
    assert Draws.of(0, torch.arange(0)).normal(*shape).shape == (0, *shape)


def test_costs_under_a_tenth_of_a_compact_network() -> None:
    """No attack draws more than one normal image per query. The network is the smallest one of the zoo.

    Measured on one core: below 0.05 natively and with AVX2; 0.057 if torch may use no vector instructions at all
    (`ATEN_CPU_CAPABILITY=default`), where only the convolutions are as fast as before.
    """
    net, x = build("preact18:width=16").eval(), torch.rand(32, 3, 32, 32)

    def best(run: Callable[[], object]) -> float:
        times = []
        for _ in range(7):
            start = time.thread_time()
            run()
            times.append(time.thread_time() - start)
        return min(times)

    with torch.no_grad():
        assert best(lambda: dice(32).normal(3, 32, 32)) < 0.1 * best(lambda: net(x))


def cuda(draws: Draws) -> Draws:
    return Draws(draws.keys.cuda())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
class TestOnCuda:
    """The same bits, fused into one kernel or not."""

    @pytest.fixture(params=[True, False])
    def fused(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
        assert draws_cuda.ready()
        if not request.param:
            monkeypatch.setattr(draws_cuda, "ready", lambda: False)
        return bool(request.param)

    @pytest.mark.parametrize("kind", ["uniform", "signs"])
    def test_bits_are_those_of_the_cpu(self, fused: bool, kind: str) -> None:
        for fold in (0, 7, -3, 2**62, torch.arange(64) * 3):
            here, there = dice().fold(fold), cuda(dice()).fold(fold)
            assert torch.equal(there.keys.cpu(), here.keys)
            assert torch.equal(there.repeat(5, 3).keys.cpu(), here.repeat(5, 3).keys)
            assert torch.equal(getattr(there, kind)(3, 5, 5).cpu(), getattr(here, kind)(3, 5, 5))

    def test_normals_agree_to_the_last_places(self, fused: bool) -> None:
        here, there = dice(500).normal(3, 33), cuda(dice(500)).normal(3, 33).cpu()
        torch.testing.assert_close(there, here, rtol=2e-6, atol=1e-6)


def test_the_ends_of_the_normal_numbers_are_finite_and_alike() -> None:
    """The smallest and the largest of 2²⁴ values: an infinite one would be too rare for a sample to show."""
    low, high = draws._CONVERT["normal"](torch.tensor([0, -1], dtype=torch.int32)).tolist()
    assert low == -high
    assert 5 < high < 6
