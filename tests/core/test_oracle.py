"""The oracle: refuses more access than granted, charges before the model runs, never lets a row pass its budget."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from antiadv.core.ball import Linf
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager
from antiadv.core.errors import AccessDenied, BudgetSpent
from antiadv.core.ledger import Ledger
from antiadv.core.losses import ce
from antiadv.core.oracle import Oracle
from antiadv.core.oracle_wrapper import OracleWrapper
from antiadv.core.threat import Access, Threat
from antiadv.defences.small_noise import SmallNoise
from tests.toys import Halfspace, Spy, halfspace

TOY = halfspace(p=2, n=6)


def oracle(
    access: Access = Access.GRADIENTS, queries: int | None = None, model: nn.Module = TOY.model, batch: int = 4
) -> tuple[Oracle, Ledger]:
    ledger = Ledger(6, queries)
    return Oracle(model, Threat(Linf(0.1), access, queries), ledger, Eager(batch)), ledger


def test_each_level_grants_itself_and_those_below() -> None:
    asks: dict[Access, Callable[[Oracle], object]] = {
        Access.LABELS: lambda o: o.labels(TOY.x),
        Access.SCORES: lambda o: o.scores(TOY.x),
        Access.GRADIENTS: lambda o: o.gradient(TOY.x, ce, TOY.y),
        Access.INTERNALS: lambda o: o.open(),
    }
    for granted in Access:
        for needed, ask in asks.items():
            o, ledger = oracle(granted)
            if granted >= needed:
                ask(o)
            else:
                with pytest.raises(AccessDenied, match=rf"\b{needed};.*\b{granted}\."):
                    ask(o)
                assert ledger.queries.sum() == 0


def test_charges_every_row_before_the_model_runs() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("out of order")

    o, ledger = oracle(model=Broken())
    with pytest.raises(RuntimeError, match="out of order"):
        o.scores(TOY.x)
    assert ledger.queries.tolist() == [1] * 6


def test_a_budget_is_never_passed_and_a_refused_request_costs_nothing() -> None:
    spy = Spy(Halfspace((3, 4, 4)))
    o, ledger = oracle(queries=3, model=spy)
    o.scores(TOY.x)
    some = o[torch.tensor([1, 4])]
    some.labels(TOY.x[[1, 4]])
    assert o.left().tolist() == [2, 1, 2, 2, 1, 2]
    before = spy.seen
    with pytest.raises(BudgetSpent, match=r"\b3 queries"):
        o.scores(TOY.x.repeat_interleave(2, 0))
    assert ledger.queries.tolist() == [1, 2, 1, 1, 2, 1]
    assert spy.seen == before


def test_many_candidates_a_sample_and_repeated_rows_are_all_charged() -> None:
    o, ledger = oracle()
    o.scores(TOY.x.repeat_interleave(3, 0))
    o[torch.tensor([2, 2, 5])].labels(TOY.x[[2, 2, 5]])
    o.gradient(TOY.x, ce, TOY.y)
    assert ledger.queries.tolist() == [4, 4, 6, 4, 4, 5]
    assert ledger.gradients.tolist() == [1] * 6
    with pytest.raises(ValueError, match=r"\b7 images.*\b6 samples"):
        o.scores(torch.cat([TOY.x, TOY.x[:1]]))


def test_a_row_named_twice_must_be_able_to_pay_twice() -> None:
    o, ledger = oracle(queries=3)
    o.scores(TOY.x)
    o.gradient(TOY.x, ce, TOY.y)
    with pytest.raises(BudgetSpent, match=r"\b3 queries.*\b4 were"):
        o[torch.tensor([5, 2, 2])].gradient(TOY.x[[5, 2, 2]], ce, TOY.y[[5, 2, 2]])
    assert ledger.queries.tolist() == [2] * 6
    assert ledger.gradients.tolist() == [1] * 6


@pytest.mark.parametrize("batch", [1, 4, 100])
def test_micro_batches_change_nothing(batch: int) -> None:
    o, _ = oracle(batch=batch)
    s, g = o.gradient(TOY.x, ce, TOY.y)
    x = TOY.x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(ce(TOY.model(x), TOY.y).sum(), x)
    assert torch.equal(s, TOY.model(TOY.x))
    assert torch.equal(g, expected)


class Coarse(Eager):
    """Rounds its scores to integers; the judge's engine does not."""

    def scores(self, model: nn.Module, z: Tensor, *, draws: Draws | None = None) -> Tensor:
        return super().scores(model, z, draws=draws).round()

    def judge(self, model: nn.Module) -> Eager:
        return FINE


