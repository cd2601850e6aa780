"""The paths: Proposition 1 with the library's own SimBA, both compositions, and expectations by enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import antiadv
from antiadv.attacks.score_based.simba import Simba
from antiadv.core.draws import Draws
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.paper.theory.composition import (
    expected,
    first_below,
    picks,
    proof_ascent,
    proof_step,
    system_ascent,
    system_step,
    track,
)
from antiadv.paper.theory.landscapes import Hill, Landscape, Sigmoids, Valley
from antiadv.paper.theory.proposition_1 import Loss, lowest, simba, stp

SHAPE = (2, 3, 2)
N = 12


class Waves(nn.Module):
    """Class 0 everywhere, with a probability that bends: nothing to fool, something to lower."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.a = torch.randn((30, N), generator=generator, dtype=torch.float64)
        self.b = torch.rand(30, generator=generator, dtype=torch.float64)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        v = torch.sin(x.double().flatten(1) @ self.a.T + self.b).sum(1) / 5
        return torch.stack([v * 0 + 9, v, -v], 1)


class Rising(nn.Module):
    """The loss of class 0 rises with every pixel, by sums of sigmoids; class 0 wins everywhere near [0, 1]."""

    def forward(self, x: Tensor) -> Tensor:
        v = (x.double() * torch.linspace(1, 3, N, dtype=torch.float64).view(SHAPE)).sigmoid().flatten(1).sum(1)
        return torch.stack([v * 0 + 20, v], 1)


def attacked(model: nn.Module, x: Tensor, steps: int, step: float) -> tuple[Tensor, list[int]]:
    """The library's attack through a real oracle; ball and box are far away."""
    ball, ledger = antiadv.L2(0.4), Ledger(len(x))
    oracle = Oracle(model, Threat(ball, Access.SCORES), ledger)
    attack = Simba(rule="stp", step_size=step / ball.eps, steps=steps)
    y = torch.zeros(len(x), dtype=torch.int64)
    return attack(oracle, x, y, ball, Draws.of(5, torch.arange(len(x)))), ledger.queries.tolist()


def directions(i: int, steps: int) -> Tensor:
    """Those that the library draws for sample i."""
    draws = Draws.of(5, torch.tensor([i]))
    return torch.eye(N, dtype=torch.float64)[[int(draws.fold(t).below(N, 1)) for t in range(steps)]]


def images(n: int = 3) -> Tensor:
    return 0.45 + 0.1 * torch.rand((n, *SHAPE), generator=torch.Generator().manual_seed(1), dtype=torch.float64)


# ---------------------------------------------------------------- Proposition 1


@pytest.mark.parametrize("steps", [1, 2, 120])
def test_the_librarys_simba_is_the_proposition_array_for_array(steps: int) -> None:
    x, model, step = images(), Waves(), 0.01

    def loss(z: Tensor) -> Tensor:
        s: Tensor = -model(z.reshape(-1, N)).log_softmax(1)[:, 0].view(z.shape[:-1])
        return s

    z, spent = attacked(model, x, steps, step)
    for i in range(len(x)):
        q = directions(i, steps)
        path, queries = simba(loss, x[i].flatten(), q, step)
        assert torch.equal(path[-1], z[i].flatten())
        assert torch.equal(path, stp(loss, x[i].flatten(), q, step))
        assert path.shape == (steps + 1, N)
        assert spent[i] == queries == 2 * steps + 1
    if steps > 100:
        assert (z != x).flatten(1).sum(1).min() > N / 2, "it moves"


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=3, max_size=3))
def test_of_equals_the_first_stays(heights: list[int]) -> None:
    """x before x + d before x − d, as the library has it: it moves only where that is strictly better."""
    table = torch.tensor(heights, dtype=torch.float64)
    x, d = torch.tensor([5.0]), torch.tensor([1.0])
    found = lowest(lambda z: table[torch.where(z == 5, 0, torch.where(z == 6, 1, 2)).long()].squeeze(-1), x, d)
    assert float(found) == [5.0, 6.0, 4.0][heights.index(min(heights))]


@pytest.mark.parametrize(("loss", "end"), [(lambda z: 0 * z.sum(-1), 0.0), (lambda z: z.abs().sum(-1), 0.6)])
def test_both_forms_break_ties_alike(loss: Loss, end: float) -> None:
    """On a plain they stay; in a fork they take the plus."""
    x, q = torch.zeros(1, dtype=torch.float64), torch.ones((2, 1), dtype=torch.float64)
    path, _ = simba(loss, x, q, 0.3)
    assert torch.equal(path, stp(loss, x, q, 0.3))
    assert float(path[-1]) == end


