"""Rules of score-based and label-based attacks and of a cascade: the authors' constants, a budget that is partly spent,
which random numbers are used, and which rule applies in which norm."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from antiadv.attacks import parse
from antiadv.attacks._search.nearest import Nearest
from antiadv.attacks.decision_based.rays import Rays
from antiadv.attacks.score_based.bandits import Bandits, changes, estimate, up
from antiadv.attacks.score_based.nes import NES, values
from antiadv.attacks.score_based.simba import Simba
from antiadv.attacks.score_based.square import Square
from antiadv.core.ball import L2, Linf
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from tests.toys import four, halfspace


def test_the_authors_constants() -> None:
    assert NES() == NES(probes=50, sigma=0.1, step_size=0.2, steps=None)
    assert Bandits() == Bandits(tile=16, steps=None)
    assert Square() == Square(p=0.8, steps=5000, rescale=False)
    assert Rays() == Rays(steps=10_000)


def test_a_step_of_simba_is_a_quarter_of_the_radius_but_all_of_it_for_pixels_in_linf() -> None:
    assert (Simba().share(2), Simba().share(math.inf)) == (0.25, 1)
    assert (Simba(basis="dct").share(2), Simba(basis="dct").share(math.inf)) == (0.25, 0.25)


@pytest.mark.parametrize(
    ("text", "first", "step"), [("nes:probes=5", 0, 11), ("bandits", 0, 3), ("simba:rule=stp", 1, 2), ("square", 1, 1)]
)
def test_each_sample_makes_as_many_steps_as_it_can_pay_for(text: str, first: int, step: int) -> None:
    toy, ball, ledger = halfspace(math.inf), Linf(0.01), Ledger(6, 44)
    oracle = Oracle(toy.model, Threat(ball, Access.SCORES, 44), ledger)
    for i in range(6):  # 44, 43, … are left
        for _ in range(i):
            oracle[torch.tensor([i])].scores(toy.x[i : i + 1])
    parse(text)(oracle, toy.x, toy.y, ball, Draws.of(0, torch.arange(6)))
    assert ledger.queries.tolist() == [i + first + (44 - i - first) // step * step for i in range(6)]


def test_in_l2_the_prior_of_bandits_has_no_bounds() -> None:
    toy, ball, draws = halfspace(2), L2(0.02), Draws.of(0, torch.arange(6))
    attack = Bandits(prior_step=1e5, steps=1)
    setting = attack.setting(2)
    oracle = Oracle(toy.model, Threat(ball, Access.SCORES), Ledger(6))
    v = torch.zeros_like(toy.x)
    e = changes(draws, range(1), v, setting.exploration)[:, 0]
    g = 1e5 * estimate(values(oracle, toy.y), toy.x, v, e, setting)
    assert g.abs().max() > 2
    z = toy.x + setting.step_size * ball.eps * ball.steepest(up(g, 4, 4))
    torch.testing.assert_close(attack(oracle, toy.x, toy.y, ball, draws), z, rtol=0, atol=1e-6)


# ---------------------------------------------------------------- SimBA


class Table(nn.Module):
    """Three probabilities for images below 0.5, at it and above."""

    def __init__(self, below: list[float], above: list[float]) -> None:
        super().__init__()
        self.rows, self.training = torch.tensor([below, [0.4, 0.35, 0.25], above]), False

    def forward(self, x: Tensor) -> Tensor:
        return self.rows[(x.flatten(1)[:, 0] - 0.5).sign().long() + 1].log()


FOOLS, RISES, FALLS = [0.45, 0.5, 0.05], [0.45, 0.35, 0.2], [0.36, 0.32, 0.32]


@pytest.mark.parametrize(
    ("rule", "below", "above", "cost"),
    [
        ("simba", FOOLS, RISES, 2),
        ("simba", RISES, FOOLS, 3),
        ("stp", FOOLS, FALLS, 3),
        ("stp", FALLS, FOOLS, 3),
    ],
)
def test_simba_keeps_what_fools_even_where_the_probability_rose(
    rule: str, below: list[float], above: list[float], cost: int
) -> None:
    model, ledger, ball = Table(below, above), Ledger(1, 9), Linf(0.1)
    x, y = torch.full((1, 1, 1, 1), 0.5), torch.tensor([0])
    oracle = Oracle(model, Threat(ball, Access.SCORES, 9), ledger)
    z = parse(f"simba:rule={rule}")(oracle, x, y, ball, Draws.of(0, torch.arange(1)))
    assert (model(z).argmax().item(), ledger.queries.item()) == (1, cost)


def test_stp_makes_as_many_steps_as_there_are_directions_without_a_budget() -> None:
    toy, ball, ledger = halfspace(math.inf), Linf(0.01), Ledger(6)
    parse("simba:rule=stp")(
        Oracle(toy.model, Threat(ball, Access.SCORES), ledger), toy.x, toy.y, ball, Draws.of(0, torch.arange(6))
    )
    assert ledger.queries.tolist() == [2 * 48 + 1] * 6


# ---------------------------------------------------------------- Square, and what a search keeps


class Heard(nn.Module):
    """Always class 0; remembers its images."""

    def __init__(self) -> None:
        super().__init__()
        self.images, self.training = list[Tensor](), False

    def forward(self, x: Tensor) -> Tensor:
        self.images.append(x.clone())
        return four(1 + 0 * x.flatten(1).sum(1))


def test_what_square_asks_about_in_linf_are_images() -> None:
    x = (halfspace(math.inf).x > 0.5).float()
    heard = Heard()
    oracle = Oracle(heard, Threat(Linf(0.1), Access.SCORES), Ledger(6))
    parse("square:steps=20")(oracle, x, torch.zeros(6).long(), Linf(0.1), Draws.of(0, torch.arange(6)))
    assert len(heard.images) == 21
    assert all(0 <= z.min() <= z.max() <= 1 for z in heard.images)


def test_stages_of_a_cascade_roll_other_dice() -> None:
    x, heard = torch.full((2, 1, 4, 4), 0.5), Heard()
    oracle = Oracle(heard, Threat(Linf(0.1), Access.SCORES), Ledger(2))
    parse("cascade:stages=square:steps=0+square:steps=0")(
        oracle, x, torch.zeros(2).long(), Linf(0.1), Draws.of(0, torch.arange(2))
    )
    first, _, second = heard.images  # and the question between them
    assert not any(torch.equal(a, b) for a, b in zip(first, second, strict=True))


class Credulous(Eager):
    """An engine for which every image but 0.5 fools; the judge's engine is correct."""

    def scores(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> Tensor:
        return four(-(z - 0.5).abs().flatten(1).sum(1))

    def judge(self, model: nn.Module) -> Eager:
        return Eager()


class Far(nn.Module):
    """Class 0 up to a distance from 0.5."""

    def __init__(self, boundary: float) -> None:
        super().__init__()
        self.boundary, self.training = boundary, False

    def forward(self, x: Tensor) -> Tensor:
        return four(self.boundary - (x - 0.5).abs().flatten(1).amax(1))


def settled(boundary: float, radii: list[float]) -> float:
    """The distance of the returned image after asking about images at these radii."""
    x, y, ball, rows = torch.full((1, 1, 1, 1), 0.5), torch.tensor([0]), Linf(math.inf), torch.tensor([0])
    oracle = Oracle(Far(boundary), Threat(ball, Access.LABELS), Ledger(1), Credulous())
    closest = Nearest(oracle, x, y, ball)
    for r in radii:
        closest.ask(rows, x + r)
    return ball.distance(x, closest.settled()).item()


@pytest.mark.parametrize(("boundary", "found"), [(0.01, 0.05), (0.15, 0.2), (0.35, 0.4), (0.45, 0.5)])
def test_without_a_radius_the_closest_that_fools_the_judge_is_returned(boundary: float, found: float) -> None:
    assert settled(boundary, [0.5, 0.4, 0.3, 0.2, 0.1, 0.05]) == pytest.approx(found)


def test_many_small_steps_do_not_crowd_out_what_was_kept_before() -> None:
    assert settled(0.4, [0.45, *(0.3 - k / 10_000 for k in range(20))]) == pytest.approx(0.45)


def test_rays_halves_16_times_on_cifar() -> None:
    x, ball, ledger = torch.full((2, 3, 32, 32), 0.5), Linf(math.inf), Ledger(2)
    oracle = Oracle(Far(1e-9), Threat(ball, Access.LABELS), ledger)
    Rays(steps=0)(oracle, x, torch.zeros(2).long(), ball, Draws.of(0, torch.arange(2)))
    assert ledger.queries.tolist() == [1 + 1 + 16] * 2  # x, the first signs, and the halvings


def test_rays_ends_after_a_level_of_single_values_without_a_change() -> None:
    x, ball, ledger = torch.full((2, 1, 4, 4), 0.5), Linf(math.inf), Ledger(2)
    oracle = Oracle(Far(9), Threat(ball, Access.LABELS), ledger)
    Rays()(oracle, x, torch.zeros(2).long(), ball, Draws.of(0, torch.arange(2)))
    assert ledger.queries.tolist() == [1 + 1 + (1 + 2 + 4 + 8 + 16)] * 2


# ---------------------------------------------------------------- Nearest


def test_in_linf_the_way_to_x_cuts_what_is_too_far_and_leaves_the_rest() -> None:
    x, ball = torch.full((1, 1, 1, 2), 0.5), Linf(math.inf)
    ledger = Ledger(1)
    nearest = Nearest(Oracle(Far(0.2), Threat(ball, Access.LABELS), ledger), x, torch.tensor([0]), ball)
    z = nearest.bisect(torch.tensor([0]), torch.tensor([[[[0.9, 0.6]]]]), 0.0)
    torch.testing.assert_close(z, torch.tensor([[[[0.7, 0.6]]]]))
    assert ledger.queries.item() == 30  # and never more


def test_a_start_is_looked_for_in_pixels_then_in_blocks_of_side_2_4_and_8() -> None:
    x, heard, ball = torch.full((1, 1, 16, 16), 0.5), Heard(), Linf(math.inf)
    nearest = Nearest(Oracle(heard, Threat(ball, Access.LABELS), Ledger(1)), x, torch.tensor([0]), ball)
    nearest.start(Draws.of(0, torch.arange(1)), tries=5)
    values = [len(z.unique()) for z in heard.images[1:]]  # of many, two may be alike
    assert values == pytest.approx([256, 64, 16, 4, 256], abs=1)