FINE = Eager(4)


def coarse(access: Access, queries: int | None = None, model: nn.Module = TOY.model) -> tuple[Oracle, Ledger]:
    ledger = Ledger(6, queries)
    return Oracle(model, Threat(Linf(0.1), access, queries), ledger, Coarse(4)), ledger


@pytest.mark.parametrize("access", Access)
def test_a_confirmed_answer_grants_no_more_than_the_threat_and_costs_no_query(access: Access) -> None:
    o, ledger = coarse(access, queries=1)
    o.labels(TOY.x)
    rows = torch.tensor([4, 1])
    exact = TOY.model(TOY.x[rows])
    told = o[rows].confirm(TOY.x[rows])
    assert told is not None
    assert torch.equal(told, exact.argmax(1) if access == Access.LABELS else exact)
    assert ledger.queries.tolist() == [1] * 6
    assert ledger.checks.tolist() == [0, 1, 0, 0, 1, 0]


def test_only_images_that_were_sent_are_confirmed() -> None:
    spy = Spy(Halfspace((3, 4, 4)))
    o, ledger = coarse(Access.SCORES, model=spy)
    o[torch.tensor([1])].scores(TOY.x[[1, 1]])
    for rows, told, sent in (([1, 0], 1, 0), ([1, 1, 1], 3, 2)):
        before = spy.seen
        with pytest.raises(BudgetSpent, match=rf"\b{told} answers .*\b{sent} images"):
            o[torch.tensor(rows)].confirm(TOY.x[rows])
        assert spy.seen == before
        assert ledger.checks.sum() == 0
    assert o[torch.tensor([1])].confirm(TOY.x[[1, 1]]) is not None
    assert ledger.checks.tolist() == [0, 2, 0, 0, 0, 0]
    with pytest.raises(ValueError, match=r"\b7 images.*\b6 samples"):
        o.confirm(torch.cat([TOY.x, TOY.x[:1]]))


def test_a_row_is_replaced_with_all_that_was_written_of_it() -> None:
    mine, ledger = coarse(Access.GRADIENTS)
    mine.gradient(TOY.x, ce, TOY.y)
    mine.confirm(TOY.x)
    again, other = coarse(Access.GRADIENTS)
    again.scores(TOY.x.repeat_interleave(3, 0))
    ledger.replace(torch.tensor([2, 5]), other)
    assert ledger.queries.tolist() == [1, 1, 3, 1, 1, 3]
    assert ledger.gradients.tolist() == ledger.checks.tolist() == [1, 1, 0, 1, 1, 0]


def test_the_last_rejected_image_of_a_sample_is_known_by_its_bits() -> None:
    o, _ = coarse(Access.LABELS)
    assert o.was_rejected(TOY.x).tolist() == [False] * 6
    part = o[torch.tensor([4, 1])]
    part.mark_rejected(TOY.x[[4, 1]])
    assert o.was_rejected(TOY.x).tolist() == [False, True, False, False, True, False]
    assert part[torch.tensor([1])].was_rejected(TOY.x[[1]]).tolist() == [True]
    near = TOY.x.clone()
    near[1, 0, 0, 0] = torch.nextafter(near[1, 0, 0, 0], torch.tensor(2.0))
    assert o.was_rejected(near).tolist() == [False, False, False, False, True, False]
    OracleWrapper(o)[torch.tensor([4])].mark_rejected(near[[1]])
    assert OracleWrapper(o).was_rejected(TOY.x).tolist() == [False, True, False, False, False, False], (
        "another was the last"
    )
    assert coarse(Access.LABELS)[0].was_rejected(TOY.x).sum() == 0, "of this oracle alone"


