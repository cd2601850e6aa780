"""Bandits: the prior's step and its upsampling in closed form, the order of an iteration, the count of updates."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv.attacks.score_based import bandits
from antiadv.attacks.score_based.bandits import EDGE, PUBLISHED, Bandits, Setting, changes, climb, estimate, up
from antiadv.attacks.score_based.nes import published_updates
from antiadv.core.draws import Draws
from antiadv.core.errors import BadSpec
from antiadv.core.ledger import Ledger
from antiadv.core.losses import ce
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from tests.toys import halfspace


def test_the_prior_climbs_by_the_exponentiated_gradient() -> None:
    v = torch.linspace(-0.999, 0.999, 201, dtype=torch.float64)[:, None]
    step = torch.linspace(-6, 6, 121, dtype=torch.float64)[None]
    p = (v + 1) / 2
    rises, falls = p * step.exp(), (1 - p) * (-step).exp()
    plain = 2 * rises / (rises + falls) - 1
    assert torch.allclose(climb(v, step), plain.clamp(-EDGE, EDGE), rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_prior_never_leaves_its_range_nor_gets_stuck(dtype: torch.dtype) -> None:
    v = torch.zeros(3, dtype=dtype)
    for _ in range(3):
        v = climb(v, torch.tensor([1e6, -1e6, 0], dtype=dtype))  # e^{100 g} overflows float32 from g = 0.89 on
    assert torch.isfinite(v).all()
    assert (v.abs() <= EDGE).all()
    assert v[0] > 0.999 > -0.999 > v[1]
    assert v[2] == 0
    assert climb(v, torch.tensor([-9, 9, 0], dtype=dtype))[0] < -0.9


@pytest.mark.parametrize(("small", "large"), [((2, 2), (6, 4)), ((4, 4), (4, 4)), ((1, 3), (5, 3))])
def test_upsampling_repeats_where_the_sizes_divide(small: tuple[int, int], large: tuple[int, int]) -> None:
    v = torch.arange(2 * 3 * small[0] * small[1], dtype=torch.float32).view(2, 3, *small)
    plain = v.repeat_interleave(large[0] // small[0], 2).repeat_interleave(large[1] // small[1], 3)
    assert torch.equal(up(v, *large), plain)


def test_upsampling_takes_the_nearest_where_they_do_not() -> None:
    v = torch.arange(12.0).view(1, 1, 3, 4)
    wide = up(v, 7, 9)
    assert wide.shape == (1, 1, 7, 9)
    assert wide[0, 0, :, 0].tolist() == [0, 0, 0, 4, 4, 8, 8]
    assert wide[0, 0, 0].tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 3]
    torch.testing.assert_close(wide, nn.functional.interpolate(v, (7, 9), mode="nearest"))


def test_from_no_prior_the_estimate_is_the_slope_along_the_probe() -> None:
    """On <a, z>, v = 0: g = 2·<a, up e> / (δ·|up e|) · e."""
    n, setting = 5, Setting(step_size=0.2, prior_step=1, exploration=0.5, sigma=0.1)
    a = torch.randn((3, 6, 8), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z, v = torch.full((n, 3, 6, 8), 0.5, dtype=torch.float64), torch.zeros(n, 3, 3, 5, dtype=torch.float64)
    both = changes(Draws.of(0, torch.arange(n)), range(3, 4), v, setting.exploration)[:, 0]
    g, e = estimate(lambda z: (z * a).flatten(1).sum(1), z, v, both, setting), both[:, 0]
    wide = up(e, 6, 8).flatten(1)
    slope = 2 * (wide @ a.flatten()) / wide.norm(dim=1) / 0.5
    torch.testing.assert_close(g, slope.view(-1, 1, 1, 1) * e)
    assert torch.allclose(e.flatten(1).norm(dim=1), torch.tensor(0.5, dtype=torch.float64), rtol=0.3)


@pytest.mark.parametrize("p", [2, math.inf])
def test_an_iteration_learns_first_and_steps_with_what_it_learnt(p: float) -> None:
    toy = halfspace(p, n=3, shape=(3, 6, 6))
    ball = antiadv.Linf(0.02) if p == math.inf else antiadv.L2(0.02)
    attack = Bandits(tile=3, steps=2)
    setting = attack.setting(p)
    x, y, draws = toy.x, toy.y, Draws.of(0, torch.arange(3))
    z, v = x, torch.zeros(3, 3, 3, 3)
    for t in range(2):
        e = setting.exploration * draws.fold(t).normal(3, 3, 3) / math.sqrt(27)

        def loss(a: Tensor, z: Tensor = z) -> Tensor:
            return ce(toy.model(z + setting.sigma * a / a.flatten(1).norm(dim=1).view(-1, 1, 1, 1)).double(), y)

        rise = loss(up(v + e, 6, 6)) - loss(up(v - e, 6, 6))
        g = (rise / (setting.sigma * setting.exploration)).float().view(-1, 1, 1, 1) * e
        v = torch.tanh(torch.atanh(v) + 100 * g) if p == math.inf else v + 0.1 * g
        a = up(v, 6, 6)
        a = a.sign() if p == math.inf else a / a.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
        z = ball.project(x, z + setting.step_size * ball.eps * a)
    asked = Heard(toy.model)
    ledger = Ledger(3)
    attack(Oracle(asked, Threat(ball, Access.SCORES), ledger), x, y, ball, draws)
    assert [len(a) for a in asked.images] == [6, 3, 6, 3]  # pair, look, pair, look
    torch.testing.assert_close(asked.images[-1], z)
    assert ledger.queries.tolist() == [6] * 3


def test_changes_drawn_ahead_are_those_of_each_step() -> None:
    draws, v = Draws.of(0, torch.arange(4)), torch.zeros(4, 2, 3, 5)
    ahead = changes(draws, range(5, 8), v, 0.5)
    for k, t in enumerate(range(5, 8)):
        e = 0.5 * draws.fold(t).normal(2, 3, 5) / math.sqrt(30)
        assert torch.equal(ahead[:, k, 0], e)
        assert torch.equal(ahead[:, k, 1], -e)


@pytest.mark.parametrize("ball", [antiadv.Linf(0.15), antiadv.L2(0.12)], ids=str)
@pytest.mark.parametrize(("ahead", "drawn"), [(1, 1 << 20), (7, 1 << 20), (64, 1), (64, 500)])
def test_however_many_are_drawn_ahead_the_updates_are_the_same(
    ball: antiadv.Ball, ahead: int, drawn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = halfspace(ball.p, n=5, shape=(3, 6, 6))
    reference = antiadv.attack(toy.model, toy.x, toy.y, "bandits:tile=4", ball, queries=600)
    assert len({r.queries for r in reference.records}) > 2  # samples fall one by one
    monkeypatch.setattr(bandits, "AHEAD", ahead)
    monkeypatch.setattr(bandits, "MAX_DRAWN", drawn)
    again = antiadv.attack(toy.model, toy.x, toy.y, "bandits:tile=4", ball, queries=600)
    assert torch.equal(again.images, reference.images)
    assert again.records == reference.records


class Heard(nn.Module):
    """A classifier that remembers its images."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base
        self.images: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.images.append(x)
        s: Tensor = self.base(x)
        return s


