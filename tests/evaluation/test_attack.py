"""`antiadv.attack` on a batch in hand: the Outcome agrees with its records, random numbers depend on ids and seed only,
the budget holds, and the arguments are not changed."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn

import antiadv
from antiadv import L2, Linf, Threat
from antiadv.attacks import ATTACKS, parse
from antiadv.attacks.white_box.pgd import PGD
from antiadv.cli.__main__ import main
from antiadv.core.attack import Attack
from antiadv.core.ball import Ball
from antiadv.core.errors import AccessDenied, BadInput, BadSpec, Interrupted
from antiadv.core.threat import Access
from antiadv.core.validation import check_scores
from antiadv.defences.small_noise import SmallNoise
from antiadv.reporting.measures import robust_accuracy
from tests.engine.probes import Chessboard, Odd, same
from tests.said import in_order
from tests.toys import halfspace, small_net

TOY = halfspace(math.inf, n=6, distance=0.1)


def test_an_outcome_says_what_happened_to_every_image() -> None:
    outcome = antiadv.attack(TOY.model, TOY.x, TOY.y, "pgd", Linf(0.125))
    assert outcome.images.shape == TOY.x.shape
    assert outcome.images.dtype == TOY.x.dtype
    assert outcome.threat == Threat(Linf(0.125), Access.GRADIENTS)
    assert outcome.robust_accuracy == 0
    assert outcome.fooled.tolist() == [True] * 6
    assert [r.sample for r in outcome.records] == list(range(6))
    for r, x, z, y in zip(outcome.records, TOY.x, outcome.images, TOY.y, strict=True):
        with torch.no_grad():
            before, after = (TOY.model(v[None]).double().softmax(1)[0] for v in (x, z))
        assert (r.label, r.clean, r.attacked) == (int(y), int(before.argmax()), int(after.argmax()))
        assert (r.base_clean, r.base_attacked) == (r.clean, r.attacked)
        assert r.distance == pytest.approx((z.double() - x.double()).abs().max().item(), rel=1e-8)
        assert r.clean_confidence == float(f"{before.max().item():.3g}")
        assert r.clean_truth == float(f"{before[y].item():.3g}")
        assert r.attacked_confidence == float(f"{after.max().item():.3g}")
        assert r.attacked_truth == float(f"{after[y].item():.3g}")
        assert (r.draws, r.clean_right, r.attacked_right) == (1, 1, 0)
        assert r.queries >= 1


def test_robust_accuracy_is_the_share_that_could_not_be_broken() -> None:
    wrong = TOY.y.clone()
    wrong[4] = 1 - wrong[4]  # wrong without an attack: counted as broken, not attacked
    far, near = (antiadv.attack(TOY.model, TOY.x, wrong, "pgd", Linf(eps)) for eps in (0.125, 0.08))
    assert far.robust_accuracy == 0
    assert near.robust_accuracy == pytest.approx(5 / 6)
    assert near.fooled.tolist() == [False] * 4 + [True, False]
    assert near.records[4].queries == 0
    assert same(near.images[4], TOY.x[4])


def test_an_outcome_shows_itself_in_a_line_and_a_small_table() -> None:
    wrong = TOY.y.clone()
    wrong[4] = 1 - wrong[4]
    outcome = antiadv.attack(TOY.model, TOY.x, wrong, "square:steps=40", Linf(0.08), queries=30)
    assert "\n" not in repr(outcome)
    assert "square:steps=40 on 6 samples in linf:0.08" in repr(outcome)
    assert "83.3 %" in repr(outcome)
    first, *table = str(outcome).splitlines()
    assert first == repr(outcome)
    assert [line.rsplit("  ", 1)[1].strip() for line in table] == ["1", "0", "5", "25, at most 30", "12"]
    assert outcome._repr_html_().count("<tr>") == 4
    with pytest.raises(BadInput, match="no samples"):
        _ = dataclasses.replace(outcome, records=[]).robust_accuracy
    assert "unknown" in str(dataclasses.replace(outcome, records=[])), "a repr never raises"


def test_an_attack_of_ones_own_has_a_repr_that_cannot_harm_a_page() -> None:
    evil = type("<b>Own", (Odd,), {})
    outcome = antiadv.attack(TOY.model, TOY.x, TOY.y, evil(lambda oracle, x, y, ball, draws: x), Linf(0.08))
    assert "<b>" not in outcome._repr_html_()
    assert "Own" in outcome._repr_html_()


@pytest.mark.parametrize("eps", [0.08, 0.102, 0.125])
def test_outcome_and_report_agree(eps: float) -> None:
    outcome = antiadv.attack(TOY.model, TOY.x, TOY.y, "square:steps=40", Linf(eps))
    assert outcome.robust_accuracy == pytest.approx(robust_accuracy(outcome.records, Linf(eps)).value)


@pytest.mark.parametrize("pixels", range(256, 900, 37))
def test_an_image_on_the_sphere_is_in_the_ball_whatever_the_digits_of_the_radius(pixels: int) -> None:
    toy, ball = halfspace(2, distance=0.5), L2(pixels / 255)
    side = (1.0 - 2.0 * toy.y).view(-1, 1, 1, 1)
    across = Odd(lambda oracle, x, y, ball, draws: ball.project(x, x - 10 * side * toy.model.w))
    outcome = antiadv.attack(toy.model, toy.x, toy.y, across, ball)
    inside = outcome.images.sub(toy.x).flatten(1).norm(dim=1) <= ball.reach
    assert inside.all(), "otherwise the projection is wrong, not the record"
    assert outcome.fooled.all()


def test_a_targeted_attack_counts_the_class_it_wanted() -> None:
    reached = antiadv.attack(TOY.model, TOY.x, 1 - TOY.y, "pgd", Linf(0.125), targeted=True)
    assert reached.robust_accuracy == 0
    assert [r.attacked for r in reached.records] == (1 - TOY.y).tolist()
    there = antiadv.attack(TOY.model, TOY.x, TOY.y, "pgd", Linf(0.125), targeted=True)
    assert there.fooled.all(), "already in the target class"
    assert [r.queries for r in there.records] == [0] * 6
    unreachable = torch.full_like(TOY.y, 3)
    missed = antiadv.attack(TOY.model, TOY.x, unreachable, "pgd", Linf(0.125), targeted=True)
    assert missed.robust_accuracy == 1


@pytest.mark.parametrize("name", ["pgd", "square", "transfer"])
@pytest.mark.parametrize("queries", [1, 2, 7])
def test_no_sample_spends_more_than_its_budget(name: str, queries: int) -> None:
    outcome = antiadv.attack(TOY.model, TOY.x, TOY.y, name, Linf(0.08), queries=queries)
    assert max(r.queries for r in outcome.records) <= queries
    spent = 0 if name == "transfer" else queries  # the attack fails here, so it spends its budget
    assert min(r.queries for r in outcome.records) == spent


NOISE = Odd(lambda oracle, x, y, ball, draws: ball.random(x, draws))


@pytest.mark.parametrize("attack", [NOISE, "square:steps=5", "pgd:steps=3"], ids=["noise", "square", "pgd"])
def test_random_numbers_depend_on_ids_and_not_on_the_order(attack: Attack | str) -> None:
    ids = torch.tensor([5, 900, 17, 3, 44, 8])
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    whole = antiadv.attack(TOY.model, TOY.x, TOY.y, attack, Linf(0.08), ids=ids)
    moved = antiadv.attack(TOY.model, TOY.x[order], TOY.y[order], attack, Linf(0.08), ids=ids[order])
    alone = antiadv.attack(TOY.model, TOY.x[2:3], TOY.y[2:3], attack, Linf(0.08), ids=ids[2:3])
    assert [r.sample for r in whole.records] == ids.tolist()
    assert [whole.records[i] for i in order] == moved.records
    assert same(whole.images[order], moved.images)
    assert alone.records == [whole.records[2]]
    assert same(alone.images[0], whole.images[2])


def test_seed_and_ids_decide_the_random_numbers() -> None:
    first, again, other_seed, other_ids = (
        antiadv.attack(TOY.model, TOY.x, TOY.y, NOISE, Linf(0.08), **words).images
        for words in ({}, {"seed": 0, "ids": torch.arange(6)}, {"seed": 1}, {"ids": torch.arange(6) + 6})
    )
    assert same(first, again)
    for other in (other_seed, other_ids):
        assert (other != first).flatten(1).any(1).all(), "other random numbers for every sample"


def test_the_batch_size_changes_nothing() -> None:
    a, b = (antiadv.attack(TOY.model, TOY.x, TOY.y, "pgd", Linf(0.101), batch=batch) for batch in (256, 1))
    assert a.records == b.records
    assert same(a.images, b.images)


def test_a_threat_may_grant_more_than_the_attack_needs() -> None:
    outcome = antiadv.attack(TOY.model, TOY.x, TOY.y, "square:steps=5", Linf(0.08), access=Access.INTERNALS)
    assert outcome.threat.access == Access.INTERNALS


def test_an_attack_may_be_text_or_value() -> None:
    text = antiadv.attack(TOY.model, TOY.x, TOY.y, "pgd:steps=3,step_size=1/2", Linf(0.08))
    value = antiadv.attack(TOY.model, TOY.x, TOY.y, PGD(steps=3, step_size=0.5), Linf(0.08))
    assert text.records == value.records


def test_no_image_gives_no_record_and_no_accuracy() -> None:
    outcome = antiadv.attack(TOY.model, TOY.x[:0], TOY.y[:0], "pgd", Linf(0.1))
    assert outcome.images.shape == (0, 3, 4, 4)
    assert outcome.records == []
    assert outcome.fooled.tolist() == []
    with pytest.raises(BadInput, match="no samples"):
        _ = outcome.robust_accuracy


@pytest.mark.parametrize("name", ["pgd", "square", "transfer"])
def test_one_image_is_a_batch(name: str) -> None:
    outcome = antiadv.attack(TOY.model, TOY.x[:1], TOY.y[:1], name, Linf(0.125))
    assert len(outcome.records) == 1
    assert outcome.robust_accuracy == 0


def test_the_arguments_are_not_changed() -> None:
    net = small_net().requires_grad_(True)
    x = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    y = net(x).argmax(1).detach()
    state = {k: v.clone() for k, v in net.state_dict().items()}
    before, labels, generator = x.clone(), y.clone(), torch.get_rng_state()
    antiadv.attack(antiadv.AntiAdversary(net), x, y, "pgd:steps=2", Linf(0.05))
    assert same(x, before)
    assert same(y, labels)
    assert same(torch.get_rng_state(), generator)
    assert not net.training
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    assert all(same(v, state[k]) for k, v in net.state_dict().items())
    assert not any(m._forward_hooks for m in net.modules()), "the meter removed its hook"


def test_the_meter_removes_its_hook_when_an_attack_fails() -> None:
    def fail(*_: object) -> torch.Tensor:
        raise RuntimeError("on purpose")

    with pytest.raises(Interrupted, match="RuntimeError: on purpose"):
        antiadv.attack(TOY.model, TOY.x, TOY.y, Odd(fail), Linf(0.1))
    assert not TOY.model._forward_hooks


# ---------------------------------------------------------------- bad input


class Answer(torch.nn.Module):
    """Answers every image with the same row of scores."""

    def __init__(self, *row: float) -> None:
        super().__init__()
        self.row = torch.tensor([row])
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.row.repeat(len(x), 1) + 0 * x.flatten(1).sum(1, keepdim=True)


class Cut(torch.nn.Module):
    """Its scores have a gradient for the weights, but none for the images."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(48, 2)
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head((255 * x).byte().float().flatten(1) / 255)
        return scores


