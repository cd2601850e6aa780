"""Rules of HopSkipJump, QEBA and the Boundary Attack: probes, lengths and noise of a step, and when a walk changes its
step sizes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from antiadv.attacks import parse
from antiadv.attacks._search.nearest import Nearest
from antiadv.attacks.decision_based import boundary, hop_skip_jump
from antiadv.attacks.decision_based.boundary import Boundary
from antiadv.attacks.decision_based.hop_skip_jump import HopSkipJump
from antiadv.attacks.decision_based.qeba import Qeba
from antiadv.core.ball import L2, Ball
from antiadv.core.draws import Draws
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from tests.toys import Halfspace, four, halfspace, sphere

norms = pytest.mark.parametrize("p", [2, math.inf])
FREE = L2(math.inf)


def test_the_authors_constants() -> None:
    assert HopSkipJump() == HopSkipJump(steps=64, probes=100, max_probes=10_000, gamma=1.0, tries=100)
    assert Qeba() == Qeba(basis="resize", factor=2.0, steps=150, probes=30, max_probes=30, gamma=0.01)
    assert Boundary() == Boundary(steps=25_000, around=0.05, towards=0.05, adaptation=1.5, tries=100)


# ---------------------------------------------------------------- HopSkipJump and QEBA


@norms
@pytest.mark.parametrize("name", ["hop_skip_jump", "qeba"])
def test_probes_and_lengths_follow_the_schedule(name: str, p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    toy, ball, walked = halfspace(p, n=1), Ball(p, math.inf), list[dict[str, float]]()
    keys, whole_estimate, whole_step = set[int](), hop_skip_jump.estimate, hop_skip_jump.step

    def estimate(nearest: Nearest, rows: Tensor, z: Tensor, delta: Tensor, *more: object) -> Tensor:
        _, keys_drawn, paid = more
        assert isinstance(keys_drawn, Draws)
        assert isinstance(paid, Tensor)
        keys.update(keys_drawn.keys.tolist())
        walked.append({"delta": delta.item(), "probes": paid.item(), "far": ball.distance(toy.x, z).item()})
        return whole_estimate(nearest, rows, z, delta, *more)  # type: ignore[arg-type]

    def step(nearest: Nearest, rows: Tensor, z: Tensor, v: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        moved, w = whole_step(nearest, rows, z, v, length)
        assert v.norm().item() == pytest.approx(1, abs=1e-5) or p == math.inf
        assert p == 2 or set(v.abs().flatten().tolist()) <= {0.0, 1.0}
        walked[-1] |= {"length": length.item(), "moved": moved.item(), "then": ball.distance(toy.x, w).item()}
        return moved, w

    monkeypatch.setattr(hop_skip_jump, "estimate", estimate)
    monkeypatch.setattr(hop_skip_jump, "step", step)
    oracle = Oracle(toy.model, Threat(ball, Access.LABELS), Ledger(1))
    parse(f"{name}:steps=5")(oracle, toy.x, toy.y, ball, Draws.of(0, torch.arange(1)))
    d = toy.x[0].numel()
    finest = {"hop_skip_jump": d**-2.0 if p == math.inf else d**-1.5, "qeba": 0.01 / (d if p == math.inf else d**0.5)}
    theta, delta = min(max(finest[name], 2.0**-20), 2.0**-10), 0.1
    for j, at in enumerate(walked, 1):
        assert at["probes"] == (int(100 * math.sqrt(j)) if name == "hop_skip_jump" else 30)
        assert at["length"] == pytest.approx(at["far"] / math.sqrt(j))
        assert at["delta"] == pytest.approx(delta)
        delta = theta * (d if p == math.inf else math.sqrt(d)) * at["then"] if at["moved"] else delta
    assert len(walked) == len(keys) == 5, "each step has its own random numbers"


class Caught(Exception):
    """Keeps the noise that a walk was given."""


@pytest.mark.parametrize(("p", "kurtosis"), [(math.inf, 1.8), (2, 3.0)])
def test_noise_is_uniform_in_linf_and_normal_in_l2(p: float, kurtosis: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def caught(self: object, nearest: Nearest, noise: Callable[[Draws], Tensor], draws: Draws) -> Tensor:
        raise Caught(noise)

    monkeypatch.setattr(hop_skip_jump.Walk, "__call__", caught)
    x, ball = torch.full((1, 3, 8, 8), 0.5), Ball(p, math.inf)
    oracle = Oracle(Halfspace((3, 8, 8)), Threat(ball, Access.LABELS), Ledger(1))
    with pytest.raises(Caught) as found:
        HopSkipJump()(oracle, x, torch.zeros(1, dtype=torch.int64), ball, Draws.of(0, torch.arange(1)))
    v: Tensor = found.value.args[0](Draws.of(0, torch.arange(200)))
    assert abs(v.mean()) < 0.02
    assert ((v**4).mean() / (v**2).mean() ** 2).item() == pytest.approx(kurtosis, rel=0.05)


class Margin(nn.Module):
    def __init__(self, margin: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.margin, self.training = margin, False

    def forward(self, z: Tensor) -> Tensor:
        return four(self.margin(z))


def estimated(margin: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """The estimate from 64 probes at a distance of 0.1, and the probes."""
    oracle, drawn = Oracle(Margin(margin), Threat(FREE, Access.LABELS), Ledger(1)), list[Tensor]()

    def noise(keys_drawn: Draws) -> Tensor:
        drawn.append(keys_drawn.normal(1, 4, 4))
        return drawn[-1]

    nearest, rows = Nearest(oracle, x, torch.zeros(1, dtype=torch.int64), FREE), torch.arange(1)
    delta, paid = torch.full((1,), 0.1).double(), torch.full((1,), 64)
    (g,) = hop_skip_jump.estimate(nearest, rows, x, delta, noise, Draws.of(0, rows), paid)
    (u,) = drawn
    return g, 0.1 * u / u.flatten(1).norm(dim=1).view(-1, 1, 1, 1)


def test_an_estimate_is_its_formula() -> None:
    x = torch.full((1, 1, 4, 4), 0.5)

    def margin(z: Tensor) -> Tensor:
        return 0.03 - (z - 0.5)[:, 0, 0, 0]  # which fewer than half of the probes pass

    g, u = estimated(margin, x)
    phi = torch.where(margin(0.5 + u) < 0, 1.0, -1.0)
    assert 4 < (phi > 0).sum() < 28
    torch.testing.assert_close(g, ((phi - phi.mean()).view(-1, 1, 1, 1) * u).sum(0), rtol=0, atol=1e-5)


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_where_all_probes_are_alike_it_goes_with_them_or_away(side: float) -> None:
    g, u = estimated(lambda z: 0 * z[:, 0, 0, 0] - side, torch.full((1, 1, 4, 4), 0.5))
    torch.testing.assert_close(g, side * u.sum(0), rtol=0, atol=1e-5)


def test_a_probe_that_was_clipped_counts_as_what_was_asked() -> None:
    g, u = estimated(lambda z: 0 * z[:, 0, 0, 0] - 1, torch.ones(1, 1, 4, 4))
    torch.testing.assert_close(g, u.clamp_max(0).sum(0), rtol=0, atol=1e-5)


# ---------------------------------------------------------------- Boundary


def test_the_boundary_attack_adapts_by_its_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last 100 tested q change both steps, the last 30 w change τ; q is tested every tenth step."""
    asked, keys_drawn, looked, plain_propose, plain_ask = set(), set[int](), list[int](), boundary.propose, Nearest.ask

    class Window(boundary._Window):
        def __init__(self, samples: int, size: int, device: torch.device) -> None:
            super().__init__(samples, size, device)
            self.size = size

        def verdict(self, rows: Tensor, few: float, many: float) -> Tensor:
            asked.add((self.size, few, many))
            return super().verdict(rows, few, many)

    def propose(x: Tensor, z: Tensor, draws: Draws, around: Tensor, towards: Tensor) -> tuple[Tensor, Tensor]:
        keys_drawn.update(draws.keys.tolist())
        return plain_propose(x, z, draws, around, towards)

    def ask(self: Nearest, rows: Tensor, z: Tensor) -> Tensor:
        looked.append(len(keys_drawn))
        return plain_ask(self, rows, z)

    monkeypatch.setattr(boundary, "_Window", Window)
    monkeypatch.setattr(boundary, "propose", propose)
    monkeypatch.setattr(Nearest, "ask", ask)
    toy = sphere(2, n=1)
    oracle = Oracle(toy.model, Threat(FREE, Access.LABELS), Ledger(1))
    parse("boundary:steps=400")(oracle, toy.x, toy.y, FREE, Draws.of(0, torch.arange(1)))
    assert asked == {(100, 0.2, 0.5), (30, 0.1, 0.25)}
    assert [looked.count(t) for t in range(1, 31)] == ([1] * 9 + [2]) * 3
    assert len(keys_drawn) == 400, "every step has its own random numbers"
