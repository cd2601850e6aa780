"""The contract of every entry of ATTACKS, on toys whose distance to the boundary is known."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv.attacks import ATTACKS, parse
from antiadv.core import spec
from antiadv.core.attack import Attack
from antiadv.core.ball import Ball
from antiadv.core.defence import base_of
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager
from antiadv.core.errors import AccessDenied
from antiadv.core.ledger import Ledger
from antiadv.core.losses import Loss
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.evaluation.automatic import LOSES_NOTHING, MADE_OF_OTHERS
from antiadv.evaluation.shard import attack_and_judge
from tests.toys import Spy, Toy, halfspace, small_net, sphere

CASES = [(name, p) for name in ATTACKS for p in sorted(parse(name).norms)]
# How far beyond the true distance an attack must succeed where 1.25 times is unfair to it. Square's proposals in L2
# are pairs of mounds and fit a plane badly: in 2,000 queries the authors' own code comes no further than half way.
REACH = {("square", 2.0): 2.5}
everywhere = pytest.mark.parametrize(("name", "p"), CASES)


def reach(name: str, p: float) -> float:
    return REACH.get((name, p), 1.25)


def attacked(attack: Attack, toy: Toy, ball: Ball, queries: int | None = None, **more: object) -> antiadv.Outcome:
    return antiadv.attack(toy.model, toy.x, toy.y, attack, ball, queries=queries, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ATTACKS)
def test_the_precision_that_auto_stands_for_is_stated(name: str) -> None:
    assert (name in LOSES_NOTHING) != (name in MADE_OF_OTHERS), "give it a line in evaluation/automatic.py"


@everywhere
@pytest.mark.parametrize("toy", [halfspace, sphere])
def test_succeeds_beyond_the_true_distance_and_stays_in_ball_and_box(name: str, p: float, toy: object) -> None:
    known: Toy = toy(p)  # type: ignore[operator]
    ball = Ball(p, reach(name, p) * known.distance)
    outcome = attacked(parse(name), known, ball)
    assert outcome.fooled.all()
    assert (ball.distance(known.x, outcome.images) <= ball.reach).all()
    assert 0 <= outcome.images.min() <= outcome.images.max() <= 1
    assert outcome.images.shape == known.x.shape


@everywhere
@pytest.mark.parametrize("toy", [halfspace, sphere])
def test_fails_inside_the_true_distance(name: str, p: float, toy: object) -> None:
    known: Toy = toy(p)  # type: ignore[operator]
    outcome = attacked(parse(name), known, Ball(p, 0.8 * known.distance), queries=200)
    assert not outcome.fooled.any()
    assert outcome.robust_accuracy == 1


@everywhere
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_it_finds_as_much_and_no_more(name: str, p: float) -> None:
    toy = halfspace(p)
    there = Toy(toy.model.cuda(), toy.x.cuda(), toy.y.cuda(), toy.distance)
    ball = Ball(p, reach(name, p) * toy.distance)
    outcome = attacked(parse(name), there, ball)
    assert outcome.images.is_cuda
    assert outcome.fooled.all()
    assert (ball.distance(there.x, outcome.images) <= ball.reach).all()
    assert not attacked(parse(name), there, Ball(p, 0.8 * toy.distance), queries=400).fooled.any()


@everywhere
@pytest.mark.parametrize("queries", [1, 2, 7, 60])
def test_charges_what_a_spying_model_saw_and_never_passes_the_budget(name: str, p: float, queries: int) -> None:
    toy = halfspace(p)
    spy = Spy(toy.model)
    outcome = queries_of(parse(name), spy, toy, Ball(p, 1.05 * toy.distance), queries)
    assert sum(outcome) == spy.seen
    assert max(outcome) <= queries


def queries_of(
    attack: Attack, model: Spy, toy: Toy, ball: Ball, queries: int | None, targeted: bool = False
) -> list[int]:
    """The queries of each sample when the attack runs without a judge."""
    ledger = Ledger(len(toy.x), queries)
    oracle = Oracle(model, Threat(ball, attack.access, queries, targeted), ledger, Eager(4))
    attack(oracle, toy.x, toy.y, ball, Draws.of(0, torch.arange(len(toy.x))))
    return ledger.queries.tolist()


class Nearer(nn.Module):
    """A classifier whose boundary is nearer by so much, measured in m."""

    def __init__(self, base: nn.Module, by: float) -> None:
        super().__init__()
        self.base, self.by = base, torch.tensor([0.0, by, 0.0, 0.0])

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self.base(x) + self.by
        return s


class Rounding:
    """An engine for which the boundary seems nearer, with a judge that sees it where it is."""

    def __init__(self, by: float) -> None:
        self.by, self.exact, self.sent = by, Remembering(), set[bytes]()

    def scores(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> Tensor:
        self.sent |= as_bytes(z)
        return Eager(4).scores(Nearer(model, self.by), z)

    def gradient(
        self, model: nn.Module, z: Tensor, loss: Loss, *targets: Tensor, draws: Draws | None = None
    ) -> tuple[Tensor, Tensor]:
        self.sent |= as_bytes(z)
        return Eager(4).gradient(Nearer(model, self.by), z, loss, *targets)

    def jacobian(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> tuple[Tensor, Tensor]:
        self.sent |= as_bytes(z)
        return Eager(4).jacobian(Nearer(model, self.by), z)

    def judge(self, model: nn.Module) -> Remembering:
        return self.exact


class Remembering(Eager):
    """An engine that remembers the images it was given."""

    def __init__(self) -> None:
        super().__init__(4)
        object.__setattr__(self, "shown", set())

    def scores(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> Tensor:
        self.shown.update(as_bytes(z))  # type: ignore[attr-defined]
        return super().scores(model, z)


def as_bytes(z: Tensor) -> set[bytes]:
    return {row.numpy().tobytes() for row in z}


@pytest.mark.slow
@everywhere
@pytest.mark.parametrize("share", [0.995, None], ids=["between", "beyond"])
def test_an_engine_that_rounds_ends_no_search_too_early(name: str, p: float, share: float | None) -> None:
    """For the engine the boundary is a hundredth nearer. In a ball between the two boundaries no image fools the judge.
    In a ball beyond both every sample must fall, without a rerun. Only images that were charged may be confirmed.
    """
    toy, attack = sphere(p), parse(name)
    engine, ball = Rounding(1 - 0.99**2), Ball(p, (share or reach(name, p)) * toy.distance)
    ledger = Ledger(len(toy.x), 3000)
    oracle = Oracle(toy.model, Threat(ball, attack.access, 3000), ledger, engine)
    z = attack(oracle, toy.x, toy.y, ball, Draws.of(0, torch.arange(len(toy.x))))
    assert engine.exact.shown <= engine.sent  # type: ignore[attr-defined]
    inside = ball.distance(toy.x, z) <= ball.reach
    fooled = (toy.model(z).argmax(1) != toy.y) & inside
    assert fooled.all() == (share is None)
    assert fooled.any() == (share is None)
    parted = (Nearer(toy.model, engine.by)(z).argmax(1) != toy.y) & (toy.model(z).argmax(1) == toy.y)
    believed = parted & inside
    if not ledger.queries.any() or name == "go_on":
        return  # it never asks the model under attack, and is rerun; or it takes no answer for a success
    assert (ledger.checks[believed] > 0).all(), "the judge rejected it, and the search went on"
    sure = believed.any() or attack.minimal or (name, p) == ("nes", math.inf)  # which does not come as near
    assert share is None or sure, "else nothing is tested here"
    unheard = parted if attack.minimal else believed & ~oracle.was_rejected(z)
    led = attack.minimal or name == "adaptive"  # by answers about the boundary itself; the latter ends with RayS
    assert led or not unheard.any(), "and of what it ended with it knew"
    *_, receipt = attack_and_judge(
        toy.model, attack, Threat(ball, attack.access, 3000), toy.x, toy.y, torch.arange(len(toy.x)), 0, engine
    )
    assert receipt.again == int(unheard.sum()), "who did not is searched again"
    assert receipt.checks >= (len(toy.x) if share is None else 0)


# Between the engine's boundary and the judge's, the engine's answers may mislead a search. FAB's planes lead back to
# the engine's boundary, so FAB is rerun. Two label-based attacks may end outside the ball, and miss a sample that is as
# near to the boundary as the engine's error, though it falls in float32.
AGAIN, LOST = {"fab"}, {"boundary", "hop_skip_jump"}


@pytest.mark.parametrize(("name", "p"), [*(c for c in CASES if c[0] not in LOST), ("simba:rule=stp", 2.0)])
def test_from_where_an_engine_rounds_the_way_goes_on_to_what_fools(name: str, p: float) -> None:
    """x lies between the two boundaries, so the engine is wrong about it, and takes the first step for a success."""
    toy, attack = sphere(p), parse(name)
    x, ball, engine = between(toy, p, 0.995), Ball(p, 0.02 * toy.distance), Rounding(1 - 0.99**2)
    assert (engine.scores(toy.model, x).argmax(1) != toy.y).all()
    z, _, receipt = attack_and_judge(
        toy.model, attack, Threat(ball, attack.access, 3000), x, toy.y, torch.arange(len(x)), 0, engine
    )
    assert (ball.distance(x, z) <= ball.reach).all()
    assert (toy.model(z).argmax(1) != toy.y).all()
    assert name in AGAIN or receipt.again == 0


def between(toy: Toy, p: float, share: float) -> Tensor:
    """Images at a distance from the sphere's centre, as a share of the way to its boundary."""
    return toy.x + share * toy.distance / (1 if p == math.inf else math.sqrt(toy.x[0].numel()))


