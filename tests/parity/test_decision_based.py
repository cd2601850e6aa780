"""Boundary and HopSkipJump are compared with foolbox: distances after equally many queries.

Both sides have the same network, images and starting noise. Ours gets the number of queries that foolbox sent. The test
compares the median, over images and runs, of our distance divided by foolbox's. With different starting noise, ratios
of so few images would differ by a tenth from run to run. Images with the class of their noise are left out, because
foolbox refuses such a start. So are images whose class is decided by less than CLEAR, because the last bits of a score
differ from CPU to CPU.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import antiadv
from antiadv.attacks._search.nearest import Nearest
from antiadv.core.ball import Ball
from antiadv.core.losses import margin
from tests.toys import Spy

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    import foolbox

pytestmark = pytest.mark.slow

N = 16
FEW = 12  # on the compact network, where a query takes a millisecond
ALLOWED = 1.05
CLEAR = 0.1  # between the two largest scores that matter; other CPUs change them by 1e-5

Ratio = Callable[..., float]


@dataclass(frozen=True)
class Case:
    net: nn.Module
    x: Tensor
    y: Tensor
    starts: Tensor  # [runs, N, ...]: noise that fools, for each run and image


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Single images through a small network: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def compact(one_thread: None) -> Case:
    data = antiadv.data.load("cifar10")
    return choose(antiadv.models.load("compact:trades"), data.images(range(60)), data.labels(range(60)), FEW, 1)


@pytest.fixture(scope="module")
def small(one_thread: None) -> Case:
    """A network so small that a thousand queries an image are cheap, trained here in seconds."""
    data = antiadv.data.load("cifar10")
    x, y = data.images(range(1000)), data.labels(range(1000))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2048, 10),
        )
        way = torch.optim.Adam(net.parameters(), 3e-3)
        for _ in range(6):
            for rows in torch.randperm(len(x)).split(100):
                way.zero_grad()
                F.cross_entropy(net(x[rows]), y[rows]).backward()
                way.step()
    return choose(net.eval().requires_grad_(False), x, y, N, 3)


def choose(net: nn.Module, x: Tensor, y: Tensor, n: int, runs: int) -> Case:
    """The first n images that are clearly right, and whose noise is clearly of another class in every run."""
    starts = torch.stack([torch.rand(x.shape, generator=torch.Generator().manual_seed(run)) for run in range(runs)])
    with torch.no_grad():
        fools = torch.stack([margin(net(noise), y) < -CLEAR for noise in starts]).all(0)
        rows = ((margin(net(x), y) > CLEAR) & fools).nonzero().squeeze(1)[:n]
    assert len(rows) == n
    return Case(net, x[rows], y[rows], starts[:, rows])


@pytest.fixture
def ratio(monkeypatch: pytest.MonkeyPatch) -> Ratio:
    def compare(case: Case, name: str, p: float, theirs: Callable[[], Any], alone: bool = False) -> float:
        """The median of our distances over foolbox's, which gets the images together, or one by one."""
        ball, every, criterion = Ball(p, math.inf), torch.arange(len(case.x)), foolbox.criteria.Misclassification
        found = []
        for seed, noise in enumerate(case.starts):
            spy = Spy(case.net).eval()
            model = foolbox.PyTorchModel(spy, bounds=(0, 1), device="cpu")
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                z = torch.cat(
                    [
                        theirs().run(model, case.x[rows], criterion(case.y[rows]), starting_points=noise[rows])
                        for rows in every.split(1 if alone else len(every))
                    ]
                )
            queries = spy.seen // len(every)

            def start(self: Nearest, *_: object, noise: Tensor = noise) -> Tensor:
                """Of all samples, or of the few that are searched again."""
                which = [(case.x == x).flatten(1).all(1).nonzero().item() for x in self.x]
                assert self.ask(torch.arange(len(which)), noise[which]).all()
                return torch.arange(len(which))

            monkeypatch.setattr(Nearest, "start", start)
            ours = antiadv.attack(case.net, case.x, case.y, name, ball, queries=queries, seed=seed)
            assert max(r.queries for r in ours.records) <= queries
            found.append(ball.distance(case.x, ours.images) / ball.distance(case.x, z))
        return torch.cat(found).median().item()

    return compare


def hop_skip_jump(steps: int, constraint: Literal["linf", "l2"] = "l2") -> Callable[[], Any]:
    return lambda: foolbox.attacks.HopSkipJumpAttack(steps=steps, constraint=constraint)


def boundary(steps: int) -> Callable[[], Any]:
    return lambda: foolbox.attacks.BoundaryAttack(steps=steps)


def test_hop_skip_jump_in_l2(compact: Case, ratio: Ratio) -> None:
    """foolbox divides an estimate by one norm over the batch, so in L2 it gets its images one by one."""
    assert ratio(compact, "hop_skip_jump", 2, hop_skip_jump(2), alone=True) <= ALLOWED


def test_hop_skip_jump_in_linf(small: Case, ratio: Ratio) -> None:
    assert ratio(small, "hop_skip_jump", math.inf, hop_skip_jump(3, "linf")) <= ALLOWED


def test_boundary(compact: Case, small: Case, ratio: Ratio) -> None:
    assert ratio(compact, "boundary", 2, boundary(200)) <= ALLOWED
    assert ratio(small, "boundary", 2, boundary(500)) <= ALLOWED