def test_many_points_at_once_are_as_one_by_one() -> None:
    x = torch.randn((7, 3), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    d = torch.tensor([0.0, 0.3, 0.0], dtype=torch.float64)
    each = torch.stack([lowest(Hill().loss, v, d) for v in x])
    assert torch.equal(lowest(Hill().loss, x, d), each)


# ---------------------------------------------------------------- expectations


@pytest.mark.parametrize(("n", "k"), [(1, 3), (4, 0), (4, 18), (7, 300)])
def test_picks_are_binomial(n: int, k: int) -> None:
    *_, last = picks(n, k)
    exact = scipy.stats.binom.pmf(range(k + 1), k, 1 / n)
    assert torch.allclose(last, torch.from_numpy(exact), rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("rule", [proof_step, system_step])
@pytest.mark.parametrize("land", [Sigmoids(), Hill(), Valley()], ids=str)
def test_expectations_are_averages_over_all_orders(rule: Callable[..., Tensor], land: Landscape) -> None:
    """Every order of 5 draws from 3 coordinates, walked in three dimensions: 243 paths."""
    n, k, start, step, c = 3, 5, 0.4, 0.3, 0.5
    eye = torch.eye(n, dtype=torch.float64)
    total = torch.zeros(k + 1, dtype=torch.float64)
    for order in itertools.product(range(n), repeat=k):
        x = torch.full((n,), start, dtype=torch.float64)
        sizes = [land.slope(x).abs().sum()]
        for i in order:
            x = rule(land.loss, x, step * eye[i], c)
            sizes.append(land.slope(x).abs().sum())
        total += torch.stack(sizes)
    d = torch.tensor([step], dtype=torch.float64)
    path = track(lambda x: rule(land.loss, x, d, c), start, k)
    exact = torch.tensor(list(expected(land.slope(path).abs(), n)), dtype=torch.float64)
    assert torch.allclose(total / n**k, exact, rtol=1e-12, atol=0)


def test_first_below() -> None:
    assert first_below([0.1, 3, 2, 1], 2.5) == 2, "from the first step on, not from the start"
    assert first_below([3, 2], 2) is None


# ---------------------------------------------------------------- where γ goes


@pytest.mark.parametrize("c", [1.0, 0.5, 0.25, 0.0, -0.5, -3.0])
def test_added_to_the_iterate_the_layer_shortens_the_step(c: float) -> None:
    d = torch.tensor([0.5], dtype=torch.float64)
    path = track(lambda x: proof_step(Sigmoids().loss, x, d, c), 0.1, 20)
    assert torch.allclose(path, 0.1 + 0.5 * c * torch.arange(21, dtype=torch.float64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("c", [0.5, 0.0, -0.5, -3.0])
def test_seen_through_the_layer_the_path_is_that_on_f(c: float) -> None:
    """In six dimensions, in a random order, on rising and on falling coordinates."""
    sign = torch.tensor([1, -1, 1, 1, -1, 1], dtype=torch.float64)

    def loss(x: Tensor) -> Tensor:
        return Sigmoids().loss(sign * x)

    generator = torch.Generator().manual_seed(0)
    q = torch.eye(6, dtype=torch.float64)[torch.randint(6, (80,), generator=generator)]
    bare = stp(loss, torch.zeros(6, dtype=torch.float64), 0.5 * q, 1.0)
    x = bare[0]
    for before, after, e in zip(bare, bare[1:], q, strict=False):
        assert torch.equal(x, before)
        x = system_step(loss, x, 0.5 * e, c)
        assert torch.equal(x, after)
        assert not torch.equal(proof_step(loss, before, 0.5 * e, c), after), "and not what the proof has"


def test_where_the_loss_is_not_monotone_the_layer_can_turn_the_attacker() -> None:
    """In a bowl from 0.2 with ε = 0.5, ε_g = 0.6: 0.2, 0.7 and −0.3 look like 0.2, 0.1 and 0.3 from the floor."""
    x, d = torch.tensor([0.2], dtype=torch.float64), torch.tensor([0.5], dtype=torch.float64)
    assert float(system_step(Valley().loss, x, d, 1.0)) == pytest.approx(0.7)
    assert float(system_step(Valley().loss, x, d, -0.2)) == pytest.approx(-0.3)


@pytest.mark.parametrize("step_size", [0.002, 0.01, 0.05])
def test_the_real_layer_leaves_the_path_of_the_librarys_simba(step_size: float) -> None:
    """`AntiAdversary` with one sign step, before a loss that rises with every pixel: no image changes, scores do."""
    f, x = Rising().eval(), images()
    g = antiadv.AntiAdversary(f, steps=1, step_size=step_size)
    bare, spent = attacked(f, x, 100, 0.01)
    defended, paid = attacked(g, x, 100, 0.01)
    assert torch.equal(bare, defended)
    assert spent == paid == [201] * len(x)
    assert (bare > x).any(), "it moves"
    assert (f(x)[:, 1] > g(x)[:, 1]).all(), "and the layer does lower the loss"


@settings(deadline=None)
@given(x=st.floats(-1, 1), share=st.floats(0.05, 1), c=st.floats(-1, 1))
def test_honest_steps_on_parabolas(x: float, share: float, c: float) -> None:
    at, down = torch.tensor([x], dtype=torch.float64), (1 - c) * share
    if abs(x * (1 - down)) <= 1:
        found = float(system_ascent(Valley(2.0), at, share, c))
        assert found == pytest.approx((1 + share * (1 - down)) * x, abs=1e-12)
    assert float(system_ascent(Hill(2.0), at, share, c)) == pytest.approx((1 - share * (1 + down)) * x, abs=1e-12)
    assert float(proof_ascent(Hill(2.0), at, share, c)) == pytest.approx((1 - c * share) * x, abs=1e-12)
    assert float(proof_ascent(Valley(2.0), at, share, c)) == pytest.approx((1 + c * share) * x, abs=1e-12)


@settings(deadline=None)
@given(x=st.floats(-2, 2), share=st.floats(0.05, 1), c=st.floats(-3, 0))
def test_descent_cannot_raise_the_loss_up_to_twice_the_step(x: float, share: float, c: float) -> None:
    for land in (Sigmoids(), Hill(), Valley()):
        at = torch.tensor([x], dtype=torch.float64)
        change = float(land.loss(proof_ascent(land, at, share, c)) - land.loss(at))
        assert change <= 1e-15 or abs(c) * share > 2