@pytest.mark.parametrize(("name", "p"), [case for case in CASES if parse(case[0]).access is Access.LABELS])
def test_without_a_radius_an_attack_on_labels_ends_where_the_judge_agrees(name: str, p: float) -> None:
    """The engine sees the boundary a hundredth too near, so the attack goes back to an image that it kept before."""
    toy, attack, ball = sphere(p), parse(name), Ball(p, math.inf)
    z, found, receipt = attack_and_judge(
        toy.model, attack, Threat(ball, attack.access, 600), toy.x, toy.y, torch.arange(len(toy.x)), 0, Rounding(0.02)
    )
    assert (toy.model(z).argmax(1) != toy.y).all()
    assert (receipt.again, receipt.checks > len(toy.x)) == (0, True)
    assert max(r.queries for r in found) <= 600


@pytest.mark.slow
@pytest.mark.parametrize(("name", "p"), [case for case in CASES if parse(case[0]).minimal])
@pytest.mark.parametrize("share", [0.0, 0.995], ids=["centre", "between"])
def test_without_a_radius_an_engine_that_rounds_leaves_nothing_standing(name: str, p: float, share: float) -> None:
    """Only x itself ends such a search, so most do not confirm. Samples that the judge rejects at the end are rerun.
    From between the two boundaries x fools already, as the engine has it."""
    toy, attack, ball = sphere(p), parse(name), Ball(p, math.inf)
    x = between(toy, p, share)
    assert (toy.model(x).argmax(1) == toy.y).all()
    z, _, receipt = attack_and_judge(
        toy.model, attack, Threat(ball, attack.access, 3000), x, toy.y, torch.arange(len(x)), 0, Rounding(1 - 0.99**2)
    )
    assert (toy.model(z).argmax(1) != toy.y).all()
    assert share == 0 or receipt.again == len(x), "else nothing is tested here"


