"""NES: the estimator on losses with a closed form, the count of updates, the bound on memory."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv.attacks.score_based import nes
from antiadv.attacks.score_based.nes import NES, estimate, published_updates
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager
from antiadv.core.errors import BadSpec
from antiadv.core.ledger import Ledger
from antiadv.core.losses import Loss
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from tests.toys import halfspace

SHAPE = (2, 10, 10)  # d = 200


def linear(seed: int = 0) -> tuple[Tensor, nes.Values]:
    a = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))
    return a, lambda z: (z.double() * a.double()).flatten(1).sum(1)


def test_on_a_linear_loss_the_estimate_is_2q_over_d_times_the_gradient_on_average() -> None:
    a, values = linear()
    q, n, d = 10, 1000, a.numel()
    g = estimate(values, torch.full((n, *SHAPE), 0.5), Draws.of(0, torch.arange(n)), q, 0.1) / q
    slope = (g.mean(0) * a).sum() / a.square().sum()
    assert slope.item() == pytest.approx(2 / d, rel=4 * math.sqrt(2 / (n * q)))  # (a·u)² d/|a|² is χ²₁: variance 2
    off = g.mean(0) - slope * a
    assert off.norm() < 1.2 * 2 / d * a.norm() * math.sqrt(d / (n * q))  # what is left is noise across a


@pytest.mark.parametrize("q", [1, 50, 200])
def test_the_cosine_law(q: int) -> None:
    a, values = linear(1)
    n, d = 100, a.numel()
    g = estimate(values, torch.full((n, *SHAPE), 0.5), Draws.of(1, torch.arange(n)), q, 0.1)
    cosine = torch.nn.functional.cosine_similarity(g.flatten(1), a.flatten()[None])
    law = math.sqrt(q / (q + d + 1))
    if q == 1:
        law *= math.sqrt(2 / math.pi)  # of a single pair the mean is E|n|/√d, not the root of the mean square
    assert cosine.mean().item() == pytest.approx(law, abs=4 * cosine.std().item() / math.sqrt(n) + 0.006)


def test_even_terms_cancel() -> None:
    """For a loss that is even around z the estimate is exactly zero: each pair is z + σu and z − σu."""
    seen: list[Tensor] = []

    def even(z: Tensor) -> Tensor:
        seen.append(z)
        return z.double().square().flatten(1).sum(1)

    assert (estimate(even, torch.zeros(3, *SHAPE), Draws.of(0, torch.arange(3)), 5, 0.1) == 0).all()
    pairs = torch.cat(seen).view(3, 5, 2, -1)
    assert torch.equal(pairs[:, :, 0], -pairs[:, :, 1])
    assert torch.allclose(pairs.norm(dim=-1), torch.tensor(0.1), rtol=0.25)


def test_how_many_pairs_are_asked_at_a_time_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, values = linear()
    z, draws = torch.full((4, *SHAPE), 0.5), Draws.of(0, torch.arange(4))
    reference = estimate(values, z, draws, 7, 0.1)
    monkeypatch.setattr(nes, "PIXELS", 2 * z.numel() * 3)
    assert torch.equal(estimate(values, z, draws, 7, 0.1), reference)
    monkeypatch.setattr(nes, "PIXELS", 1)
    assert torch.equal(estimate(values, z, draws, 7, 0.1), reference)
    alone = [estimate(values, z[i : i + 1], draws[torch.tensor([i])], 7, 0.1) for i in range(4)]
    assert torch.equal(torch.cat(alone), reference)


class Watched(Eager):
    """Remembers the largest request, and the range of the images."""

    largest, low, high = 0, math.inf, -math.inf

    def scores(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> Tensor:
        Watched.largest = max(Watched.largest, z.numel())
        Watched.low, Watched.high = min(Watched.low, z.min().item()), max(Watched.high, z.max().item())
        return super().scores(model, z, draws=draws)

    def gradient(
        self, model: nn.Module, z: Tensor, loss: Loss, *targets: Tensor, draws: Draws | None = None
    ) -> tuple[Tensor, Tensor]:
        raise AssertionError("a score-based attack asked for a gradient")


def test_memory_is_bounded_and_what_is_asked_are_images(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = halfspace(math.inf, n=6)
    ball = antiadv.Linf(0.5 * toy.distance)

    def run() -> Tensor:
        oracle = Oracle(toy.model, Threat(ball, Access.SCORES, 303), Ledger(6, 303), Watched())
        return NES(sigma=3.0)(oracle, toy.x, toy.y, ball, Draws.of(0, torch.arange(6)))

    reference = run()
    assert Watched.largest == 6 * 100 * 48
    Watched.largest = 0
    monkeypatch.setattr(nes, "PIXELS", 4 * 2 * 48)  # four pairs at a time, over all samples
    assert torch.equal(run(), reference)
    assert Watched.largest == 4 * 2 * 48
    assert 0 <= Watched.low <= Watched.high <= 1


class Stubborn(nn.Module):
    """Always class 0, with a gradient everywhere."""

    def forward(self, x: Tensor) -> Tensor:
        v = x.flatten(1).sum(1)
        return torch.stack([v * 0 + 1000, v], 1)


@pytest.mark.parametrize(
    ("queries", "probes", "updates"), [(10_000, 50, 99), (5_000, 50, 49), (101, 50, 1), (100, 50, 0), (30, 2, 6)]
)
def test_a_budget_pays_so_many_updates(queries: int, probes: int, updates: int) -> None:
    x, y = torch.full((2, 1, 2, 2), 0.5), torch.zeros(2, dtype=torch.int64)
    outcome = antiadv.attack(Stubborn().eval(), x, y, NES(probes), antiadv.Linf(0.1), queries=queries)
    assert updates == queries // (2 * probes + 1)
    assert [r.queries for r in outcome.records] == [updates * (2 * probes + 1)] * 2


def test_without_a_budget_it_makes_the_published_number_of_updates_or_as_many_as_told() -> None:
    x, y = torch.full((1, 1, 2, 2), 0.5), torch.zeros(1, dtype=torch.int64)

    def spent(attack: NES, queries: int | None = None) -> int:
        return antiadv.attack(Stubborn().eval(), x, y, attack, antiadv.L2(0.1), queries=queries).records[0].queries

    assert spent(NES()) == 99 * 101
    assert spent(NES(steps=3)) == 3 * 101
    assert spent(NES(steps=3), 10_000) == 3 * 101


def test_the_authors_counting() -> None:
    assert [published_updates(q, 50) for q in (10_000, 5_000)] == [99, 49]
    assert [published_updates(q, 1) for q in (10_000, 5_000)] == [4_999, 2_499]
    assert [2 * 50 * published_updates(q, 50) for q in (10_000, 5_000)] == [9_900, 4_900]
    assert published_updates(1, 1) == 0


def test_no_radius_no_success() -> None:
    toy = halfspace(math.inf)
    outcome = antiadv.attack(toy.model, toy.x, toy.y, "nes", antiadv.Linf(0), queries=303)
    assert torch.equal(outcome.images, toy.x)


def test_a_confident_sample_still_has_a_slope() -> None:
    """A gap of 25: in float32 the cross-entropy is exactly zero on either side."""

    class Sure(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            v = x.flatten(1).mean(1)
            return torch.stack([30 - 10 * v, v * 0], 1)

    x, y = torch.full((1, 1, 4, 4), 0.5), torch.zeros(1, dtype=torch.int64)
    outcome = antiadv.attack(Sure().eval(), x, y, NES(steps=5), antiadv.Linf(0.1))
    assert (outcome.images - x).mean() > 0.05


@pytest.mark.parametrize("bad", ["probes=0", "sigma=0", "step_size=-1", "steps=-1"])
def test_bad_options_are_refused(bad: str) -> None:
    with pytest.raises(BadSpec):
        antiadv.attacks.parse(f"nes:{bad}")
