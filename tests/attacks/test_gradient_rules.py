"""Rules of PGD, APGD, FAB, BPDA and EOT: where restarts begin, which class is the target, means over draws, which model
gives gradients and which scores, and the authors' constants."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv.attacks import parse
from antiadv.attacks._search.projections import to_plane
from antiadv.attacks.adaptive.bpda import BPDA
from antiadv.attacks.adaptive.eot import EOT, Averaged
from antiadv.attacks.white_box import apgd
from antiadv.attacks.white_box.apgd import APGD, start
from antiadv.attacks.white_box.fab import FAB, linearise
from antiadv.attacks.white_box.pgd import PGD
from antiadv.core.ball import L2, Ball, Linf
from antiadv.core.draws import Draws
from antiadv.core.ledger import Ledger
from antiadv.core.losses import ce
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.defences.small_noise import SmallNoise
from tests.toys import Spy, Toy, halfspace, small_net, sphere

norms = pytest.mark.parametrize("p", [2, math.inf])


class Heard(nn.Module):
    """A classifier that remembers its images."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base, self.images, self.training = base, list[Tensor](), False

    def forward(self, x: Tensor) -> Tensor:
        self.images.append(x.detach().clone())
        s: Tensor = self.base(x)
        return s


def asked(text: str, p: float = math.inf) -> tuple[Toy, list[Tensor]]:
    """Runs an attack in a ball in which nothing fools, and returns the images that it asked about."""
    toy, ball = halfspace(p), Ball(p, 0.05)
    heard = Heard(toy.model)
    oracle = Oracle(heard, Threat(ball, Access.INTERNALS), Ledger(6))
    parse(text)(oracle, toy.x, toy.y, ball, Draws.of(0, torch.arange(6)))
    return toy, heard.images


# ---------------------------------------------------------------- restarts, targets, steps


@norms
@pytest.mark.parametrize("name", ["pgd", "apgd", "pseudo_label"])
def test_restarts_begin_elsewhere(name: str, p: float) -> None:
    _, images = asked(f"{name}:steps=1,restarts=3", p)
    a, b, c = images[::2]
    assert not any(torch.equal(u[i], v[i]) for u, v in ((a, b), (b, c), (a, c)) for i in range(6))


@norms
def test_restarts_of_fab_begin_half_a_radius_away_and_the_first_at_x(p: float) -> None:
    toy, images = asked("fab:steps=1,restarts=3", p)
    a, b, c = images[::2]
    assert torch.equal(a, toy.x)
    torch.testing.assert_close(Ball(p, 0.05).distance(toy.x, b), torch.full((6,), 0.025).double(), rtol=1e-4, atol=0)
    assert not torch.equal(b, c)


def test_every_target_of_fab_begins_at_x() -> None:
    toy, images = asked("fab:steps=1,targets=3")
    assert all(torch.equal(z, toy.x) for z in images[1::2])


def test_targets_of_apgd_begin_elsewhere() -> None:
    _, images = asked("apgd:steps=1,targets=2")
    assert not torch.equal(images[1], images[3])


