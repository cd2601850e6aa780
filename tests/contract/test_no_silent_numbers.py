"""Every attack with NaN or infinity in an answer, with a budget that is too small, and with endless steps.

Over every entry of ATTACKS, on toys whose distance to the boundary is known.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import antiadv
from antiadv import defences
from antiadv.attacks import parse
from antiadv.core.attack import least_queries
from antiadv.core.ball import Ball
from antiadv.core.engine import Eager
from antiadv.core.errors import BadInput
from antiadv.core.ledger import Ledger
from antiadv.core.losses import ce
from antiadv.core.oracle import NO_LABEL, Oracle
from antiadv.core.threat import Access, Threat
from antiadv.defences.stateful import Stateful
from antiadv.evaluation.cell import Receipt
from antiadv.evaluation.shard import attack_and_judge
from tests.contract.test_attacks import CASES, Rounding, queries_of
from tests.contract.test_defences import ask, every, images, noisy
from tests.toys import Spy, Toy, halfspace, small_net, spec_for, sphere

WORDS = [math.nan, math.inf, -math.inf]


class Breaking(nn.Module):
    """A classifier that answers images of some brightness with a bad value. The clean images are not among them.

    `what` says which of its scores: the largest, the smallest, all of them, or only the gradient.
    """

    def __init__(self, base: nn.Module, x: Tensor, value: float, what: str = "all") -> None:
        super().__init__()
        self.base, self.value, self.what = base, value, what
        self.clean: Tensor
        self.register_buffer("clean", x.flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self.base(x)
        moved = (x.flatten(1)[:, None] != self.clean).any(2).all(1)[:, None]
        if self.what == "gradient":
            spoilt = (x.flatten(1)[:, :1] * 0).sqrt()  # 0, with a gradient of NaN
            return s + torch.where(moved, spoilt, torch.zeros_like(spoilt))
        if self.what == "all":
            return torch.where(moved, self.value, s)
        order = s.detach().argmax(1) if self.what == "largest" else s.detach().argmin(1)
        return torch.where(moved & (torch.arange(s.shape[1]) == order[:, None]), self.value, s)


class Slopeless(nn.Module):
    """A classifier whose scores are right and whose gradients are all NaN."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self.base(x)
        return s + (x * 0).flatten(1).abs().sqrt().sum(1, keepdim=True)


@pytest.mark.parametrize(("name", "p"), CASES)
@pytest.mark.parametrize("value", [math.nan, *(pytest.param(v, marks=pytest.mark.slow) for v in (math.inf, -math.inf))])
def test_nan_and_infinity_in_scores_are_refused(name: str, p: float, value: float) -> None:
    toy = halfspace(p, n=4)
    model = Breaking(toy.model, toy.x, value).eval()
    ids = torch.tensor([40, 41, 42, 43])
    with pytest.raises(BadInput, match=r"NaN or infinity.*sample"):
        antiadv.attack(model, toy.x, toy.y, name, Ball(p, 1.3 * toy.distance), queries=300, ids=ids)


@pytest.mark.parametrize(("name", "p"), [c for c in CASES if parse(c[0]).access >= Access.GRADIENTS])
def test_nan_in_gradients_is_refused(name: str, p: float) -> None:
    toy = halfspace(p, n=4)
    model = Breaking(toy.model, toy.x, 0, "gradient").eval()
    assert torch.isfinite(model(toy.x + 0.01)).all(), "the scores are fine"
    with pytest.raises(BadInput, match="NaN or infinity"):
        antiadv.attack(model, toy.x, toy.y, name, Ball(p, 1.3 * toy.distance), queries=300)


class Once(nn.Module):
    """A classifier whose n-th answer is a bad value, by default NaN, for the last image of the batch."""

    def __init__(self, base: nn.Module, call: int, value: float = math.nan) -> None:
        super().__init__()
        self.base, self.call, self.calls, self.value = base, call, 0, value

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        s = self.base(x)
        return torch.where(torch.arange(len(x))[:, None] == len(x) - 1, self.value, s) if self.calls == self.call else s


