"""Square: the schedule, and the windows of both norms against their definitions."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv.attacks._search.survivors import Survivors
from antiadv.attacks.score_based import square
from antiadv.attacks.score_based.square import Square, _Rule
from antiadv.core.ball import Ball, Linf
from antiadv.core.draws import Draws
from antiadv.core.ledger import Ledger
from antiadv.core.losses import dlr
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from tests.contract import test_attacks as contract
from tests.toys import Spy, halfspace, sphere

BREAKS = (0, 10, 11, 50, 51, 200, 201, 500, 501, 1000, 1001, 2000, 2001, 4000, 4001, 6000, 6001, 8000, 8001, 9999)


@pytest.mark.parametrize(
    ("odd", "sides"), [(False, (29, 20, 14, 10, 7, 5, 4, 3, 2, 1)), (True, (29, 21, 15, 11, 7, 5, 5, 3, 3, 3))]
)
def test_the_sides_on_cifar_are_the_authors(odd: bool, sides: tuple[int, ...]) -> None:
    found = [Square().side(t, 32, 32, odd=odd) for t in BREAKS]
    assert found[0::2] == found[1::2] == list(sides)


def test_a_side_fits_into_any_image() -> None:
    for height, width in [(1, 1), (2, 7), (4, 4), (3, 50)]:
        for odd in (False, True):
            assert all(1 <= Square().side(t, height, width, odd=odd) <= min(height, width) for t in BREAKS)


# ---------------------------------------------------------------- L2


def mounds(side: int) -> Tensor:
    """η by its definition, sum by sum: rows r, two halves of columns."""

    def mound(high: int, wide: int, r: int, c: int) -> float:
        n = high // 2
        ring = max(abs(r - high // 2), abs(c - wide // 2))
        return sum(1 / (n + 1 - k) ** 2 for k in range(n - ring + 1))

    half = side // 2
    return torch.tensor(
        [
            [mound(side, half, r, c) if c < half else -mound(side, side - half, r, c - half) for c in range(side)]
            for r in range(side)
        ],
        dtype=torch.float64,
    )


@pytest.mark.parametrize("side", [1, 2, 3, 5, 7, 11, 29])
def test_the_mounds_are_as_defined(side: int) -> None:
    like = torch.zeros((1, 1, side, side), dtype=torch.float64)
    torch.testing.assert_close(square._mounds(side, like), mounds(side))


def test_the_mounds_are_tallest_in_the_middle() -> None:
    """By hand for side 5: halves of 2 and 3 columns, each a mound of 1/9 + 1/4 + 1 around row 2."""
    assert mounds(5)[2].tolist() == pytest.approx([1 / 9 + 1 / 4, 49 / 36, -13 / 36, -49 / 36, -13 / 36])
    assert mounds(5)[0].tolist() == pytest.approx([1 / 9] * 2 + [-1 / 9] * 3)


def test_the_authors_mounds_are_equal_in_norm_and_ours_part_from_theirs_by_two_degrees_at_most() -> None:
    angles = {}
    for side in range(3, 33):
        eta, half = mounds(side), side // 2
        theirs = torch.cat([part / part.norm() for part in (eta[:, :half], eta[:, half:])], 1)
        angles[side] = math.degrees(math.acos(min(1, float((eta * theirs).sum() / eta.norm() / theirs.norm()))))
    assert max(angles, key=angles.__getitem__) == 5
    assert angles[5] == pytest.approx(2.16, abs=0.01)


def planned(draws: Draws, x: Tensor, ball: Ball, sides: Tensor) -> square.Plan:
    """One proposal of each sample."""
    return tuple(p[:, 0] for p in square._windows(draws, x, ball, sides))


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 4, 4), (3, 12, 30), (2, 7, 2)])
def test_start_and_proposals_lie_on_the_sphere_inside_the_box(shape: tuple[int, ...]) -> None:
    ball, draws = antiadv.L2(0.3), Draws.of(0, torch.arange(5))
    x = torch.full((5, *shape), 0.5, dtype=torch.float64)
    z = square._tiles(x, ball, draws)
    assert torch.allclose(ball.distance(x, z), torch.tensor(0.3, dtype=torch.float64))
    for t, side in enumerate((min(shape[1:]), 3, 1)):
        sides = torch.full((1, 1, 1, 1, 1), min(side, *shape[1:]))
        z = square._exchange(x, z, ball, planned(draws.fold(t + 1), x, ball, sides))
        moved = ball.distance(x, z)
        assert (moved <= 0.3 + 1e-12).all()
        assert side == 1 or torch.allclose(moved, torch.tensor(0.3, dtype=torch.float64))


def test_the_start_on_cifar_is_five_by_five_tiles_of_six() -> None:
    x = torch.full((4, 3, 32, 32), 0.5, dtype=torch.float64)
    d = square._tiles(x, antiadv.L2(0.1), Draws.of(0, torch.arange(4))) - x
    assert (d[:, :, :1] == 0).all()
    assert (d[:, :, 31:] == 0).all()
    tiles = d[:, :, 1:31, 1:31].unfold(2, 6, 6).unfold(3, 6, 6).abs().flatten(0, 3)
    eta = (mounds(6) / mounds(6).norm() * 0.1 / math.sqrt(75)).abs()
    lying, standing = ((tiles - e).abs().amax((1, 2)) < 1e-9 for e in (eta, eta.T))
    assert (lying | standing).all()
    assert 0.3 < lying.double().mean() < 0.7


def test_an_exchange_moves_all_of_one_window_and_all_of_the_unused_norm_to_another() -> None:
    """Per channel: |δ'_W₁|² = (ε² − |δ|²)/C + |δ_W₁∪W₂|², and nothing else changes."""
    ball, n, side = antiadv.L2(0.4), 6, 5
    draws = Draws.of(3, torch.arange(n))
    x = torch.full((n, 3, 16, 16), 0.5, dtype=torch.float64)
    z = ball.project(x, x + 0.01 * draws.fold(9).normal(3, 16, 16).double())
    d = z - x
    plan = planned(draws, x, ball, torch.full((1, 1, 1, 1, 1), side))
    new = square._exchange(x, z, ball, plan) - x
    to, out = plan[0] & plan[1], plan[2] & plan[3]
    assert (to.flatten(1).sum(1) == side**2).all()
    rest = (~(to | out)).expand_as(d)
    torch.testing.assert_close(new[rest], d[rest])
    assert (new[(out & ~to).expand_as(d)] == 0).all()
    unused = (0.4**2 - d.flatten(1).square().sum(1)) / 3
    room = unused[:, None] + (d * (to | out)).square().sum((2, 3))
    torch.testing.assert_close((new * to).square().sum((2, 3)), room)
    was = (d * to) / (d * to).square().sum((2, 3), keepdim=True).sqrt()
    fresh = (new * to) / (new * to).square().sum((2, 3), keepdim=True).sqrt()
    eta = mounds(side) / mounds(side).norm()
    for i in range(n):
        at = to[i, 0]
        for c in range(3):
            options = [sign * e + was[i, c][at].view(side, side) for sign in (-1, 1) for e in (eta, eta.T)]
            gaps = [(o / o.norm() - fresh[i, c][at].view(side, side)).abs().max().item() for o in options]
            assert min(gaps) < 1e-9