def test_without_a_difference_to_the_judge_nothing_is_confirmed() -> None:
    """The engine is the judge's, the model is randomised, or no images are given."""
    plain, dicey, none = oracle(), coarse(Access.SCORES, model=SmallNoise(TOY.model, 0.1)), coarse(Access.SCORES)
    for (o, ledger), rows in ((plain, [0, 3]), (dicey, [0, 3]), (none, [])):
        part, z = o[torch.tensor(rows, dtype=torch.int64)], TOY.x[rows]
        part.scores(z)
        assert part.confirm(z) is None
        assert ledger.checks.sum() == 0


def test_rows_of_rows() -> None:
    o, ledger = oracle()
    inner = o[torch.tensor([1, 3, 5])][torch.tensor([False, True, True])]
    inner.labels(TOY.x[[3, 5]])
    assert ledger.queries.tolist() == [0, 0, 0, 1, 0, 1]
    assert len(inner) == 2


def test_exactly_zero_gradients_are_counted() -> None:
    class Flat(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            on = (torch.arange(len(x)) % 2).view(-1, 1)
            return torch.cat([x.flatten(1).sum(1, keepdim=True) * on, torch.zeros(len(x), 1)], 1)

    o, ledger = oracle(model=Flat(), batch=100)
    o.gradient(TOY.x, ce, TOY.y)
    assert ledger.zeros.tolist() == [1, 0, 1, 0, 1, 0]


def test_nothing_asked_runs_no_model() -> None:
    spy = Spy(Halfspace((3, 4, 4)))
    o, _ = oracle(model=spy)
    none = o[torch.zeros(0, dtype=torch.int64)]
    assert none.labels(TOY.x[:0]).shape == (0,)
    assert none.gradient(TOY.x[:0], ce, TOY.y[:0])[1].shape == (0, 3, 4, 4)
    assert spy.seen == 0


def test_a_targeted_threat_turns_loss_margin_and_success_around() -> None:
    plain = Oracle(TOY.model, Threat(Linf(0.1), Access.GRADIENTS), Ledger(6))
    aimed = Oracle(TOY.model, Threat(Linf(0.1), Access.GRADIENTS, targeted=True), Ledger(6))
    s, g = plain.gradient(TOY.x, ce, TOY.y)
    assert torch.equal(aimed.gradient(TOY.x, ce, TOY.y)[1], -g)
    assert torch.equal(aimed.margin(s, TOY.y), -plain.margin(s, TOY.y))
    assert torch.equal(aimed.fooled(s, TOY.y), ~plain.fooled(s, TOY.y))


def test_a_model_that_the_attacker_owns_is_not_charged() -> None:
    o, ledger = oracle(Access.INTERNALS)
    o.on_own_model(TOY.model).gradient(TOY.x, ce, TOY.y)
    assert ledger.queries.sum() == 0
    with pytest.raises(AccessDenied):
        oracle(Access.GRADIENTS)[0].on_own_model(TOY.model)


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval()


def test_zeros_may_be_read_again() -> None:
    net, ledger = linear(), Ledger(2)
    for p in net.parameters():
        nn.init.zeros_(p)
    asked = Oracle(net, Threat(Linf(0.1), Access.GRADIENTS), ledger)
    asked.gradient(torch.rand(2, 1, 2, 2), ce, torch.zeros(2, dtype=torch.int64))
    assert [ledger.zeros.tolist() for _ in range(2)] == [[1, 1], [1, 1]]


def test_a_jacobian_costs_a_gradient_for_each_candidate_and_class() -> None:
    ledger = Ledger(2)
    Oracle(linear(), Threat(Linf(0.1), Access.GRADIENTS), ledger).jacobian(torch.rand(6, 1, 2, 2))
    assert (ledger.queries.tolist(), ledger.gradients.tolist()) == ([3, 3], [9, 9])