@pytest.mark.parametrize("name", ["square", "rays", "apgd", "fab", "nes:probes=5", "hop_skip_jump"])
@pytest.mark.parametrize("call", [2, 7, 10])
def test_one_answer_of_many_fails_the_batch_and_names_the_sample(name: str, call: int) -> None:
    toy, attack = sphere(math.inf), parse(name)
    ball = Ball(math.inf, 0.5 * toy.distance)  # where no sample falls, so that the batch stays complete
    threat = Threat(ball, attack.access, 60)
    ids = torch.tensor([70, 71, 72, 73])
    with pytest.raises(BadInput, match="sample 73"):
        attack_and_judge(Once(toy.model, call).eval(), attack, threat, toy.x, toy.y, ids, 0, Eager())


@every
@pytest.mark.parametrize("value", WORDS)
def test_a_defence_passes_on_a_bad_answer_of_its_base(name: str, value: float) -> None:
    base = noisy(small_net(classes=5))
    text, x = spec_for(name, base), images()
    counted = Once(base, 0)
    ask(defences.wrap(text, counted.eval()), x)
    for call in sorted({1, 2, counted.calls // 2, counted.calls} & set(range(1, counted.calls + 1))):
        g = defences.wrap(text, Once(base, call, value).eval())
        assert not torch.isfinite(ask(g, x)).all(), f"call {call} of {counted.calls}"


@every
def test_a_defence_passes_on_a_bad_gradient_of_its_base(name: str) -> None:
    base = noisy(small_net(classes=5))
    s = ask(defences.wrap(spec_for(name, base), Slopeless(base).eval()), images())
    steps = name.partition(":")[0] in ("anti_adversary", "hedge")  # the others take no gradient
    assert torch.isfinite(s).all() != steps


def test_a_repeated_query_does_not_hide_a_bad_answer() -> None:
    base = small_net(classes=5)
    g, x, clients = defences.wrap("stateful", base), images(), torch.arange(4)
    assert isinstance(g, Stateful)
    session = g.session()
    session.answer(clients, x, g(x))
    bad = g(x)
    bad[2, 1] = math.nan
    answers, repeated = session.answer(clients, x, bad)
    assert repeated.all()
    assert answers.isfinite().all(1).tolist() == [True, True, False, True]


@pytest.mark.parametrize("value", WORDS)
@pytest.mark.parametrize("what", ["largest", "smallest", "all"])
@pytest.mark.parametrize("targeted", [False, True])
def test_an_answer_that_is_no_number_is_no_success(value: float, what: str, targeted: bool) -> None:
    toy = halfspace(math.inf, n=4)
    model = Breaking(toy.model, toy.x, value, what).eval()
    ledger = Ledger(4)
    oracle = Oracle(model, Threat(Ball(math.inf, 0.1), Access.SCORES, None, targeted), ledger)
    for label in range(4):
        y = torch.full((4,), label)
        assert not oracle.fooled(oracle.scores(toy.x + 0.01), y).any()
        assert not oracle.fooled(oracle.labels(toy.x + 0.01), y).any()
    assert (oracle.labels(toy.x + 0.01) == NO_LABEL).all()
    assert ledger.unsound.tolist() == [9] * 4


def test_answers_of_the_attackers_own_model_are_noted_too() -> None:
    toy = halfspace(math.inf, n=4)
    ledger = Ledger(4)
    oracle = Oracle(toy.model, Threat(Ball(math.inf, 0.1), Access.INTERNALS), ledger)
    beside = oracle[torch.tensor([1, 3])].on_own_model(Breaking(toy.model, toy.x, math.nan).eval())
    beside[torch.tensor([1])].scores(toy.x[3:] + 0.01)
    assert ledger.unsound.tolist() == [0, 0, 0, 1]


def test_square_with_one_bad_answer_in_its_middle() -> None:
    toy = sphere(math.inf)
    threat = Threat(Ball(math.inf, 0.5 * toy.distance), Access.SCORES, 100)
    with pytest.raises(BadInput, match="sample 3"):
        attack_and_judge(Once(toy.model, 50).eval(), parse("square"), threat, toy.x, toy.y, torch.arange(4), 0, Eager())


class Waits(TorchDispatchMode):
    """Counts the operations that wait for a device: reading a number, and selecting by a mask."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = func.overloadpacket._qualified_op_name
        self.count += name in ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::is_nonzero")
        return func(*args, **(kwargs or {}))


def test_noting_them_does_not_wait_for_the_device() -> None:
    toy = halfspace(math.inf, n=4)
    oracle = Oracle(toy.model, Threat(Ball(math.inf, 0.1), Access.GRADIENTS), Ledger(4))
    with Waits() as waits:
        s = oracle.scores(toy.x)
        oracle.fooled(s, toy.y)
        oracle.fooled(oracle.labels(toy.x), toy.y)
        oracle.gradient(toy.x, ce, toy.y)
        oracle.jacobian(toy.x)
    assert waits.count == 0


HUGE = 10**12
LABELS = ("boundary", "hop_skip_jump", "qeba")
ENDLESS = [
    *(f"{n}:steps={HUGE}" for n in ("pgd", "apgd", "fab", "nes", "bandits", "simba", "square", "rays", *LABELS)),
    f"simba:rule=stp,steps={HUGE}",
    f"adaptive:steps={HUGE}",
    *(f"{n}restarts={HUGE}" for n in ("pgd:", "apgd:", "fab:", "apgd:loss=dlr,targets=9,", "fab:targets=9,")),
    *(f"{n}:tries={HUGE}" for n in LABELS),
    *(f"{n}:attack=(pgd:restarts={HUGE})" for n in ("bpda", "smooth", "eot")),
    f"apgd:eot={HUGE}",
    f"nes:probes={HUGE}",
    f"eot:samples={HUGE}",
    f"cascade:stages=(pgd:restarts={HUGE})+square",
]


@pytest.mark.parametrize("name", ENDLESS)
@pytest.mark.parametrize("falls", [False, True])
def test_a_search_ends_when_no_sample_can_pay_or_none_is_left(name: str, falls: bool) -> None:
    """For any number of steps, restarts or tries. Without the end this test would not finish."""
    attack = parse(name)
    for p in sorted(attack.norms):
        toy = halfspace(p, n=2)
        ball = Ball(p, (3 if falls else 0.5) * toy.distance)
        outcome = antiadv.attack(toy.model, toy.x, toy.y, attack, ball, queries=40)
        assert max(r.queries for r in outcome.records) <= 40


@pytest.mark.parametrize("name", [f"pseudo_label:restarts={HUGE}", f"transfer:attack=(pgd:restarts={HUGE})"])
def test_a_search_on_the_base_ends_when_no_sample_is_left(name: str) -> None:
    toy = halfspace(math.inf, n=2)
    assert antiadv.attack(toy.model, toy.x, toy.y, name, Ball(math.inf, 3 * toy.distance)).fooled.all()


VARIANTS = [
    *(
        "pgd:random_start=false",
        "pgd:random_start=false,steps=1",
        "apgd:targets=3",
        "apgd:eot=4,targets=3",
        "fab:targets=3",
    ),
    *(
        "simba:rule=stp",
        "nes:probes=3",
        "eot:attack=fab,samples=3",
        "eot:attack=(nes:probes=2),samples=2",
        "bpda:attack=fab",
    ),
    *("cascade:stages=(nes:probes=20)+square", "cascade:stages=(fab:targets=3)+(nes:probes=4)", "cascade:stages=simba"),
]


class Watched(Spy):
    """A defence that only remembers whether it was given an image other than the clean ones."""

    def __init__(self, base: nn.Module, x: Tensor) -> None:
        super().__init__(base)
        self.x, self.tried = x, False

    def forward(self, x: Tensor) -> Tensor:
        self.tried |= bool((x[:, None] != self.x).flatten(2).any(2).all(1).any())
        return super().forward(x)


@pytest.mark.parametrize(
    ("name", "p"),
    [
        pytest.param(n, p, marks=pytest.mark.slow if n in ("adaptive", "pseudo_label") else ())
        for n, p in (*CASES, *((n, p) for n in VARIANTS for p in sorted(parse(n).norms)))
    ],
)
@pytest.mark.parametrize("targeted", [False, True])
def test_an_attack_tries_an_image_or_is_reported_as_not_run(name: str, p: float, targeted: bool) -> None:
    toy, attack = halfspace(p, n=2), parse(name)
    y = 1 - toy.y if targeted else toy.y
    ball = Ball(p, 0.5 * toy.distance)
    least = least_queries(attack, Threat(ball, attack.access, None, targeted))
    for queries in sorted({*range(1, 6), max(1, least - 1), max(1, least)}):
        watched = Watched(toy.model, toy.x)
        queries_of(attack, watched, Toy(toy.model, toy.x, y, toy.distance), ball, queries, targeted)
        outcome = antiadv.attack(toy.model, toy.x, y, attack, ball, queries=queries, targeted=targeted)
        assert outcome.least_queries == least
        if queries < least and watched.tried and name.startswith("cascade"):
            continue  # a later stage may begin a little earlier than it says
        assert outcome.not_attacked.tolist() == [queries < least] * 2
        if queries >= least > 0:
            assert watched.tried
            assert outcome.robust_accuracy == 1
        elif least > 0:
            assert not watched.tried
            with pytest.raises(BadInput, match=f"at least {least:,} queries"):
                _ = outcome.robust_accuracy


@pytest.mark.parametrize("name", ["nes:steps=0", "bandits:steps=0"])
def test_an_attack_without_steps_is_reported_as_not_run(name: str) -> None:
    toy = halfspace(math.inf, n=2)
    outcome = antiadv.attack(toy.model, toy.x, toy.y, name, Ball(math.inf, 0.1), queries=1000)
    assert outcome.not_attacked.all()
    with pytest.raises(BadInput, match="steps"):
        _ = outcome.robust_accuracy


def test_samples_that_are_wrong_from_the_start_are_not_reported() -> None:
    toy = halfspace(math.inf, n=4)
    y = toy.y.clone()
    y[1] = 3
    outcome = antiadv.attack(toy.model, toy.x, y, "nes", Ball(math.inf, 0.1), queries=100)
    assert outcome.not_attacked.tolist() == [True, False, True, True]
    assert outcome.fooled.tolist() == [False, True, False, False]


@pytest.mark.parametrize(("name", "p"), [c for c in CASES if parse(c[0]).access < Access.INTERNALS])
def test_queries_and_the_judges_are_all_that_the_model_saw(name: str, p: float) -> None:
    toy, attack = halfspace(p, n=3), parse(name)
    spy = Spy(toy.model)
    threat = Threat(Ball(p, 1.05 * toy.distance), attack.access, 60)
    _, records, receipt = attack_and_judge(spy, attack, threat, toy.x, toy.y, torch.arange(3), 0, Eager(4))
    assert receipt.judge_queries == 2 * len(toy.x)
    assert sum(r.queries for r in records) + receipt.judge_queries == spy.seen


def test_the_judges_queries_of_an_engine_that_rounds() -> None:
    toy = sphere(math.inf)
    engine, threat = Rounding(1 - 0.99**2), Threat(Ball(math.inf, 1.25 * toy.distance), Access.GRADIENTS, 100)
    spy = Spy(toy.model)
    _, records, receipt = attack_and_judge(spy, parse("pgd"), threat, toy.x, toy.y, torch.arange(4), 0, engine)
    assert receipt.checks > 0
    assert receipt.judge_queries == 4 * len(toy.x) + receipt.checks
    assert sum(r.queries for r in records) + receipt.judge_queries == spy.seen


def test_an_older_receipt_has_no_count_of_them() -> None:
    toy = halfspace(math.inf, n=1)
    receipt = antiadv.attack(toy.model, toy.x, toy.y, "pgd", Ball(math.inf, 0.1)).receipt.json()
    assert receipt.pop("judge_queries") == 2
    assert Receipt(**receipt).judge_queries is None