@pytest.mark.parametrize("shape", [(3, 4, 4), (1, 4, 4), (3, 3, 6), (2, 7, 2), (3, 8, 8)])
def test_l2_goes_two_fifths_of_the_way_on_a_plane(shape: tuple[int, ...]) -> None:
    """Pairs of mounds fit a plane of one sign per channel badly: the authors' code gets no further here."""
    toy = halfspace(2, shape=shape)
    outcome = antiadv.attack(toy.model, toy.x, toy.y, "square", antiadv.L2(2.5 * toy.distance), queries=2000)
    assert outcome.fooled.all()


def test_l2_leaves_the_sphere() -> None:
    toy = sphere(2)
    outcome = antiadv.attack(toy.model, toy.x, toy.y, "square", antiadv.L2(1.01 * toy.distance), queries=300)
    assert outcome.fooled.all()


# ---------------------------------------------------------------- the budget


@pytest.mark.parametrize("ball", [antiadv.Linf(0.05), antiadv.L2(0.05)], ids=str)
def test_rescaling_runs_the_schedule_over_each_samples_own_budget(ball: Ball) -> None:
    toy = halfspace(ball.p, n=4, shape=(3, 12, 12))
    sides: list[list[int]] = []

    class Watched(Square):
        def _sides(self, steps: range, paid: Tensor | None, x: Tensor, *, odd: bool) -> Tensor:
            found = super()._sides(steps, paid, x, odd=odd)
            sides.extend(found.flatten(1).T.tolist())
            return found

    ledger = Ledger(4, 101)
    ledger.queries[1] = 50  # an earlier attack has spent half of it
    oracle = Oracle(toy.model, Threat(ball, Access.SCORES, 101), ledger)
    Watched(rescale=True)(oracle, toy.x, toy.y, ball, Draws.of(0, torch.arange(4)))
    assert ledger.queries.tolist() == [101] * 4
    odd = ball.p == 2
    plain = Square()
    assert [s[0] for s in sides[:100]] == [plain.side(t * 100, 12, 12, odd=odd) for t in range(100)]
    assert [s[1] for s in sides[:50]] == [plain.side(t * 200, 12, 12, odd=odd) for t in range(50)]