@everywhere
def test_needs_only_the_access_that_it_declares(name: str, p: float) -> None:
    toy, attack = halfspace(p), parse(name)
    attacked(attack, toy, Ball(p, 0.1), queries=50, access=attack.access)
    if attack.access > Access.LABELS:
        with pytest.raises(AccessDenied):
            attacked(attack, toy, Ball(p, 0.1), access=Access(attack.access - 1))


@everywhere
def test_same_result_in_any_batch_order_and_shard(name: str, p: float) -> None:
    toy, attack = halfspace(p, n=6), parse(name)
    ball = Ball(p, 1.05 * toy.distance)

    def run(rows: Tensor, batch: int) -> dict[int, object]:
        part = Toy(toy.model, toy.x[rows], toy.y[rows], toy.distance)
        return {r.sample: r for r in attacked(attack, part, ball, 120, ids=rows, batch=batch).records}

    reference = run(torch.arange(6), 256)
    assert run(torch.arange(6), 1) == reference
    assert run(torch.tensor([3, 0, 5, 1, 4, 2]), 4) == reference
    assert run(torch.tensor([0, 1]), 2) | run(torch.tensor([2, 3, 4, 5]), 3) == reference


@everywhere
def test_same_seed_same_images_other_seed_other_images(name: str, p: float) -> None:
    toy, attack = sphere(p, shape=(3, 8, 8)), parse(name)  # from the centre all directions are equal
    ball = Ball(p, 0.9 * toy.distance)

    def images(seed: int) -> Tensor:
        return attacked(attack, toy, ball, 120, seed=seed).images

    first = images(0)
    assert torch.equal(images(0), first)
    assert not torch.equal(images(1), first)


@everywhere
def test_leaves_everything_untouched(name: str, p: float) -> None:
    net = small_net(classes=4)
    x = torch.rand((3, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    y = net(x).argmax(1)
    before = copy.deepcopy((x, y, net.state_dict()))
    dice = torch.random.get_rng_state()
    antiadv.attack(net, x, y, parse(name), Ball(p, 0.05), queries=30)
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])
    assert all(torch.equal(a, b) for a, b in zip(before[2].values(), net.state_dict().values(), strict=True))
    assert all(q.grad is None and q.requires_grad for q in net.parameters())
    assert not any(m.training for m in net.modules())
    assert not any(m._forward_hooks for m in net.modules())
    assert torch.equal(torch.random.get_rng_state(), dice)