def test_apgd_aims_at_one_class_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    aims = list[list[int]]()
    monkeypatch.setattr(apgd, "climb", lambda live, z, ball, loss, aim, **more: aims.append(aim.tolist()))
    net, x = small_net(), torch.rand((3, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    s, ball = net(x).detach(), Linf(1e-4)
    oracle = Oracle(net, Threat(ball, Access.GRADIENTS), Ledger(3))
    parse("apgd:loss=dlr,targets=9,steps=1")(oracle, x, s.argmax(1), ball, Draws.of(0, torch.arange(3)))
    assert torch.equal(torch.tensor(aims).T, s.argsort(dim=1, descending=True)[:, 1:])


@norms
def test_pgd_looks_at_its_last_iterate(p: float) -> None:
    toy = halfspace(p)
    ball = Ball(p, 1.05 * toy.distance)
    assert antiadv.attack(toy.model, toy.x, toy.y, "pgd:steps=1,step_size=1,random_start=false", ball).fooled.all()


def test_pgd_costs_what_its_head_says() -> None:
    toy = halfspace(math.inf)
    for text, cost in (("pgd", (21, 20)), ("pgd:steps=4,restarts=3", (15, 12))):
        records = antiadv.attack(toy.model, toy.x, toy.y, text, Linf(0.05)).records
        assert {(r.queries, r.gradients) for r in records} == {cost}


def test_the_authors_constants() -> None:
    assert PGD() == PGD(steps=20, step_size=0.25, restarts=1, random_start=True)
    assert APGD() == APGD(loss="ce", targets=0, steps=100, restarts=1, rho=0.75, eot=1)
    assert FAB() == FAB(targets=0, steps=100, restarts=1, alpha_max=0.1, eta=1.05, beta=0.9)
    assert EOT().samples == 20


# ---------------------------------------------------------------- APGD


def test_rho_decides_when_steps_are_halved() -> None:
    net, x, ball = small_net(), torch.rand((4, 3, 8, 8), generator=torch.Generator().manual_seed(0)), Linf(0.002)

    def last(text: str) -> Tensor:
        heard = Heard(net)
        oracle = Oracle(heard, Threat(ball, Access.GRADIENTS), Ledger(4))
        parse(text)(oracle, x, net(x).argmax(1), ball, Draws.of(0, torch.arange(4)))
        return heard.images[-1]

    assert not torch.equal(last("apgd:rho=0"), last("apgd:rho=1"))
    assert torch.equal(last("apgd"), last("apgd:rho=0.75"))


@norms
def test_a_random_start_has_no_side(p: float) -> None:
    x = torch.full((400, 3, 4, 4), 0.5)
    d = start(x, Ball(p, 0.1), Draws.of(0, torch.arange(400))) - x
    assert abs(d.mean() / d.std()) < 0.05
    if p == 2:  # normal numbers, whose kurtosis is 3: that of uniform ones is 1.8
        assert ((d**4).mean() / (d**2).mean() ** 2).item() == pytest.approx(3, abs=0.25)


class Steeper(nn.Module):
    """The t-th answer is t times as steep."""

    def __init__(self) -> None:
        super().__init__()
        self.t, self.training = 0, False

    def forward(self, x: Tensor) -> Tensor:
        self.t += 1
        v = self.t * x.flatten(1).sum(1)
        return torch.stack([v, -v], 1)


def test_scores_loss_and_gradient_of_apgd_are_means_over_draws() -> None:
    x, y = torch.full((2, 3), 0.1), torch.zeros(2, dtype=torch.int64)

    def oracle() -> Oracle:
        return Oracle(Steeper(), Threat(L2(0.1), Access.GRADIENTS), Ledger(2))

    one = oracle()
    each = [apgd._ask(one, x, ce, (y,), 1) for _ in range(3)]
    for found, parts in zip(apgd._ask(oracle(), x, ce, (y,), 3), zip(*each, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(parts).mean(0))
    torch.testing.assert_close(apgd._scores(oracle(), x, 3), torch.stack([s for s, *_ in each]).mean(0))


# ---------------------------------------------------------------- FAB


class Two(nn.Module):
    """Two planes at other distances in either norm: one has a single steep side, the other four flatter ones."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return torch.stack([0 * x[:, 0], 2 * x[:, 0] - 2, 0.8 * x.sum(1) - 2.6], 1)


@norms
def test_the_nearest_class_is_measured_by_the_dual_norm(p: float) -> None:
    oracle = Oracle(Two().eval(), Threat(Ball(p, 0.1), Access.GRADIENTS), Ledger(1))
    _, _, w = linearise(oracle, torch.full((1, 1, 2, 2), 0.5), torch.tensor([0]), None, p)
    assert w.flatten().tolist() == pytest.approx([2, 0, 0, 0] if p == 2 else [0.8] * 4)


@norms
@pytest.mark.parametrize("most", [0.1, 1.0])
def test_a_step_of_fab_is_its_formula(p: float, most: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x, z, w = (torch.rand((5, 1, 3, 3), generator=generator) for _ in range(3))
    x, z, w, f = 0.3 + 0.4 * x, 0.3 + 0.4 * z, w - 0.5, torch.linspace(-0.05, 0.05, 5)
    d1, d2 = to_plane(z, w, -f, p), to_plane(x, w, (w * (z - x)).flatten(1).sum(1) - f, p)
    n1, n2 = (torch.linalg.vector_norm(d.flatten(1), p, dim=1).clamp_min(1e-8) for d in (d1, d2))
    a = (n1 / (n1 + n2)).clamp_max(most).view(-1, 1, 1, 1)
    expected = ((1 - a) * (z + 1.05 * d1) + a * (x + 1.05 * d2)).clamp(0, 1)
    torch.testing.assert_close(FAB(alpha_max=most)._step(x, z, f, w, Ball(p, 0.1)), expected, rtol=0, atol=1e-6)


def test_fab_steps_back_from_where_it_fooled() -> None:
    toy, images = asked("fab:steps=2")  # the first step fools, beyond the ball
    torch.testing.assert_close(images[2], toy.x + 0.9 * (images[1] - toy.x), rtol=0, atol=1e-6)


# ---------------------------------------------------------------- EOT and BPDA


class Turns(nn.Module):
    """The k-th of four answers to an image says k more for the first class."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base, self.training = base, False

    def forward(self, x: Tensor) -> Tensor:
        k = (torch.arange(len(x)) % 4).float()
        s: Tensor = self.base(x)
        return s + k[:, None] * torch.tensor([1.0, 0, 0, 0])


def test_scores_behind_eot_are_means() -> None:
    toy = halfspace(2)

    def averaged() -> Averaged:
        return Averaged(Oracle(Turns(toy.model), Threat(L2(0.1), Access.GRADIENTS), Ledger(6)), 4)

    mean = toy.model(toy.x) + torch.tensor([1.5, 0, 0, 0])
    found = averaged().scores(toy.x), averaged().gradient(toy.x, ce, toy.y)[0], averaged().jacobian(toy.x)[0]
    for s in found:
        torch.testing.assert_close(s, mean, rtol=0, atol=1e-5)


@pytest.mark.parametrize("samples", [1, 16])
def test_a_jacobian_behind_eot_is_a_mean(samples: int) -> None:
    """Its error falls with the root of the draws."""
    toy, n, std = sphere(2, n=200), 200, 0.05
    oracle = Oracle(SmallNoise(toy.model, std), Threat(Linf(0.1), Access.GRADIENTS), Ledger(n))
    _, j = Averaged(oracle, samples).jacobian(toy.x + 0.1)
    assert (j[:, 0] + 0.1).std().item() == pytest.approx(std / math.sqrt(samples), rel=0.05)


class Thrice(Spy):
    """A defence whose scores, and gradients, are three times its base's."""

    def forward(self, x: Tensor) -> Tensor:
        return 3 * super().forward(x)


def test_bpda_has_the_scores_of_the_defence_and_the_gradients_of_its_base() -> None:
    toy, some = halfspace(2), torch.tensor([4, 1])
    found = dict[str, tuple[Tensor, Tensor]]()

    def inner(oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        found["gradient"], found["jacobian"] = oracle.gradient(x, ce, y), oracle.jacobian(x)
        found["some"] = oracle[some].gradient(x[some], ce, y[some])
        return x

    attack = BPDA()
    object.__setattr__(attack, "attack", inner)
    oracle = Oracle(Thrice(toy.model), Threat(L2(0.1), Access.INTERNALS), Ledger(6))
    attack(oracle, toy.x, toy.y, L2(0.1), Draws.of(0, torch.arange(6)))
    bare = Oracle(toy.model, Threat(L2(0.1), Access.GRADIENTS), Ledger(6))
    (s, g), (_, j) = bare.gradient(toy.x, ce, toy.y), bare.jacobian(toy.x)
    for name, expected in (("gradient", (3 * s, g)), ("jacobian", (3 * s, j)), ("some", (3 * s[some], g[some]))):
        torch.testing.assert_close(found[name], expected)