def test_settings_are_the_authors_for_the_norm_unless_said() -> None:
    assert Bandits().setting(math.inf) == PUBLISHED[math.inf] == Setting(0.2, 100.0, 1.0, 0.1)
    assert Bandits().setting(2) == PUBLISHED[2] == Setting(0.1, 0.1, 0.01, 0.01)
    assert Bandits(sigma=0.5).setting(2) == Setting(0.1, 0.1, 0.01, 0.5)
    assert antiadv.attacks.parse("bandits:tile=0,prior_step=3") == Bandits(tile=0, prior_step=3.0)


class Stubborn(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        v = x.flatten(1).sum(1)
        return torch.stack([v * 0 + 20, v], 1)


def test_a_third_of_the_budget_is_updates_and_the_published_number_without_one() -> None:
    x, y = torch.full((2, 1, 2, 2), 0.5), torch.zeros(2, dtype=torch.int64)

    def spent(attack: Bandits, queries: int | None) -> list[int]:
        outcome = antiadv.attack(Stubborn().eval(), x, y, attack, antiadv.Linf(0.1), queries=queries)
        return [r.queries for r in outcome.records]

    for queries in (1, 2, 3, 4, 5, 100):
        assert spent(Bandits(), queries) == [queries // 3 * 3] * 2
    assert spent(Bandits(steps=7), None) == [21, 21]
    assert published_updates(10_000, 1) == 4_999


@pytest.mark.parametrize("tile", [0, 3, 5, 16])
def test_any_tile_on_any_image(tile: int) -> None:
    toy = halfspace(2, shape=(2, 5, 7))
    outcome = antiadv.attack(toy.model, toy.x, toy.y, Bandits(tile), antiadv.L2(1.6 * toy.distance), queries=3000)
    assert outcome.fooled.all()


def test_a_plateau_is_wandered_over() -> None:
    """Exactly flat around x, with an edge within reach: the prior stays zero, and the attack still reaches it."""

    class Plateau(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            far = (x - 0.5).abs().flatten(1).amax(1) > 0.07
            return torch.stack([(~far).float(), 2 * far.float()], 1) * 3

    x, y = torch.full((3, 1, 4, 4), 0.5), torch.zeros(3, dtype=torch.int64)
    assert antiadv.attack(Plateau().eval(), x, y, "bandits:sigma=0.01", antiadv.Linf(0.1), queries=300).fooled.all()


@pytest.mark.parametrize("bad", ["tile=-1", "sigma=0", "exploration=0", "prior_step=-1", "step_size=-1", "steps=-1"])
def test_bad_options_are_refused(bad: str) -> None:
    with pytest.raises(BadSpec):
        antiadv.attacks.parse(f"bandits:{bad}")