@everywhere
@pytest.mark.parametrize(("n", "shape"), [(1, (1, 4, 4)), (3, (3, 3, 6)), (1, (2, 7, 2))])
def test_one_channel_non_square_and_single_images(name: str, p: float, shape: tuple[int, ...], n: int) -> None:
    toy = halfspace(p, n=n, shape=shape)
    outcome = attacked(parse(name), toy, Ball(p, reach(name, p) * toy.distance))
    assert outcome.fooled.all()


@everywhere
def test_no_images_at_all(name: str, p: float) -> None:
    toy = halfspace(p)
    empty = Toy(toy.model, toy.x[:0], toy.y[:0], toy.distance)
    outcome = attacked(parse(name), empty, Ball(p, 0.1))
    assert outcome.images.shape == (0, 3, 4, 4)
    assert outcome.records == []


@everywhere
def test_float64_in_float64_out(name: str, p: float) -> None:
    toy = halfspace(p)
    outcome = attacked(parse(name), Toy(toy.model, toy.x.double(), toy.y, 0), Ball(p, reach(name, p) * toy.distance))
    assert outcome.images.dtype == torch.float64
    assert outcome.fooled.all()


@everywhere
def test_reaches_a_target(name: str, p: float) -> None:
    toy = halfspace(p)
    aimed = Toy(toy.model, toy.x, 1 - toy.y, toy.distance)
    assert attacked(parse(name), aimed, Ball(p, reach(name, p) * toy.distance), targeted=True).fooled.all()
    assert not attacked(parse(name), aimed, Ball(p, 0.8 * toy.distance), queries=200, targeted=True).fooled.any()


@everywhere
def test_a_model_with_nothing_to_climb_is_survived(name: str, p: float) -> None:
    class Flat(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([x.flatten(1).sum(1) * 0 + 3, x.flatten(1).sum(1) * 0], 1)

    x = torch.full((2, 3, 4, 4), 0.5)
    outcome = antiadv.attack(Flat().eval(), x, torch.zeros(2, dtype=torch.int64), parse(name), Ball(p, 0.1), queries=50)
    assert not outcome.fooled.any()
    assert torch.isfinite(outcome.images).all()


@pytest.mark.parametrize("name", ATTACKS)
def test_is_a_value(name: str) -> None:
    attack = parse(name)
    assert parse(spec.text(attack)) == attack
    assert pickle.loads(pickle.dumps(attack)) == attack
    assert hash(copy.deepcopy(attack)) == hash(attack)
    assert attack.norms <= {2, math.inf}
    assert isinstance(attack, Attack)


@everywhere
def test_success_is_sticky_and_the_fooled_are_not_asked_again(name: str, p: float) -> None:
    """Well beyond the distance every sample falls, and its queries do not grow with the budget."""
    toy = halfspace(p)
    ball = Ball(p, 1.28 * reach(name, p) * toy.distance)
    spent = [[r.queries for r in attacked(parse(name), toy, ball, q).records] for q in (2000, 4000)]
    assert spent[0] == spent[1]


def check(name: str, p: float) -> None:
    """The contract for a variant that is no entry of ATTACKS."""
    for toy in (halfspace, sphere):
        test_succeeds_beyond_the_true_distance_and_stays_in_ball_and_box(name, p, toy)
        test_fails_inside_the_true_distance(name, p, toy)
    for queries in (1, 2, 7, 60):
        test_charges_what_a_spying_model_saw_and_never_passes_the_budget(name, p, queries)
    test_same_result_in_any_batch_order_and_shard(name, p)
    test_same_seed_same_images_other_seed_other_images(name, p)
    test_one_channel_non_square_and_single_images(name, p, (1, 3, 6), 3)
    test_no_images_at_all(name, p)
    test_float64_in_float64_out(name, p)
    test_reaches_a_target(name, p)
    test_a_model_with_nothing_to_climb_is_survived(name, p)
    test_success_is_sticky_and_the_fooled_are_not_asked_again(name, p)
    test_is_a_value(name)


def test_the_bare_classifier_is_its_own_base() -> None:
    toy = halfspace(2)
    assert base_of(toy.model) is toy.model
    assert base_of(Spy(Spy(toy.model))) is toy.model