@pytest.mark.parametrize("odd", [False, True])
def test_rescaled_over_its_own_length_the_schedule_is_the_plain_one(odd: bool) -> None:
    x, paid = torch.zeros(1, 3, 32, 32), torch.tensor([square.HORIZON])
    for t in BREAKS:
        assert Square()._sides(range(t, t + 1), paid, x, odd=odd).item() == Square().side(t, 32, 32, odd=odd)


@pytest.mark.parametrize("p", [2, math.inf])
def test_rescaling_matters_on_a_short_budget(p: float) -> None:
    toy = halfspace(p, n=3, shape=(3, 8, 8))
    runs = [
        antiadv.attack(toy.model, toy.x, toy.y, text, Ball(p, toy.distance), queries=120).images
        for text in ("square", "square:rescale=true")
    ]
    assert not torch.equal(*runs)


def test_one_query_for_the_start_and_one_a_proposal() -> None:
    for p in (2, math.inf):
        toy = halfspace(p)
        spy = Spy(toy.model)
        ball = Ball(p, 0.5 * toy.distance)
        ledger = Ledger(6)
        Square(steps=20)(Oracle(spy, Threat(ball, Access.SCORES), ledger), toy.x, toy.y, ball, Draws.of(0, toy.y))
        assert ledger.queries.tolist() == [21] * 6
        assert spy.seen == 126


@pytest.mark.parametrize("ball", [antiadv.Linf(0.1), antiadv.L2(0.5)], ids=str)
def test_proposals_drawn_ahead_are_those_of_each_step(ball: antiadv.Ball, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proposals do not depend on how many are drawn at once."""
    x = Draws.of(1, torch.arange(3)).uniform(3, 8, 8)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4)).eval()
    y = net(x).argmax(1)
    reference = antiadv.attack(net, x, y, "square:steps=40", ball)
    for ahead, lines in ((1, square.LINES), (7, square.LINES), (64, 1), (64, 5 * 3 * 16)):
        monkeypatch.setattr(square, "AHEAD", ahead)
        monkeypatch.setattr(square, "LINES", lines)
        assert torch.equal(antiadv.attack(net, x, y, "square:steps=40", ball).images, reference.images)


# ---------------------------------------------------------------- against defences that change scores


@pytest.mark.parametrize("name", ["square:loss=dlr", "square:accept=both"])
def test_every_variant_keeps_the_contract(name: str) -> None:
    contract.check(name, math.inf)


def rule(accept: str, n: int = 2) -> tuple[_Rule, Survivors, Callable[[float], list[float]]]:
    """A rule, and a function that offers one margin to all samples and returns what they hold then."""
    x, y = torch.zeros(n, 1, 2, 2), torch.zeros(n, dtype=torch.int64)
    live = Survivors(
        Oracle(Pixel().eval(), Threat(Linf(1), Access.SCORES), Ledger(n)), x, y, Draws.of(0, torch.arange(n))
    )
    made = _Rule("margin", accept, live)

    def offer(margin: float) -> list[float]:
        made.take(live, x, torch.tensor([[margin, 0.0]]).expand(n, 2))
        return live.m.tolist()

    return made, live, offer


class Pixel(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


def test_a_pendulum_turns_after_ten_rejected_proposals() -> None:
    made, _, offer = rule("pendulum")
    assert offer(5) == [5, 5]
    for _ in range(10):
        assert offer(6) == [5, 5]
    assert offer(4) == [5, 5]
    assert offer(6) == [6, 6]
    made.select(torch.tensor([1]))
    assert (len(made.down), len(made.rejected)) == (1, 1)


def test_both_ways_goes_up_once_a_proposal_jumped() -> None:
    _, _, offer = rule("both")
    assert offer(5) == [5, 5]
    assert offer(7) == [5, 5]
    assert offer(4) == [4, 4]
    assert offer(7.5) == [7.5, 7.5]
    assert offer(7) == [7.5, 7.5]
    assert offer(8) == [8, 8]
    assert offer(4.5) == [4.5, 4.5]


def test_the_scale_free_loss_is_dlr() -> None:
    s = torch.tensor([[4.0, 1.0, 0.0, -3.0], [1.0, 3.0, 2.0, -1.0]])
    for scale in (0.5, 1.0, 7.0):
        made, live, _ = rule("lower")
        made.loss = "dlr"
        made.take(live, live.x, scale * s)
        assert torch.allclose(live.m, -dlr(s, live.y))
