"""The randomised defences and the one that rounds: what each does to an image, and its random numbers.

The contract of every defence is in tests/contract."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import antiadv
from antiadv import Linf
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager
from antiadv.core.errors import BadInput, BadSpec
from antiadv.core.ledger import Ledger
from antiadv.core.losses import ce
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.defences import wrap
from antiadv.defences.anti_adversary import AntiAdversary
from antiadv.defences.resize_pad import ResizePad
from antiadv.defences.rounded_scores import RoundedScores
from antiadv.defences.self_ensemble import SelfEnsemble
from antiadv.defences.small_noise import SmallNoise
from antiadv.evaluation.cell import LOOKS, Job, Record
from antiadv.evaluation.judge import Predictions
from antiadv.evaluation.shard import attack_and_judge, run_shard
from antiadv.models.noise import GaussianNoise
from antiadv.reporting.measures import right, standing
from tests.engine.probes import MODEL, Odd, cell, resources
from tests.toys import halfspace, small_net

SHAPE = (3, 4, 4)


class Weighed(nn.Module):
    """Scores (w·x, 0)."""

    def __init__(self) -> None:
        super().__init__()
        self.w: Tensor
        self.register_buffer("w", torch.linspace(-1, 1, math.prod(SHAPE)))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        s = (x.flatten(1) * self.w.to(x)).sum(1)
        return torch.stack([s, torch.zeros_like(s)], 1)


def grey(n: int, *shape: int) -> Tensor:
    return torch.full((n, *(shape or SHAPE)), 0.5)


def draws_of(n: int, seed: int = 0) -> Draws:
    return Draws.of(seed, torch.arange(n))


# ---------------------------------------------------------------- small noise


@pytest.mark.parametrize("std", [0.01, 0.2])
def test_small_noise_has_the_variance_of_a_linear_model(std: float) -> None:
    n, f = 20_000, Weighed()
    s = SmallNoise(f, std)(grey(n), draws_of(n))[:, 0]
    expected = std * f.w.norm().item()
    assert abs(s.mean() - f(grey(1))[0, 0]) < 4 * expected / math.sqrt(n)
    assert s.std().item() == pytest.approx(expected, rel=4 / math.sqrt(2 * n))


def test_small_noise_without_noise_is_the_base() -> None:
    net, x = small_net(), torch.rand((4, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    assert torch.equal(SmallNoise(net, std=0.0)(x), net(x))


def test_small_noise_clips_on_request_only() -> None:
    class Least(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([x.flatten(1).amin(1), x.flatten(1).amax(1)], 1)

    x = torch.cat([grey(1) - 0.5, grey(1) + 0.5])
    free, held = (SmallNoise(Least().eval(), 0.1, clip)(x, draws_of(2)) for clip in (False, True))
    assert free[0, 0] < 0
    assert free[1, 1] > 1
    assert held[0, 0] == 0
    assert held[1, 1] == 1


def test_its_gradient_is_that_of_the_base_at_the_noisy_image() -> None:
    toy = halfspace(2)
    oracle = Oracle(SmallNoise(toy.model, 0.1), Threat(Linf(0.1), Access.GRADIENTS), Ledger(6), draws=draws_of(6))
    _, g = oracle.gradient(toy.x, lambda s, y: s[:, 0], toy.y)
    torch.testing.assert_close(g, (toy.model.w / 2).expand_as(g))


@pytest.mark.parametrize("std", [-0.1, math.inf, math.nan])
def test_small_noise_refuses_what_is_no_std(std: float) -> None:
    with pytest.raises(BadInput, match="std"):
        SmallNoise(Weighed(), std)


# ---------------------------------------------------------------- resize and pad


def test_sizes_and_offsets_are_uniform_and_the_border_is_zero() -> None:
    n, x = 6000, torch.ones(6000, 1, 32, 32)
    z = ResizePad(Weighed()).place(x, draws_of(n))
    assert z.shape == (n, 1, 36, 36)
    assert set(z.unique().tolist()) == {0.0, 1.0}
    tall, wide = z.amax((1, 3)).sum(1), z.amax((1, 2)).sum(1)
    assert torch.equal(tall, wide)
    assert torch.equal(z.sum((1, 2, 3)), tall * wide)  # a full square, and nothing else
    counts = torch.bincount(tall.long(), minlength=37)
    assert counts[33:36].sum() == n
    assert ((counts[33:36] - n / 3).abs() < 5 * math.sqrt(n * 2 / 9)).all()
    for axis in (2, 3):
        first = z.amax((1, 5 - axis)).argmax(1)
        for size in (33, 34, 35):
            seen = torch.bincount(first[tall == size], minlength=37 - size)
            share = (tall == size).sum() / (37 - size)
            assert len(seen) == 37 - size
            assert ((seen - share).abs() < 5 * share.sqrt()).all()


@pytest.mark.parametrize(("height", "width"), [(32, 32), (8, 8), (16, 40), (2, 2)])
def test_content_is_the_nearest_resize(height: int, width: int) -> None:
    x = torch.rand((40, 3, height, width), generator=torch.Generator().manual_seed(1)) + 0.1
    z = ResizePad(Weighed()).place(x, draws_of(40))
    for image, seen in zip(x, z, strict=True):
        rows, columns = seen.amax((0, 2)) > 0, seen.amax((0, 1)) > 0
        content = seen[:, rows][:, :, columns]
        tall, wide = content.shape[1:]
        down = [j * height // tall for j in range(tall)]
        across = [j * width // wide for j in range(wide)]
        assert torch.equal(content, image[:, down][:, :, across])
        assert height < tall < z.shape[2]
        assert width < wide < z.shape[3]


def test_it_agrees_with_torch_where_no_pixel_lies_on_an_edge() -> None:
    x = torch.rand((60, 1, 32, 32), generator=torch.Generator().manual_seed(1)) + 0.1
    z = ResizePad(Weighed()).place(x, draws_of(60))
    for size in (33, 35):  # no j·32/R is reference but 0
        k = int((z.amax((1, 3)) > 0).sum(1).eq(size).nonzero()[0])
        rows, columns = z[k].amax((0, 2)) > 0, z[k].amax((0, 1)) > 0
        assert torch.equal(z[k][:, rows][:, :, columns], F.interpolate(x[k : k + 1], (size, size))[0])


def test_resize_pad_passes_gradients_to_the_pixels() -> None:
    x = torch.rand((4, 3, 8, 8), generator=torch.Generator().manual_seed(0)).requires_grad_()
    (g,) = torch.autograd.grad(ResizePad(small_net())(x, draws_of(4)).square().sum(), x)
    assert torch.isfinite(g).all()
    assert (g.flatten(1) != 0).any(1).all()


def test_resize_pad_wants_images() -> None:
    with pytest.raises(BadInput, match="images"):
        ResizePad(nn.Linear(4, 2).eval())(torch.zeros(3, 4))
    with pytest.raises(BadInput, match="margin"):
        ResizePad(small_net(), margin=-1.0)


# ---------------------------------------------------------------- self-ensemble


def ensemble(passes: int, std: float = 0.3) -> SelfEnsemble:
    return SelfEnsemble(nn.Sequential(GaussianNoise(std), Weighed()).eval(), passes)


def test_variance_of_the_average_falls_with_the_passes() -> None:
    n = 4000
    p = {m: ensemble(m)(grey(n), draws_of(n)).exp()[:, 0].double() for m in (1, 4, 16)}
    for m in (4, 16):
        assert (p[1].var() / p[m].var()).item() == pytest.approx(m, rel=0.2)
        assert abs(p[m].mean() - p[1].mean()) < 5 * p[1].std() / math.sqrt(n)


def test_it_averages_probabilities_over_noise_in_every_layer() -> None:
    noise = [GaussianNoise(0.2), GaussianNoise(0.1)]
    net = nn.Sequential(noise[0], nn.Flatten(), nn.Linear(48, 5), noise[1]).eval()
    x, draws = grey(3), draws_of(3)
    found = SelfEnsemble(net, passes=2)(x, draws)
    total = torch.zeros(3, 5)
    for m in range(2):
        h = net[2]((x + 0.2 * draws.fold(m).fold(0).normal(*SHAPE)).flatten(1))
        total += (h + 0.1 * draws.fold(m).fold(1).normal(5)).softmax(1)
    torch.testing.assert_close(found, (total / 2).log())
    assert all(layer.draw is None for layer in noise)


def test_a_faint_noise_is_the_plain_network() -> None:
    net = nn.Sequential(GaussianNoise(1e-9), small_net()).eval()
    x = torch.rand((4, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(SelfEnsemble(net, passes=3)(x), net(x).log_softmax(1))


def test_layers_are_given_back_as_they_were_even_after_an_error() -> None:
    g = ensemble(2)
    layer = g.base.get_submodule("0")
    assert isinstance(layer, GaussianNoise)
    layer.draw = torch.zeros_like
    g(grey(2))
    assert layer.draw is torch.zeros_like
    with pytest.raises(BadInput):
        g(grey(2, 3, 5, 5))
    assert layer.draw is torch.zeros_like


def test_a_network_without_noise_is_refused() -> None:
    for net in (small_net(), nn.Sequential(GaussianNoise(0.0), small_net()).eval()):
        with pytest.raises(BadInput, match="noise layers"):
            SelfEnsemble(net)
    with pytest.raises(BadInput, match="passes"):
        ensemble(0)


def test_the_embedded_network_is_one_for_it() -> None:
    g = wrap("self_ensemble:passes=2", antiadv.models.load("compact:self_ensemble"))
    s = g(grey(2, 3, 32, 32), draws_of(2))
    assert s.shape == (2, 10)
    assert not torch.equal(s, g(grey(2, 3, 32, 32), draws_of(2, seed=1)))


# ---------------------------------------------------------------- rounded scores


class Given(nn.Module):
    """The pixels are the scores."""

    def forward(self, x: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize("digits", [0, 1, 2, 3, 5])
def test_rounding_keeps_every_label_and_shows_the_digits_alone(digits: int) -> None:
    s = torch.randn((5000, 10), generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 1.5, 5000)[:, None]
    found = RoundedScores(Given().eval(), digits)(s)
    assert torch.isfinite(found).all()
    assert torch.equal(found.argmax(1), s.argmax(1))
    last = 10.0**-digits
    others = torch.ones_like(s, dtype=torch.bool).scatter(1, s.argmax(1, keepdim=True), False)
    shown = s.softmax(1).round(decimals=digits).clamp_min(last / 2)
    torch.testing.assert_close(found[others], shown[others].log())
    assert ((found - shown.log())[~others] <= last / 9).all()


def test_what_lies_within_a_last_digit_looks_the_same() -> None:
    s = torch.tensor([[2.0, 1.0, 0.0], [2.001, 1.0, 0.0], [2.3, 1.0, 0.0]])
    found = RoundedScores(Given().eval())(s)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_its_gradient_is_zero_and_its_stand_in_is_the_base() -> None:
    toy = halfspace(2)
    g, ledger = RoundedScores(toy.model), Ledger(6)
    Oracle(g, Threat(Linf(0.1), Access.GRADIENTS), ledger).gradient(toy.x, ce, toy.y)
    assert ledger.zeros.tolist() == [1] * 6
    assert g.surrogate() is toy.model
    with pytest.raises(BadInput, match="digits"):
        RoundedScores(toy.model, digits=9)


# ---------------------------------------------------------------- the random numbers of the oracle


def oracle(g: nn.Module, n: int, batch: int = 256) -> Oracle:
    return Oracle(g, Threat(Linf(0.1), Access.INTERNALS), Ledger(n), Eager(batch), draws=draws_of(n, seed=5))


def test_noise_is_fresh_at_every_query_and_belongs_to_the_sample() -> None:
    g, x = SmallNoise(Weighed(), 0.1), grey(6)
    one = oracle(g, 6)
    first, second = one.scores(x), one.scores(x)
    assert len(torch.cat([first, second])[:, 0].unique()) == 12
    other = oracle(g, 6, batch=2)
    late = other[torch.tensor([4, 1])]
    assert torch.equal(late.scores(x[:2]), first[[4, 1]])
    assert torch.equal(late[torch.tensor([True, False])].labels(x[:1]), second[[4]].argmax(1))
    assert torch.equal(other[torch.tensor([0, 2, 3, 5])].scores(x[:4]), first[[0, 2, 3, 5]])


def test_candidates_sent_at_once_meet_the_noise_of_candidates_sent_in_turn() -> None:
    g, x = SmallNoise(Weighed(), 0.1), grey(4)
    one = oracle(g, 4)
    turns = torch.stack([one.scores(x), one.gradient(x, lambda s: s[:, 0])[0], one.jacobian(x)[0]], 1)
    assert torch.equal(oracle(g, 4, batch=5).scores(x.repeat_interleave(3, 0)), turns.flatten(0, 1))
    named = torch.arange(4).repeat_interleave(3)  # a sample named three times is three images of one sample
    assert torch.equal(oracle(g, 4)[named].scores(x.repeat_interleave(3, 0)), turns.flatten(0, 1))


def test_a_model_beside_rolls_dice_of_its_own() -> None:
    g, x = SmallNoise(Weighed(), 0.1), grey(4)
    one = oracle(g, 4)
    beside = one[torch.tensor([2, 0])].on_own_model(g)
    assert torch.equal(beside.scores(x[:2])[1:], oracle(g, 4)[torch.tensor([0])].on_own_model(g).scores(x[:1]))
    assert not torch.isin(beside.scores(x[:2])[:, 0], one.scores(x)[:, 0]).any()


# ---------------------------------------------------------------- the judge


def test_the_judge_counts_looks_and_the_majority_decides() -> None:
    wins = torch.tensor([[0, 1, 2, 0, 1], [0, 1, 1, 2, 1], [0, 0, 0, 0, 1], [0, 2, 2, 1, 1]])  # [looks, samples]
    seen = Predictions(F.one_hot(wins, 3).float(), torch.zeros(5, dtype=torch.int64), torch.zeros(5, dtype=torch.bool))
    y = torch.zeros(5, dtype=torch.int64)
    assert seen.right(y).tolist() == [4, 1, 1, 2, 0]
    assert seen.majority(y).tolist() == [True, False, False, False, False]
    assert seen.labels(y).tolist() == [0, 1, 2, 1, 1]  # half of the predictions is no majority


def test_records_of_a_randomised_defence() -> None:
    toy = halfspace(math.inf, n=8, distance=0.1)
    g = SmallNoise(toy.model, 0.5)  # the noise is as large as the score: some predictions are wrong
    outcome = antiadv.attack(g, toy.x, toy.y, "transfer", Linf(0.105))
    assert {r.draws for r in outcome.records} == {LOOKS}
    assert any(0 < r.clean_right < LOOKS for r in outcome.records)
    for r, fooled in zip(outcome.records, outcome.fooled.tolist(), strict=True):
        assert (r.clean == r.label) == right(r)
        assert fooled != (2 * r.attacked_right > LOOKS)
        if not right(r):  # not attacked, and judged twice with the same random numbers
            assert (r.attacked_right, r.attacked, r.distance) == (r.clean_right, r.clean, 0)
            assert not standing(r, Linf(0.105))


def noisy(looks: int) -> list[Record]:
    toy = halfspace(math.inf, n=8, distance=0.1)
    g = SmallNoise(toy.model, 0.5)
    return antiadv.attack(g, toy.x, toy.y, "transfer", Linf(0.105), looks=looks).records


@pytest.mark.parametrize("looks", [1, 2, 3, 25])
def test_the_judge_looks_as_often_as_it_is_told(looks: int) -> None:
    found = noisy(looks)
    for r in found:
        assert r.draws == looks
        assert max(r.clean_right, r.attacked_right) <= looks
        assert (r.clean == r.label) == (2 * r.clean_right > looks) == right(r)
        assert (r.attacked == r.label) == (2 * r.attacked_right > looks)
    if looks > 2:
        assert any(0 < r.clean_right < looks for r in found)


def test_more_looks_begin_with_those_of_fewer() -> None:
    """One more draw adds one prediction and changes no other."""
    counts = torch.tensor([[r.clean_right for r in noisy(n)] for n in range(1, 8)])
    assert set(counts.diff(dim=0).flatten().tolist()) == {0, 1}


def test_ten_looks_are_the_default() -> None:
    assert LOOKS == 10
    toy = halfspace(math.inf, n=8, distance=0.1)
    plain = antiadv.attack(SmallNoise(toy.model, 0.5), toy.x, toy.y, "transfer", Linf(0.105))
    assert plain.records == noisy(10) != noisy(11)


def test_the_passes_of_the_judge_are_those_of_its_looks() -> None:
    """Each of two images is judged `looks` times with the defence, and once bare."""
    toy = halfspace(math.inf, n=8)
    for looks in (1, 4):
        receipt = antiadv.attack(
            SmallNoise(toy.model, 0.0), toy.x, toy.y, "square:steps=1", Linf(0.01), queries=1, looks=looks
        ).receipt
        assert receipt.forwards == 8 * (1 + 2 * (looks + 1))


@pytest.mark.parametrize("looks", [1, 50])
@pytest.mark.parametrize("name", ["none", "anti_adversary", "rounded_scores"])
def test_a_deterministic_model_is_judged_once_for_any_looks(name: str, looks: int) -> None:
    toy = halfspace(math.inf, n=6)
    g = wrap(name, toy.model)
    asked = antiadv.attack(g, toy.x, toy.y, "pgd:steps=3", Linf(0.1), looks=looks)
    plain = antiadv.attack(g, toy.x, toy.y, "pgd:steps=3", Linf(0.1))
    assert {r.draws for r in asked.records} == {1}
    assert asked.records == plain.records
    assert asked.receipt.forwards == plain.receipt.forwards


@pytest.mark.parametrize("looks", [0, -3, 2.5, "10", None, True])
@pytest.mark.parametrize("name", ["none", "small_noise"])
def test_looks_that_are_no_number_of_times_are_refused(name: str, looks: object) -> None:
    toy = halfspace(math.inf, n=2)
    with pytest.raises(BadInput, match=f"looks.*{re.escape(repr(looks))}"):
        antiadv.attack(wrap(name, toy.model), toy.x, toy.y, "pgd", Linf(0.1), looks=looks)  # type: ignore[arg-type]


def test_a_shard_is_judged_by_the_looks_of_its_cell() -> None:
    """The records of a cell are those of `attack` with as many looks."""
    made, here = cell("square:steps=5", range(6), defence="small_noise:std=0.1", looks=4), resources()
    found = run_shard(Job(made, tuple(made.samples)), here).records
    images = here.data("cifar10")
    x, y = images.images(range(6)), images.labels(range(6))
    g = wrap("small_noise:std=0.1", here.model(MODEL))
    assert found == antiadv.attack(g, x, y, "square:steps=5", made.threat.ball, looks=4).records
    assert {r.draws for r in found} == {4}


@dataclass(frozen=True)
class Counted(Eager):
    """An engine with a precision of its own that counts requests with random numbers."""

    asked: list[int] = field(default_factory=list)

    def scores(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> Tensor:
        self.asked.append(draws is not None)
        return super().scores(model, z, draws=draws)

    def judge(self, model: nn.Module) -> Eager:
        return Eager(self.batch)


@pytest.mark.parametrize("looks", [1, 6])
def test_the_searching_precision_is_compared_over_as_many_looks(looks: int) -> None:
    toy, engine = halfspace(math.inf, n=4), Counted()
    threat = Threat(Linf(0.01), Access.INTERNALS)
    still = Odd(lambda oracle, x, y, ball, draws: x)
    g = SmallNoise(toy.model, 0.5)
    _, found, receipt = attack_and_judge(g, still, threat, toy.x, toy.y, torch.arange(4), 0, engine, looks=looks)
    assert sum(engine.asked) == 2 * looks
    assert {r.draws for r in found} == {looks}
    assert (receipt.agreement, receipt.again) == (1.0, 0)


@pytest.mark.parametrize("name", ["small_noise:std=0.2", "self_ensemble:passes=2", "resize_pad", "rounded_scores"])
@pytest.mark.parametrize("attack", ["pgd:steps=5", "square", "eot:samples=3,attack=(pgd:steps=3)"])
def test_records_are_the_same_in_any_batch_order_and_shard(name: str, attack: str) -> None:
    toy = halfspace(math.inf, n=6)
    g = wrap(name, nn.Sequential(GaussianNoise(0.2), nn.AdaptiveAvgPool2d(4), toy.model).eval())

    def run(rows: Tensor, batch: int, seed: int = 0) -> dict[int, object]:
        ball = Linf(0.97 * toy.distance)
        done = antiadv.attack(g, toy.x[rows], toy.y[rows], attack, ball, queries=40, ids=rows, batch=batch, seed=seed)
        return {r.sample: r for r in done.records}

    reference = run(torch.arange(6), 256)
    assert run(torch.arange(6), 1) == reference
    assert run(torch.tensor([3, 0, 5, 1, 4, 2]), 4) == reference
    assert run(torch.tensor([0, 1]), 2) | run(torch.tensor([2, 3, 4, 5]), 3) == reference
    if g.randomised:
        assert run(torch.arange(6), 256, seed=1) != reference


@pytest.mark.parametrize(
    ("outer", "todo"),
    [
        (AntiAdversary, r"SmallNoise\(AntiAdversary\(f\)\)"),
        (lambda f: RoundedScores(AntiAdversary(f)), "SmallNoise.* AntiAdversary"),
        (ResizePad, "SmallNoise.* ResizePad"),
        (lambda f: nn.Sequential(f).eval(), "SmallNoise.* Sequential"),
    ],
)
def test_a_randomised_defence_inside_another_module_is_refused(
    outer: Callable[[nn.Module], nn.Module], todo: str
) -> None:
    """Inside another module it would get no draws: a run could not be repeated, and the judge would ask once."""
    toy = halfspace(math.inf)
    with pytest.raises(BadInput, match=todo):
        antiadv.attack(outer(SmallNoise(toy.model)), toy.x, toy.y, "pgd:steps=3", Linf(0.09))


def test_noise_before_the_layer_is_the_same_in_every_run() -> None:
    toy = halfspace(math.inf)
    g = SmallNoise(AntiAdversary(toy.model, step_size=0.01), 0.1)
    first, second = (antiadv.attack(g, toy.x, toy.y, "pgd:steps=3", Linf(0.09)) for _ in range(2))
    assert first.records == second.records
    assert {r.draws for r in first.records} == {LOOKS}


def test_a_deterministic_model_is_looked_at_once() -> None:
    toy = halfspace(math.inf)
    plain, still = (
        antiadv.attack(g, toy.x, toy.y, "pgd:steps=3", Linf(0.09)) for g in (toy.model, SmallNoise(toy.model, 0.0))
    )
    assert {r.draws for r in plain.records} == {1}
    looked_often = [replace(r, draws=1, clean_right=1, attacked_right=1) for r in still.records]
    assert [replace(r, attacked_confidence=0, clean_confidence=0) for r in looked_often] == [
        replace(r, attacked_confidence=0, clean_confidence=0) for r in plain.records
    ]


def test_attack_defence_and_judge_roll_dice_of_their_own() -> None:
    """An attacker who knew the defence's random numbers could subtract its noise."""
    heard, held = list[Tensor](), list[Tensor]()

    class Heard(SmallNoise):
        def answer(self, x: Tensor, draws: Draws) -> Tensor:
            heard.append(draws.keys)
            return super().answer(x, draws)

    def look(oracle: Oracle, x: Tensor, y: Tensor, ball: object, draws: Draws) -> Tensor:
        for _ in range(3):
            oracle.labels(x)
        held.extend([draws.keys, *(draws.fold(t).keys for t in range(3))])
        return x

    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval().double()
    x = torch.rand(8, 1, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    antiadv.attack(Heard(net, std=1e-9), x, net(x).argmax(1), Odd(look), Linf(0.1))
    assert set(torch.cat(heard).tolist()).isdisjoint(torch.cat(held).tolist())
    assert len(torch.cat(heard).unique()) == (LOOKS + 3) * 8


class Flat(nn.Module):
    """A flattened head: images of 8 × 8 pixels and no others."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.head, self.fails = nn.Linear(3 * 64, 4), fails
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        if self.fails:
            raise RuntimeError("mine")
        s: Tensor = self.head(x.flatten(1))
        return s


def test_resize_pad_refuses_a_network_that_takes_one_size_alone() -> None:
    x = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    g = ResizePad(Flat())
    with pytest.raises(BadInput, match=r"8 × 8 .*10 × 10") as error:
        g(x)
    assert isinstance(error.value.__cause__, RuntimeError)
    with pytest.raises(BadInput, match="resize_pad"):
        antiadv.attack(g, x, torch.zeros(4, dtype=torch.int64), "square:steps=2", Linf(0.1))
    with pytest.raises(RuntimeError, match="mine"):
        ResizePad(Flat(fails=True))(x)


@pytest.mark.parametrize("make", [SmallNoise, ResizePad])
@pytest.mark.parametrize("value", ["a", None, True, -1, math.nan, 1e39, 10**400])
def test_options_that_are_no_numbers_are_refused(make: Callable[..., nn.Module], value: object) -> None:
    name = "std" if make is SmallNoise else "margin"
    with pytest.raises(BadInput):
        make(small_net(), **{name: value})


def test_flags_and_counts_are_what_they_say() -> None:
    with pytest.raises(BadSpec):
        SmallNoise(small_net(), clip="no")  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        RoundedScores(small_net(), digits=True)
