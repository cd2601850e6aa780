"""Cascades: only survivors go on, one budget, the ball is checked between stages; and AutoAttack."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv.attacks import full_text, parse
from antiadv.attacks.adaptive.eot import EOT
from antiadv.attacks.adaptive.transfer import Transfer
from antiadv.attacks.cascade import Cascade
from antiadv.attacks.score_based.square import Square
from antiadv.attacks.white_box.apgd import APGD
from antiadv.attacks.white_box.autoattack import VERSIONS, Autoattack, stages
from antiadv.attacks.white_box.fab import FAB
from antiadv.attacks.white_box.pgd import PGD
from antiadv.core import spec
from antiadv.core.attack import Attack
from antiadv.core.ball import Ball, Linf
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager
from antiadv.core.errors import BadSpec
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.defences.small_noise import SmallNoise
from antiadv.evaluation.shard import attack_and_judge
from tests.toys import Spy, halfspace, small_net

seen: list[tuple[str, list[float]]] = []


@dataclass(frozen=True)
class Push:
    """Moves the images with these marks (their last pixel) straight towards the boundary, and asks `asks` times."""

    name: str = "push"
    by: float = 0.0
    marks: tuple[int, ...] = ()
    asks: int = 0

    access: ClassVar[Access] = Access.LABELS
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = True
    edition: ClassVar[int] = 1

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        mark = (x[:, 2, 3, 3] * 1000).round()
        seen.append((self.name, mark.tolist()))
        for _ in range(self.asks):
            can = oracle.left() > 0
            oracle[can].labels(x[can])
        out = (2.0 * y - 1).view(-1, 1, 1, 1) * TOY.model.w.sign() * self.by
        moves = torch.isin(mark, torch.tensor(self.marks, dtype=mark.dtype)).view(-1, 1, 1, 1)
        return torch.where(moves, x + out, x)


TOY = halfspace(math.inf, n=6)
X = TOY.x.clone()
X[:, 2, 3, 3] = 0.5 + torch.arange(6) / 1000  # marks 500 … 505; the change of margin is far below the distance
MARKS = tuple(range(500, 506))


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    seen.clear()


def attacked(*stages: object, eps: float, queries: int | None = None) -> antiadv.Outcome:
    return antiadv.attack(TOY.model, X, TOY.y, Cascade(tuple(stages)), Linf(eps), queries=queries)  # type: ignore[arg-type]


def test_each_stage_sees_the_survivors_only() -> None:
    first, second, third = Push("a", 0.15, MARKS[1:3]), Push("b", 0.15, MARKS[:2]), Push("c", 0.15, MARKS[4:5])
    outcome = attacked(first, second, third, eps=0.16)
    assert seen == [("a", [500, 501, 502, 503, 504, 505]), ("b", [500, 503, 504, 505]), ("c", [503, 504, 505])]
    assert outcome.fooled.tolist() == [True, True, True, False, True, False]


def test_one_query_tells_what_a_stage_came_to_and_none_after_the_last() -> None:
    outcome = attacked(Push("a", 0.15, MARKS[:2], 3), Push("b", asks=5), Push("c", asks=7), eps=0.16)
    assert [r.queries for r in outcome.records] == [4, 4, *[4 + 6 + 7] * 4]


def test_who_has_spent_the_budget_enters_no_further_stage() -> None:
    outcome = attacked(Push("a", asks=3), Push("b", 0.15, MARKS, 1), eps=0.16, queries=4)
    assert seen == [("a", list(MARKS))]  # three questions and the test; none is left for b
    assert {r.queries for r in outcome.records} == {4}
    seen.clear()
    outcome = attacked(Push("a", 0.15, MARKS, 4), Push("b"), eps=0.16, queries=4)
    assert seen == [("a", list(MARKS))]
    assert outcome.fooled.all()  # an image that was not tested still reaches the judge


def test_an_image_outside_the_ball_is_no_success() -> None:
    outcome = attacked(Push("far", 0.3, MARKS), Push("near", 0.12, MARKS[:4]), eps=0.15)
    assert [name for name, _ in seen] == ["far", "near"]
    assert outcome.fooled.tolist() == [True] * 4 + [False] * 2


def test_without_a_radius_the_closest_of_all_stages_is_kept() -> None:
    outcome = attacked(Push("a", 0.2, MARKS), Push("b", 0.3, MARKS[:2]), Push("c", 0.15, MARKS[2:4]), eps=math.inf)
    assert [len(marks) for _, marks in seen] == [6, 6, 6]
    assert outcome.fooled.all()
    assert [round(r.distance, 3) for r in outcome.records] == [0.2, 0.2, 0.15, 0.15, 0.2, 0.2]
    assert {r.queries for r in outcome.records} == {3}


class Leaning(Eager):
    """An engine that overrates or underrates the true class; the judge's engine does not."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def scores(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> Tensor:
        s = super().scores(model, z, draws=draws)
        return s + self.by * torch.nn.functional.one_hot(TOY.y[0], s.shape[1])

    def judge(self, model: nn.Module) -> Eager:
        return Eager()


