"""The judge does not trust attacks: it clamps their images to [0, 1], refuses NaN, and counts no images outside
the ball. An attack cannot change what it is judged by. Doubtful samples are rerun in float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv import L2, Linf
from antiadv.attacks._search.survivors import Survivors
from antiadv.core.ball import Ball
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager
from antiadv.core.errors import BadInput
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.defences.small_noise import SmallNoise
from antiadv.evaluation.cell import Receipt, Record
from antiadv.evaluation.judge import Predictions, _confidences, tidy
from antiadv.evaluation.outcome import Outcome
from antiadv.evaluation.shard import attack_and_judge
from tests.engine.probes import Odd, same
from tests.toys import halfspace

TOY = halfspace(math.inf, n=6, distance=0.1)
Do = Callable[[Oracle, Tensor, Tensor, Ball, Draws], Tensor]
Judged = tuple[Tensor, list[Record], Receipt]


def across(x: Tensor, y: Tensor, by: float) -> Tensor:
    """Images moved straight over the boundary."""
    return x - by * (1.0 - 2.0 * y).view(-1, 1, 1, 1) * TOY.model.w.sign()


def judged(do: Do, ball: Ball = Linf(0.125)) -> Outcome:
    return antiadv.attack(TOY.model, TOY.x, TOY.y, Odd(do), ball)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_images_with_nan_or_infinity_are_refused_and_named(value: float) -> None:
    def attack(oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        z = across(x, y, 0.12)
        z[1, 0, 0, 0] = value  # one pixel of one image
        return z

    with pytest.raises(BadInput, match="sample 1"):
        judged(attack)


def test_images_outside_the_box_are_judged_inside_it() -> None:
    outcome = judged(lambda oracle, x, y, ball, draws: across(x, y, 5.0), Linf(1.0))
    assert outcome.images.min() == 0
    assert outcome.images.max() == 1
    assert max(r.distance for r in outcome.records) <= 1


def test_an_image_outside_the_ball_is_no_success() -> None:
    far = judged(lambda oracle, x, y, ball, draws: across(x, y, 0.13))
    assert [r.attacked != r.label for r in far.records] == [True] * 6
    assert not far.fooled.any()
    assert far.robust_accuracy == 1
    assert [r.distance for r in far.records] == pytest.approx([0.13] * 6)
    assert judged(lambda oracle, x, y, ball, draws: across(x, y, 0.125)).fooled.all()


def test_the_distance_is_measured_in_the_norm_of_the_threat() -> None:
    z = TOY.x + 0.01
    outcome = judged(lambda oracle, x, y, ball, draws: z, L2(1.0))
    assert [r.distance for r in outcome.records] == pytest.approx([0.01 * math.sqrt(48)] * 6, rel=1e-5)


def test_an_attack_cannot_change_what_it_is_judged_by() -> None:
    def vandal(oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        z = across(x, y, 0.5)
        x.copy_(z)  # pretends that nothing moved
        y.fill_(3)
        draws.keys.fill_(0)
        return z

    x, y = TOY.x.clone(), TOY.y.clone()
    outcome = judged(vandal)
    assert not outcome.fooled.any()
    assert [r.label for r in outcome.records] == TOY.y.tolist()
    assert min(r.distance for r in outcome.records) > 0.4
    assert same(TOY.x, x)
    assert same(TOY.y, y)


def test_the_cost_is_read_from_the_ledger() -> None:
    def ask(oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        oracle.labels(x)
        rows = torch.tensor([1, 3])
        oracle[rows].labels(x[rows].repeat_interleave(2, 0))
        return x

    assert [r.queries for r in judged(ask).records] == [1, 3, 1, 3, 1, 1]
    assert [r.gradients for r in judged(ask).records] == [0] * 6


def test_images_of_another_shape_are_refused() -> None:
    with pytest.raises(BadInput, match=r"\(6, 3, 4, 4\); found \(1, 3, 4, 4\)"):
        judged(lambda oracle, x, y, ball, draws: x[:1])


def test_a_float64_answer_is_judged_as_the_images_are() -> None:
    outcome = judged(lambda oracle, x, y, ball, draws: across(x, y, 0.12).double())
    assert outcome.images.dtype == torch.float32
    assert outcome.fooled.all()


def test_tidy_is_idempotent_and_keeps_good_images() -> None:
    generator = torch.Generator().manual_seed(0)
    x, z = torch.rand(5, 2, 3, generator=generator), torch.rand(5, 2, 3, generator=generator) * 2 - 0.5
    ids = torch.arange(5)
    once = tidy(x, z, ids)
    assert same(tidy(x, once, ids), once)
    assert same(tidy(z.clamp(0, 1), x, ids), x)


@dataclass(frozen=True)
class Rough(Eager):
    """Adds a bias to the score of the second class, so that the search sees some successes too early."""

    bias: float = 0.01

    def scores(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> Tensor:
        s = super().scores(model, z, draws=draws)
        return s + self.bias * torch.eye(s.shape[1])[1]

    def judge(self, model: nn.Module) -> Eager:
        return Eager(self.batch)


class Near(Odd):
    """An attack that minimises the distance."""

    minimal = True


def test_a_success_that_the_judge_rejects_is_rerun_in_float32() -> None:
    asked = []

    def attack(oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        """Creeps towards the boundary until a label changes."""
        asked.append(len(x))
        z, step = x.clone(), 0.0
        while oracle.left().min() > 0 and (still := oracle.labels(z) == y).any():
            step += 0.004
            z[still] = across(x, y, step)[still]
        return z

    def run(engine: Eager, ball: Ball = Linf(0.125), kind: type[Odd] = Odd) -> Judged:
        asked.clear()
        threat, ids = Threat(ball, Access.LABELS, 100), torch.arange(len(TOY.x))
        return attack_and_judge(TOY.model, kind(attack), threat, TOY.x, TOY.y, ids, 0, engine)

    _, plain, receipt = run(Eager())
    assert receipt.again == 0
    assert asked == [6]
    _, found, receipt = run(Rough())
    assert 0 < receipt.again < 6, "search and judge differ for one of the two classes"
    assert asked == [6, receipt.again]
    assert receipt.agreement == pytest.approx(1 - receipt.again / 12)
    for rough, exact in zip(found, plain, strict=True):
        assert rough.attacked == exact.attacked != rough.label
    again = [r for r, exact in zip(found, plain, strict=True) if r == exact]
    assert len(again) >= receipt.again, "only the second search is recorded, with its queries"
    _, _, receipt = run(Rough(), Linf(0.01))
    assert receipt.again == 0, "an image outside the ball is no success"
    _, found, receipt = run(Rough(), Linf(0.01), Near)
    assert 0 < receipt.again < 6, "an attack that minimises the distance is read at other radii too"
    assert [(r.attacked, r.distance) for r in found] == [(r.attacked, r.distance) for r in plain]


@pytest.mark.parametrize(("kind", "second"), [(Odd, []), (Near, [3])])
def test_a_search_that_was_told_of_the_rejection_is_not_rerun(kind: type[Odd], second: list[int]) -> None:
    """It already spent its budget after the rejection. An attack that minimises the distance is rerun all the same,
    because it followed the wrong boundary."""
    asked = []

    def attack(oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        asked.append(len(x))
        live, z = Survivors(oracle, x, y, draws), across(x, y, 0.0999)
        while len(live):
            live.offer(across(live.x, live.y, 0.0999), oracle[live.rows].scores(z[live.rows]))
        return live.images()

    def run(engine: Eager) -> Judged:
        asked.clear()
        threat, ids = Threat(Linf(0.125), Access.SCORES, 5), torch.arange(len(TOY.x))
        return attack_and_judge(TOY.model, kind(attack), threat, TOY.x, TOY.y, ids, 0, engine)

    _, plain, _ = run(Eager())
    _, found, receipt = run(Rough())
    assert asked == [6, *second]
    assert receipt.again == sum(second)
    assert receipt.checks == (0 if second else 15), "five images of each of three samples"
    assert receipt.agreement == pytest.approx(1 - 3 / 12)
    assert found == plain, "all of them stand, with the full budget spent"


def test_another_image_than_the_rejected_one_is_rerun() -> None:
    """The rejection was for another image."""
    asked = []

    def attack(oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        asked.append(len(x))
        z = across(x, y, 0.0998)
        live = Survivors(oracle, x, y, draws)
        live.offer(z, oracle.scores(z))
        return across(x, y, 0.0999)

    threat, ids = Threat(Linf(0.125), Access.SCORES, 5), torch.arange(len(TOY.x))
    _, _, receipt = attack_and_judge(TOY.model, Odd(attack), threat, TOY.x, TOY.y, ids, 0, Rough())
    assert asked == [6, 3]
    assert receipt.again == 3


def test_after_a_rerun_the_judge_asks_as_often_as_before() -> None:
    tries = iter((0.0999, 0.12))

    def attack(oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        return across(x, y, next(tries))

    g, threat = SmallNoise(TOY.model, 0.0), Threat(Linf(0.125), Access.LABELS)
    _, found, receipt = attack_and_judge(g, Odd(attack), threat, TOY.x, TOY.y, torch.arange(6), 0, Rough(), looks=3)
    assert 0 < receipt.again < 6, "search and judge differ for one of the two classes"
    assert sorted(r.attacked_right for r in found) == [0] * receipt.again + [3] * (6 - receipt.again)
    assert {(r.draws, r.clean_right) for r in found} == {(3, 3)}


def test_a_rerun_replaces_the_cost_of_the_first_search() -> None:
    """Each sample stops by itself here, so that the first search of the doubtful samples was shorter."""

    def attack(oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        z, step, still = x.clone(), 0.0, torch.arange(len(x))
        while len(still := still[oracle[still].labels(z[still]) == y[still]]):
            step += 0.004
            z[still] = across(x, y, step)[still]
        return z

    def run(engine: Eager) -> Judged:
        threat, ids = Threat(Linf(0.125), Access.LABELS, 100), torch.arange(len(TOY.x))
        return attack_and_judge(TOY.model, Odd(attack), threat, TOY.x, TOY.y, ids, 0, engine)

    _, plain, _ = run(Eager())
    _, found, receipt = run(Rough())
    doubtful = [r for r in found if r.label == 0]
    assert len(doubtful) == receipt.again == 3
    assert doubtful == [r for r in plain if r.label == 0]


def test_confidences_are_means_of_probabilities() -> None:
    seen = Predictions(torch.tensor([[[4.0, 0.0]], [[0.0, 0.0]]]), torch.tensor([0]), torch.tensor([False]))
    (top,), (truth,) = _confidences(seen, torch.tensor([0]))
    assert top == truth == pytest.approx((0.98201 + 0.5) / 2, abs=1e-3)