class Around(torch.nn.Module):
    """The toy's scores, changed by a function before they are returned."""

    def __init__(self, change: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.change = change
        self.eval()

    def forward(self, x: torch.Tensor) -> object:
        return self.change(TOY.model(x))


class Last(nn.Module):
    """Takes images [N, H, W, C]."""

    def __init__(self) -> None:
        super().__init__()
        self.net = small_net()
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        s: torch.Tensor = self.net(x.permute(0, 3, 1, 2))
        return s


X, Y = torch.full((2, 3, 4, 4), 0.5), torch.tensor([0, 1])
BAD_INPUT: dict[str, tuple[Callable[[], tuple[Any, Any, Any]], str]] = {
    "images of bytes, as floats": (lambda: (TOY.model, X * 255, Y), r"found \[127.5, 127.5\]"),
    "an image without a batch": (
        lambda: (TOY.model, X[0], Y[:1]),
        r"\(3\).*\(1,\).*\(3, 4, 4\)",
    ),
    "labels in a list": (lambda: (TOY.model, X, [0, 1]), "in a tensor.*found list"),
    "scores and more": (
        lambda: (Around(lambda s: (s, s)), TOY.x, TOY.y),
        r"\[N, K\] for 6 images; found tuple.*antiadv\.wrap\(net\)",
    ),
    "scores by name": (lambda: (Around(lambda s: {"logits": s}), TOY.x, TOY.y), r"found dict.*antiadv\.wrap\(net\)"),
    "labels for scores": (lambda: (Around(lambda s: s.argmax(1)), TOY.x, TOY.y), r"found \(6,\).*Wrap"),
    "no gradients": (lambda: (Around(torch.Tensor.detach), TOY.x, TOY.y), "gradients"),
    "gradients for its weights alone": (lambda: (Cut(), X, Y), "gradients"),
    "integer images": (lambda: (TOY.model, (X * 255).byte(), Y), "floating point.*uint8"),
    "too bright": (lambda: (TOY.model, X + 0.6, Y), r"in \[0, 1\].*found \[1.1, 1.1\].*normalisation inside"),
    "too dark": (lambda: (TOY.model, X - 0.6, Y), r"in \[0, 1\].*found \[-0.1, -0.1\].*normalisation inside"),
    "images that are no numbers": (lambda: (TOY.model, X * torch.nan, Y), r"in \[0, 1\].*nan"),
    "one image without a batch": (lambda: (TOY.model, X[0, 0, 0], Y), r"a batch.*\(4,\).*batch dimension"),
    "an array": (lambda: (TOY.model, X.numpy(), Y), "torch tensor.*ndarray.*as_tensor"),
    "training mode": (lambda: (Answer(0.0, 1.0).train(), X, Y), r"evaluation mode.*training mode.*\.eval\(\)"),
    "a function": (lambda: (lambda x: x, X, Y), r"nn\.Module.*function.*antiadv\.wrap"),
    "one column": (lambda: (Answer(2.0), X, Y), r"one score per class.*single column.*torch\.cat"),
    "images without numbers": (lambda: (small_net(), X.to("meta"), Y), "must hold numbers.*meta"),
    "softmax": (lambda: (Answer(0.25, 0.75), X, Y), "logits.*probabilities.*Remove the softmax"),
    "NaN scores": (lambda: (Answer(math.nan, 1.0), X, Y), "finite.*2 of 2.*sample 0.*Check the weights"),
    "infinite scores": (lambda: (Answer(math.inf, 1.0), X, Y), "finite.*2 of 2"),
    "a label too high": (lambda: (Answer(3.0, 1.0), X, Y + 1), r"labels.*0 … 1.*found 2.*Check the classes"),
    "a label too low": (lambda: (Answer(3.0, 1.0), X, Y - 1), r"labels.*0 … 1.*found -1"),
    "labels as floats": (lambda: (TOY.model, X, Y.float()), r"whole numbers.*\(2\).*float32"),
    "complex labels": (lambda: (TOY.model, X, Y * 1j), r"whole numbers.*complex64"),
    "sparse labels": (lambda: (TOY.model, X, Y.to_sparse()), r"whole numbers.*sparse"),
    "labels without numbers": (lambda: (TOY.model, X, Y.to("meta")), r"whole numbers.*meta"),
    "too few labels": (lambda: (TOY.model, X, Y[:1]), r"one per image \(2\).*\(1,\)"),
    "too many labels": (lambda: (TOY.model, X, torch.tensor([0, 1, 0])), r"one per image \(2\).*\(3,\)"),
    "labels in a column": (lambda: (TOY.model, X, Y[:, None]), r"one per image \(2\).*\(2, 1\)"),
    "a single number": (lambda: (TOY.model, torch.tensor(0.5), Y), r"a batch.*found shape \(\).*batch dimension"),
    "one image, and as many labels as channels": (
        lambda: (small_net(), X[0], torch.tensor([0, 1, 0])),
        r"\[N, C, H, W\]; found shape \(3, 4, 4\).*\(\w+: .*\)",
    ),
    "flat images": (lambda: (small_net(), X.flatten(1), Y), r"found shape \(2, 48\)"),
    "channels last": (
        lambda: (small_net(), X.permute(0, 2, 3, 1), Y),
        r"\[N, C, H, W\]; found shape \(2, 4, 4, 3\).*permute\(0, 3, 1, 2\)",
    ),
    "a network that takes channels last": (
        lambda: (Last(), X, Y),
        r"shape \(2, 3, 4, 4\).*antiadv\.wrap\(net, channels_last=True\)",
    ),
    "images of doubles": (
        lambda: (small_net(), X.double(), Y),
        r"torch\.float32 .*found torch\.float64, .*\(RuntimeError: .*\)",
    ),
    "images of 16 bits": (
        lambda: (small_net().half(), X.half(), Y),
        r"float32, .*found torch\.float16\. Convert images and network with \.float\(\)",
    ),
    "a network elsewhere": (
        lambda: (small_net().to("meta"), X, Y),
        r"on meta; found .* cpu, .*\(\w+: .*\)",
    ),
    "a defended network elsewhere": (
        lambda: (antiadv.AntiAdversary(small_net().to("meta")), X, Y),
        r"on meta; found .* cpu",
    ),
    "a grid of scores": (lambda: (torch.nn.Identity().eval(), X, Y), r"\[N, K\].*\(2, 3, 4, 4\).*Flatten"),
}


@pytest.mark.parametrize("what", BAD_INPUT)
def test_bad_input_is_refused_with_what_was_found(what: str) -> None:
    make, message = BAD_INPUT[what]
    model, x, y = make()
    with pytest.raises(BadInput, match=message):
        antiadv.attack(model, x, y, "pgd", Linf(0.1))


def test_the_advice_for_channels_last_works() -> None:
    assert len(antiadv.attack(antiadv.wrap(Last(), channels_last=True), X, Y, "pgd:steps=2", Linf(0.1)).records) == 2


class Writes(torch.nn.Module):
    """Normalises its images in place, as a transform with `inplace` does."""

    def __init__(self) -> None:
        super().__init__()
        self.net = small_net()
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        s: torch.Tensor = self.net(x.sub_(0.1))
        return s


@pytest.mark.parametrize("attack", ["square:steps=3", "pgd:steps=3"])
@pytest.mark.parametrize("make", [Writes, lambda: SmallNoise(Writes(), std=0.01)])
def test_a_network_that_writes_into_its_images_is_refused(attack: str, make: Callable[[], torch.nn.Module]) -> None:
    """Otherwise images far outside the ball would count as successes."""
    x = X.clone()
    with pytest.raises(BadInput, match="writing into them"):
        antiadv.attack(make(), x, Y, attack, Linf(0.1), batch=1)
    assert torch.equal(x, X)


def test_gradients_of_weights_do_not_hide_missing_gradients_of_images() -> None:
    with pytest.raises(BadInput, match="gradients"):
        antiadv.AntiAdversary(Cut())(X)
    with pytest.raises(BadInput, match="gradients"):
        antiadv.attack(Cut(), X, Y, "fab", Linf(0.1))


def test_the_advice_for_a_binary_classifier_keeps_its_probabilities() -> None:
    with pytest.raises(BadInput) as error:
        antiadv.attack(Answer(2.0), X, Y, "pgd", Linf(0.1))
    advice = re.search(r"return (torch\.cat\(.*?, 1\))", str(error.value))
    assert advice is not None
    v = torch.tensor([[-3.0], [0.5]])
    made = eval(advice[1], {"torch": torch, "v": v})
    torch.testing.assert_close(made.softmax(1)[:, 1:], v.sigmoid())


class Moves(torch.nn.Module):
    """Converts its images to the type of its weights. With `fails`, it raises an error of its own."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.net, self.fails = small_net().double(), fails
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fails:
            raise KeyError("mine")
        s: torch.Tensor = self.net(x.double().reshape(len(x), 3, 4, 4)).to(x)
        return s


def test_a_network_may_convert_its_images_itself() -> None:
    for x in (X, X.flatten(1)):
        assert len(antiadv.attack(Moves(), x, Y, "pgd:steps=2", Linf(0.1)).records) == 2
    with pytest.raises(Interrupted, match="KeyError: 'mine'") as failed:
        antiadv.attack(Moves(fails=True), X.double(), Y, "pgd", Linf(0.1))
    assert isinstance(failed.value.__cause__, KeyError)
    assert (failed.value.outcome, failed.value.unknown) == (None, [0, 1])
    with pytest.raises(BadInput, match=r"found torch\.float32, .*\(KeyError: 'mine'\)") as error:
        antiadv.attack(Moves(fails=True), X, Y, "pgd", Linf(0.1))
    assert isinstance(error.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("attack", "words", "kind", "message"),
    [
        (Chessboard(), {"ball": L2(0.5)}, BadInput, r"chessboard .*linf.*l2:0\.5"),
        ("pgd", {"access": Access.SCORES}, AccessDenied, "pgd .*gradients.*scores.*access=gradients"),
        ("transfer", {"access": Access.GRADIENTS}, AccessDenied, "transfer .*internals.*gradients"),
        ("pgd", {"ball": Linf(math.inf)}, BadInput, r"finite radius.*linf:inf.*linf:8/255"),
        ("pgd", {"ball": Linf(8)}, BadInput, r"at most 1;.*linf:8\..*linf:8/255"),
        ("pgd", {"ball": "linf:8/255"}, BadSpec, r"ball .*found 'linf:8/255'"),
        ("pgd", {"access": "scores"}, BadSpec, r"access .*found 'scores'"),
        ("pgd", {"targeted": "yes"}, BadSpec, "targeted .*found 'yes'"),
        ("pgd", {"queries": 0}, BadSpec, "at least one query.*queries=0"),
        ("pgd", {"queries": 10.5}, BadSpec, "queries .*found 10.5"),
        ("pgd", {"queries": True}, BadSpec, "queries .*found True"),
        ("pgd", {"seed": 1.5}, BadSpec, "seed .*found 1.5"),
        ("pgd", {"batch": 2.5}, BadSpec, "batch .*found 2.5"),
        ("pgd", {"ids": [1, 2]}, BadInput, "whole numbers in a tensor.*found list"),
        ("pgd", {"ids": torch.rand(2)}, BadInput, r"whole numbers in a tensor.*found torch\.float32"),
        ("pgd", {"ids": torch.tensor([True, False])}, BadInput, r"whole numbers in a tensor.*found torch\.bool"),
        ("pgd", {"ids": torch.tensor([1j, 2j])}, BadInput, r"whole numbers in a tensor.*found torch\.complex64"),
        (PGD, {}, BadInput, r"such as PGD\(\).*found <class"),
        (None, {}, BadInput, r"such as PGD\(\).*found None"),
        ("pgd", {"ids": torch.tensor([1, 2, 3])}, BadInput, r"one for each image \(2\).*\(3,\)"),
        ("pdg", {}, BadSpec, "attack 'pdg'.*pgd"),
        ("pgd:step=3", {}, BadSpec, "option 'step'.*step"),
    ],
)
def test_an_attack_that_cannot_work_is_refused_before_the_model_runs(
    attack: Any, words: dict[str, Any], kind: type[Exception], message: str
) -> None:
    seen = []
    model = halfspace(math.inf).model
    model.register_forward_hook(lambda *_: seen.append(1))
    with pytest.raises(kind, match=message):
        antiadv.attack(model, X, Y, attack, **{"ball": Linf(0.1), **words})
    assert not seen


def test_what_cannot_be_served_is_refused() -> None:
    with pytest.raises(BadInput, match=r"floating point.*uint8"):
        antiadv.Replayed(TOY.model)((TOY.x * 255).byte())
    for precision in ("tf32", "half"):
        with pytest.raises(BadInput, match=f"precision {precision} .*cpu"):
            antiadv.Replayed(TOY.model, precision=precision)(TOY.x)
    with pytest.raises(BadInput, match=r"torch tensor.*ndarray"):
        antiadv.AntiAdversary(TOY.model)(TOY.x.numpy())
    with pytest.raises(BadInput, match="gradients"):
        antiadv.AntiAdversary(Around(torch.Tensor.detach))(TOY.x)


def test_an_attack_may_be_called_where_gradients_are_off() -> None:
    plain = antiadv.attack(TOY.model, TOY.x, TOY.y, "pgd", Linf(0.125))
    with torch.inference_mode():
        inside = antiadv.attack(TOY.model, TOY.x * 1, TOY.y * 1, "pgd", Linf(0.125))
    assert inside.records == plain.records


def test_rounding_errors_outside_the_box_are_accepted() -> None:
    x = torch.cat([TOY.x[:1] * 0 - 1e-6, TOY.x[:1] * 0 + 1 + 1e-6])
    outcome = antiadv.attack(TOY.model, x, TOY.model(x).argmax(1), "pgd:steps=2", Linf(0.01))
    assert outcome.images.min() >= 0
    assert outcome.images.max() <= 1


def test_an_outcome_is_a_value() -> None:
    outcome = antiadv.attack(TOY.model, TOY.x, TOY.y, "pgd:steps=2", Linf(0.08))
    with pytest.raises(dataclasses.FrozenInstanceError):
        outcome.records = []  # type: ignore[misc]


def test_a_part_in_training_mode_is_refused() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(4, 3)).eval()
    net[1].train()
    x, y = torch.rand(2, 1, 2, 2), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(BadInput, match="evaluation mode"):
        antiadv.attack(net, x, y, "square", Linf(0.1), queries=5)
    with pytest.raises(BadInput, match="evaluation mode"):
        SmallNoise(net)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rounded_probabilities_are_recognised(dtype: torch.dtype) -> None:
    p = torch.randn(64, 10, generator=torch.Generator().manual_seed(0)).softmax(1).to(dtype)
    with pytest.raises(BadInput, match="probabilities"):
        check_scores(p, torch.rand(64, 1, 2, 2))


class Flaky(nn.Module):
    """Raises TimeoutError at call `at`; with `for_good`, at all later calls too."""

    def __init__(self, net: nn.Module, at: float, for_good: bool = False) -> None:
        super().__init__()
        self.net, self.at, self.for_good, self.calls = net, at, for_good, 0
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls == self.at or (self.for_good and self.calls > self.at):
            raise TimeoutError("no answer")
        s: torch.Tensor = self.net(x)
        return s


def apart(norm: float) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """Six images at growing distances from the boundary, so that some fall before others."""
    toys = [halfspace(norm, n=1, distance=0.01 + 0.02 * k) for k in range(6)]
    return toys[0].model, torch.cat([toy.x for toy in toys]), torch.cat([toy.y for toy in toys])


@pytest.mark.parametrize("name", ATTACKS)
def test_images_found_before_the_classifier_failed_are_kept(name: str) -> None:
    """At whichever call it fails: the samples in the error's outcome are broken, all others are unknown."""
    attack = parse(name)
    net, x, y = apart(max(attack.norms))
    ball = Ball(max(attack.norms), 0.08)
    queries, counted = 700 if name == "nes" else 200, Flaky(net, math.inf)  # a step of nes takes 201
    whole = antiadv.attack(counted, x, y, attack, ball, queries=queries, ids=torch.arange(10, 16))
    kept = []
    for at in sorted({1, 2, counted.calls // 2, counted.calls}):
        with pytest.raises(Interrupted, match="TimeoutError: no answer") as failed:
            antiadv.attack(Flaky(net, at), x, y, attack, ball, queries=queries, ids=torch.arange(10, 16))
        error = failed.value
        assert isinstance(error.__cause__, TimeoutError)
        assert error.outcome.fooled.all()
        assert len(error.outcome.images) == len(error.outcome.records)
        samples = [r.sample for r in error.outcome.records]
        assert sorted([*samples, *error.unknown]) == list(range(10, 16))
        assert set(samples) <= {r.sample for r, fooled in zip(whole.records, whole.fooled, strict=True) if fooled}
        assert error.images.shape == x.shape
        kept.append(len(samples))
    assert kept[0] == 0
    assert kept[-1] == int(whole.fooled.sum()) > 0, "the search was over and only the judge was missing"


def test_records_and_receipt_of_a_failed_attack_count_its_cost() -> None:
    net, x, y = apart(math.inf)
    model = Flaky(net, 8)
    with pytest.raises(Interrupted) as failed:
        antiadv.attack(model, x, y, "pgd:steps=40,step_size=0.05,random_start=false", Linf(0.2))
    outcome = failed.value.outcome
    assert 0 < len(outcome.records) < 6
    assert all(1 < r.queries <= 6 and r.queries == r.gradients for r in outcome.records)
    asked = [7] * len(failed.value.unknown) + [r.queries for r in outcome.records]
    judge = 3 * len(x)  # x before the attack; x and z afterwards
    assert judge < outcome.receipt.forwards < judge + sum(asked)


def test_a_classifier_that_never_answers_again_leaves_the_images() -> None:
    net, x, y = apart(math.inf)
    with pytest.raises(Interrupted) as failed:
        antiadv.attack(Flaky(net, 8, for_good=True), x, y, "pgd:steps=40,step_size=0.05", Linf(0.2))
    assert failed.value.outcome is None
    assert failed.value.unknown == list(range(6))
    assert (net(failed.value.images).argmax(1) != y).any()
    assert in_order(str(failed.value), "images", "6 samples", ".images", "judge")
    assert "nothing is known" not in str(failed.value), "the images are there"


def test_print_shows_what_the_judge_asked() -> None:
    outcome = antiadv.attack(TOY.model, TOY.x, TOY.y, "pgd:steps=2", Linf(0.1), precision="float32")
    assert outcome.judge_queries == 2 * len(TOY.x)
    assert str(outcome).splitlines()[-1].split()[-1] == str(outcome.judge_queries)


@pytest.mark.parametrize("looks", [0, -1, True, 2.0, 10_001, 10**9])
def test_looks_are_limited(looks: int) -> None:
    with pytest.raises(BadInput, match="looks"):
        antiadv.attack(TOY.model, TOY.x, TOY.y, "pgd:steps=1", Linf(0.1), looks=looks)


def test_a_keyboard_interrupt_is_passed_on() -> None:
    def stop(*_: object) -> torch.Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        antiadv.attack(TOY.model, TOY.x, TOY.y, Odd(stop), Linf(0.1))


@pytest.mark.parametrize("attack", ["pgd:steps=3", "square:steps=6"])
def test_a_batch_of_one_changes_records_only_by_rounding(attack: str) -> None:
    """Its kernels add in another order; docs/design/draws.md states the tolerance."""
    net, images = antiadv.models.load("compact:trades"), antiadv.data.load("cifar10:test")
    x, y = images.images(range(8)), images.labels(range(8))
    one, many = (antiadv.attack(net, x, y, attack, L2(0.5), batch=batch).records for batch in (1, 256))
    alike = [(a, b) for a, b in zip(one, many, strict=True) if a.queries == b.queries]
    assert len(alike) >= 7, "a sample on the boundary may fall a step earlier"
    for a, b in alike:
        assert a.distance == pytest.approx(b.distance, rel=1e-5)
        assert a.clean_confidence == pytest.approx(b.clean_confidence, rel=0.011)
        assert a.attacked_confidence == pytest.approx(b.attacked_confidence, rel=0.011)


def fails_at_once() -> nn.Module:
    return Flaky(small_net(), 1)


def fails_later() -> nn.Module:
    return Flaky(small_net(), 4)


@pytest.mark.parametrize("make", ["fails_at_once", "fails_later"])
def test_a_network_that_raises_ends_the_command_line_in_one_sentence(
    make: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "grey.png"
    Image.new("RGB", (8, 8), (90, 120, 200)).save(picture)
    code = main(["attack", str(picture), "--model", f"tests.evaluation.test_attack:{make}", "--out", str(tmp_path)])
    said = capsys.readouterr()
    assert (code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "TimeoutError: no answer" in said.err