@pytest.mark.parametrize("by", [100.0, -100.0])
@pytest.mark.parametrize("eps", [0.16, math.inf])
def test_the_judge_says_what_a_stage_came_to_whatever_the_engine_believes(by: float, eps: float) -> None:
    """The first stage fools the first two samples. A wrong engine would say none, or all."""
    rows = (TOY.y == TOY.y[0]).nonzero().squeeze(1)
    x, y, marks = X[rows], TOY.y[rows], [MARKS[row] for row in rows.tolist()]
    assert len(rows) == 3
    oracle = Oracle(TOY.model, Threat(Linf(eps), Access.LABELS), ledger := Ledger(3), Leaning(by))
    found = Cascade((Push("a", 0.15, tuple(marks[:2])), Push("b")))(oracle, x, y, Linf(eps), Draws.of(0, rows))
    assert seen == [("a", marks), ("b", marks[2:] if eps < math.inf else marks)]
    assert (found != x).flatten(1).any(1).tolist() == [True, True, False]
    stages = 1 if eps < math.inf else 2
    assert ledger.queries.tolist() == ledger.checks.tolist() == [stages] * 3


def test_through_eot_no_unlucky_draw_gives_up_what_fools_most_of_them() -> None:
    """The first stage's image fools five draws of six, the second's none."""
    push = Cascade((Push("a", 0.15, MARKS), Push("b")))

    def standing(attack: Attack) -> int:
        g = SmallNoise(TOY.model, std=0.34)
        runs = [antiadv.attack(g, X, TOY.y, attack, Linf(0.16), seed=seed, looks=101) for seed in range(5)]
        return sum(int((~run.fooled).sum()) for run in runs)

    assert standing(Push("a", 0.15, MARKS)) == standing(EOT(push)) == 0
    assert standing(push) > 0


def test_charges_what_a_spying_model_saw() -> None:
    net, x = small_net(), torch.rand((6, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    y = net(x).argmax(1)
    spy = Spy(net)
    chosen = parse("cascade:stages=(apgd:steps=5)+(fab:steps=3,targets=2)")
    # the plain engine, which asks the spy itself and no copy of it
    _, records, _ = attack_and_judge(spy, chosen, Threat(Linf(0.01), Access.GRADIENTS), x, y, torch.arange(6), 0)
    assert spy.seen == sum(r.queries for r in records) + 2 * len(x)  # the judge looks too, before and after
    assert {r.queries for r in records} == {6 + 1 + 13}


def test_declares_what_its_stages_need() -> None:
    assert Cascade((Square(), FAB())).access == Access.GRADIENTS
    assert Cascade((Square(), Transfer())).access == Access.INTERNALS
    assert Cascade((FAB(), PGD())).norms == {2, math.inf}
    assert Cascade((FAB(), Square())).norms == Square.norms
    assert Cascade((FAB(), FAB(targets=9))).minimal
    assert not Cascade((FAB(), PGD())).minimal
    with pytest.raises(BadSpec, match="at least one stage"):
        Cascade(())


def test_text() -> None:
    value = parse("cascade:stages=(apgd:loss=ce)+square")
    assert value == Cascade((APGD(), Square())) == Cascade()
    for cascade in (
        Cascade((APGD(loss="dlr", targets=9), FAB(targets=9), Square())),
        Cascade((PGD(),)),
        Cascade((Cascade((PGD(steps=3), Square())), Transfer(PGD(steps=7)))),
    ):
        assert parse(spec.text(cascade)) == cascade
        assert parse(spec.full(cascade)) == cascade
    assert spec.text(Cascade((PGD(steps=3), Square()))) == "cascade:stages=(pgd:steps=3)+square"


def test_autoattack_is_the_cascade_of_its_stages() -> None:
    names = {v: [spec.text(s) for s in stages(v)] for v in VERSIONS}
    assert names == {
        "standard": ["apgd", "apgd:loss=dlr,targets=9", "fab:targets=9", "square"],
        "plus": [
            "apgd:restarts=5",
            "apgd:loss=dlr,restarts=5",
            "fab:restarts=5",
            "square",
            "apgd:loss=dlr,targets=9",
            "fab:targets=9",
        ],
        "rand": ["apgd:eot=20", "apgd:loss=dlr,eot=20"],
    }
    assert parse("autoattack:version=plus") == parse("autoattack:plus") == Autoattack("plus")
    assert spec.text(Autoattack()) == "autoattack"
    assert parse("autoattack:version=rand").norms == {2, math.inf}
    with pytest.raises(BadSpec, match="standard, plus, rand"):
        parse("autoattack:version=turbo")


@pytest.mark.parametrize("version", ["standard", "plus", "rand"])
def test_autoattack_breaks_what_can_be_broken(version: str) -> None:
    for share, broken in ((0.95, False), (1.02, True)):
        outcome = antiadv.attack(
            TOY.model, TOY.x, TOY.y, f"autoattack:version={version}", Linf(share * TOY.distance), queries=1500
        )
        assert outcome.fooled.tolist() == [broken] * 6


def test_a_sample_that_withstands_standard_is_asked_this_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """autoattack.py says 7,816 with ten classes; here there are three targets instead of nine, and 40 squares."""
    monkeypatch.setitem(VERSIONS, "standard", (*stages()[:-1], Square(steps=40)))
    records = antiadv.attack(TOY.model, TOY.x[:1], TOY.y[:1], "autoattack", Linf(0.05)).records
    assert records[0].queries == 101 + 1 + (1 + 3 * 101) + 1 + (1 + 3 * 200) + 1 + 41
    assert 101 + 1 + (1 + 9 * 101) + 1 + (1 + 9 * 200) + 1 + 5001 == 7816


def test_a_new_edition_of_a_stage_is_a_new_edition_of_autoattack(monkeypatch: pytest.MonkeyPatch) -> None:
    before = full_text(Autoattack()), full_text(Cascade()), full_text(Autoattack("rand"))
    monkeypatch.setattr(Square, "edition", Square.edition + 1)
    after = full_text(Autoattack()), full_text(Cascade()), full_text(Autoattack("rand"))
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, False, True]
