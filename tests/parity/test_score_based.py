"""Square is compared with the authors' code, NES and Bandits with plain loops of the published algorithms.

Same network, same images, the same number of proposals or updates. The network is small and trained here in seconds;
`docs/parity.md` has the full-size runs.

Both sides attack the same samples with different random numbers. If they are equally strong, a sample that only one of
them breaks is ours or theirs with probability 1/2 (McNemar's exact test). A test fails if ours loses so many of these
samples that chance explains it with probability below LEVEL. This holds for any network, so it does not matter that
rounding gives other weights on another CPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from pyautoattack.square import SquareAttack
from scipy.stats import binomtest
from torch import Tensor, nn
from torch.nn import functional as F

import antiadv
from antiadv.attacks.score_based.bandits import Bandits
from antiadv.attacks.score_based.nes import NES
from antiadv.core.ball import Ball
from benchmarks.parity.sides import published_queries

pytestmark = pytest.mark.slow

N = 100
LEVEL = 0.005  # of a false alarm, for each comparison
BALLS = [antiadv.Linf(4 / 255), antiadv.L2(0.5)]


@dataclass(frozen=True)
class Case:
    """A network and images it gets right."""

    net: nn.Module
    x: Tensor
    y: Tensor


@pytest.fixture(scope="module")
def case() -> Case:
    data = antiadv.data.load("cifar10")
    ids = list(range(1000))
    x, y = data.images(ids), data.labels(ids)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(512, 10),
        )
        way = torch.optim.Adam(net.parameters(), 5e-3)
        for _ in range(12):
            for rows in torch.randperm(len(x)).split(50):
                way.zero_grad()
                F.cross_entropy(net(x[rows]), y[rows]).backward()
                way.step()
    net.eval().requires_grad_(False)
    right = (net(x).argmax(1) == y).nonzero().squeeze(1)[:N]
    return Case(net, x[right], y[right])


# ---------------------------------------------------------------- Square


@pytest.mark.parametrize("rescale", [False, True])
@pytest.mark.parametrize("ball", BALLS, ids=str)
def test_square_is_no_weaker_than_the_authors(case: Case, ball: Ball, rescale: bool) -> None:
    proposals = 300
    norm = "Linf" if ball.p == math.inf else "L2"
    with torch.random.fork_rng():
        theirs = SquareAttack(
            case.net, norm=norm, n_queries=proposals, eps=ball.eps, seed=0, resc_schedule=rescale, device="cpu"
        ).perturb(case.x, case.y)
    text = f"square:rescale={str(rescale).lower()}"
    ours = antiadv.attack(case.net, case.x, case.y, text, ball, queries=proposals + 1)
    assert (ball.distance(case.x, theirs) <= ball.reach).all()
    stood = (case.net(theirs).argmax(1) == case.y).tolist()
    assert 5 < sum(stood) < N - 5  # a comparison worth making
    assert chance((~ours.fooled).tolist(), stood) > LEVEL


# ---------------------------------------------------------------- NES and Bandits, one image at a time


def loss(net: nn.Module, z: Tensor, y: int) -> Tensor:
    return F.cross_entropy(net(z), torch.full((len(z),), y), reduction="none")


def nes_alone(net: nn.Module, x: Tensor, y: int, ball: Ball, q: int, updates: int, generator: torch.Generator) -> int:
    """The update at which the published loop first fools, or a number never reached."""
    z, sigma, d = x.clone(), 0.1, x.numel()
    for t in range(updates):
        u = torch.randn((q, *x.shape), generator=generator) / math.sqrt(d)
        rise = loss(net, z + sigma * u, y) - loss(net, z - sigma * u, y)
        g = (rise.view(-1, 1, 1, 1) / sigma * u).sum(0)
        z = stepped(ball, x, z, g, 0.2)
        if int(net(z[None]).argmax()) != y:
            return t + 1
    return updates + 1


def bandits_alone(
    net: nn.Module, x: Tensor, y: int, ball: Ball, tile: int, updates: int, generator: torch.Generator
) -> int:
    linf = ball.p == math.inf
    share, h, delta, sigma = (0.2, 100.0, 1.0, 0.1) if linf else (0.1, 0.1, 0.01, 0.01)
    z, v = x.clone(), torch.zeros(3, tile, tile)
    grow = nn.Upsample(size=x.shape[1:], mode="nearest")
    for t in range(updates):
        e = delta * torch.randn(v.shape, generator=generator) / math.sqrt(v.numel())
        a = grow(torch.stack([v + e, v - e]))
        a = a / a.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
        rise = loss(net, z + sigma * a, y)
        g = (rise[0] - rise[1]) / (sigma * delta) * e
        if linf:
            p = (v.double() + 1) / 2
            up, down = p * (h * g.double()).exp(), (1 - p) * (-h * g.double()).exp()
            v = (2 * up / (up + down) - 1).float()
        else:
            v = v + h * g
        z = stepped(ball, x, z, grow(v[None])[0], share)
        if int(net(z[None]).argmax()) != y:
            return t + 1
    return updates + 1


def stepped(ball: Ball, x: Tensor, z: Tensor, g: Tensor, share: float) -> Tensor:
    if ball.p == math.inf:
        z = z + share * ball.eps * g.sign()
        return torch.minimum(torch.maximum(z, x - ball.eps), x + ball.eps).clamp(0, 1)
    d = z + share * ball.eps * g / g.norm() - x
    within: Tensor = x + d * min(1.0, ball.eps / float(d.norm()))
    return within.clamp(0, 1)


@pytest.mark.parametrize("ball", BALLS, ids=str)
def test_nes_falls_as_fast_as_the_published_loop(case: Case, ball: Ball) -> None:
    q, updates = 10, 20
    ours = antiadv.attack(case.net, case.x, case.y, NES(probes=q, steps=updates), ball)
    generator = torch.Generator().manual_seed(0)
    theirs = [nes_alone(case.net, x, int(y), ball, q, updates, generator) for x, y in zip(case.x, case.y, strict=True)]
    compare(ours, theirs, q, (5, 10, updates))


@pytest.mark.parametrize("ball", BALLS, ids=str)
def test_bandits_fall_as_fast_as_the_published_loop(case: Case, ball: Ball) -> None:
    tile, updates = 16, 100
    ours = antiadv.attack(case.net, case.x, case.y, Bandits(tile=tile, steps=updates), ball)
    generator = torch.Generator().manual_seed(0)
    theirs = [
        bandits_alone(case.net, x, int(y), ball, tile, updates, generator) for x, y in zip(case.x, case.y, strict=True)
    ]
    compare(ours, theirs, 1, (25, 50, updates))


def compare(ours: antiadv.Outcome, theirs: list[int], q: int, after: tuple[int, ...]) -> None:
    """How many still stand after so many updates, in the authors' counting: 2q queries an update."""
    spent = [published_queries(r.queries, q) for r in ours.records]
    for updates in after:
        stood = [t > updates for t in theirs]
        stands = [not f or s > 2 * q * updates for f, s in zip(ours.fooled.tolist(), spent, strict=True)]
        assert chance(stands, stood) > LEVEL, f"after {updates} updates"
        assert updates < after[-1] or 5 < sum(stood) < N - 5  # a comparison worth making


def chance(ours: list[bool], theirs: list[bool]) -> float:
    """How probable it is that an equally strong attack leaves so many standing which the other one fools."""
    lost = sum(a and not b for a, b in zip(ours, theirs, strict=True))
    won = sum(b and not a for a, b in zip(ours, theirs, strict=True))
    return float(binomtest(lost, lost + won, 0.5, alternative="greater").pvalue) if lost + won else 1.0
