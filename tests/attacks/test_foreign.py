"""Attacks of other libraries: counted, capped and judged like ours, and ours in foolbox's shape."""

from __future__ import annotations

import functools
import random
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv import attacks
from antiadv.attacks.foreign.counting_model import CountingModel
from antiadv.attacks.foreign.libraries import Foreign, Level, arguments
from antiadv.attacks.foreign.ours import AsArt, AsFoolbox
from antiadv.core.ball import Ball
from antiadv.core.errors import AccessDenied, BadInput, BadSpec
from antiadv.reporting.measures import robust_accuracy
from tests.toys import Halfspace

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it imports a deprecated module of scipy
    import foolbox

SHAPE = (3, 4, 4)
X = 0.5 + 0.05 * (torch.rand(6, *SHAPE, generator=torch.Generator().manual_seed(1)) - 0.5)


def halfspace() -> tuple[nn.Module, Tensor, Tensor, float]:
    """A linear network, images, labels, and a radius that breaks all of them."""
    net = Halfspace(SHAPE)
    y = net(X).argmax(1)
    distance = (net(X)[:, 0] - net(X)[:, 1]).abs() / net.w.abs().sum()
    return net, X, y, float(distance.max()) * 1.2


class Counted(nn.Module):
    """Counts the images that reach the network."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.images = net, 0
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.images += len(x)
        s: Tensor = self.net(x)
        return s


class Centred(nn.Module):
    """A network of images in [−1, 1]."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self.net((x + 1) / 2)
        return s


def numpy_state() -> bytes:
    return bytes(np.random.get_state(legacy=False)["state"]["key"])  # noqa: NPY002  what other libraries use


def fast_sign(model: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """An attack as people write it: one step along the sign of the gradient."""
    z = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(nn.functional.cross_entropy(model(z), y), z)
    return (x + eps * g.sign()).clamp(0, 1)


def half_of_them(model: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """Asks about the samples with even numbers only, three times each."""
    for _ in range(3):
        model(x[::2])
    return x


def test_foolbox_breaks_what_can_be_broken_and_is_counted() -> None:
    net, x, y, eps = halfspace()
    found = antiadv.attack(net, x, y, "foolbox:LinfPGD,options=(steps=10+rel_stepsize=0.4)", antiadv.Linf(eps))
    assert found.robust_accuracy == 0
    assert all(10 <= record.queries <= 12 for record in found.records)
    assert all(record.gradients == 10 for record in found.records)


STEPS = "options=(steps=10)"
ONE_BY_ONE = "art:HopSkipJump,level=labels,options=(max_iter=2+max_eval=100+init_eval=10+verbose=false)"


@pytest.mark.filterwarnings("ignore")  # of the libraries, about their own imports
@pytest.mark.parametrize(
    ("text", "norm", "budget"),
    [
        (f"torchattacks:PGD,{STEPS}", "linf", None),
        (f"torchattacks:PGD,{STEPS}", "linf", 4),
        (f"torchattacks:PGDL2,{STEPS}", "l2", None),
        ("torchattacks:Square,level=scores,options=(n_queries=50)", "linf", 20),
        ("art:ProjectedGradientDescent,options=(max_iter=10+verbose=false)", "linf", None),
        ("art:ProjectedGradientDescent,options=(max_iter=10+eps_step=0.01+verbose=false)", "linf", 5),
        ("art:DeepFool,options=(max_iter=10+verbose=false)", "l2", None),
        (ONE_BY_ONE, "l2", None),
        (ONE_BY_ONE, "l2", 60),
    ],
)
def test_torchattacks_and_art_are_counted_and_judged(
    text: str, norm: str, budget: int | None, capfd: pytest.CaptureFixture[str]
) -> None:
    name = text.partition(":")[0]
    pytest.importorskip(name, reason=f"{name} is not installed; make bench has it")
    net, x, y, eps = halfspace()
    ball = antiadv.Linf(eps) if norm == "linf" else antiadv.L2(1.0)
    counted = Counted(net)
    found = antiadv.attack(counted, x, y, text, ball, queries=budget)
    asked = [record.queries for record in found.records]
    assert found.robust_accuracy < 1
    assert min(asked) > 0
    assert max(asked) <= (budget or counted.images)
    assert sum(asked) <= counted.images
    assert capfd.readouterr().out == ""  # torchattacks prints if it finds no device


def one_after_another(model: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    """Asks about each sample until it falls, as libraries for numpy do."""
    z = x.clone()
    for i in range(len(x)):
        for step in range(1, 10):
            z[i] = fast_sign(model, x[i : i + 1], y[i : i + 1], eps * step / 8)[0]
            if model(z[i : i + 1]).argmax(1) != y[i]:
                break
    return z


def test_a_budget_that_ends_one_sample_leaves_the_others_theirs() -> None:
    net, x, y, eps = halfspace()
    text = "function:(tests.attacks.test_foreign:one_after_another)"
    free = antiadv.attack(net, x, y, text, antiadv.Linf(eps))
    asked = [record.queries for record in free.records]
    budget = sorted(asked)[len(asked) // 2]
    capped = antiadv.attack(net, x, y, text, antiadv.Linf(eps), queries=budget)
    assert min(asked) < budget < max(asked)
    assert capped.fooled.tolist() == [q <= budget for q in asked]
    assert max(record.queries for record in capped.records) <= budget


@pytest.mark.slow
def test_pyautoattack_agrees_with_ours_and_its_queries_are_those_that_reached_the_network() -> None:
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(48, 10)).eval()
    x = torch.rand(6, *SHAPE, generator=torch.Generator().manual_seed(2))
    y, small = net(x).argmax(1), antiadv.Linf(0.08)
    counted = Counted(net)
    theirs = antiadv.attack(counted, x, y, "pyautoattack", small)
    ours = antiadv.attack(net, x, y, "apgd", small)
    assert theirs.fooled.tolist() == ours.fooled.tolist()
    assert 0 < ours.robust_accuracy < 1
    assert sum(record.queries for record in theirs.records) <= counted.images


def test_the_budget_ends_the_attack_and_keeps_what_was_found() -> None:
    net, x, y, eps = halfspace()
    found = antiadv.attack(
        net, x, y, "foolbox:LinfPGD,options=(steps=40+rel_stepsize=0.4)", antiadv.Linf(eps), queries=8
    )
    assert max(record.queries for record in found.records) <= 8
    assert found.robust_accuracy == 0


def test_labels_suffice_for_an_attack_on_labels_and_not_for_gradients() -> None:
    net, x, y, _ = halfspace()
    ball = antiadv.L2(3)
    found = antiadv.attack(net, x, y, "foolbox:HopSkipJumpAttack,options=(steps=2),level=labels", ball)
    assert found.robust_accuracy < 1
    with pytest.raises((AccessDenied, RuntimeError)):
        antiadv.attack(net, x, y, "foolbox:LinfPGD,level=scores", antiadv.Linf(0.1))


def test_a_function_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    net, x, y, eps = halfspace()
    found = antiadv.attack(net, x, y, "function:(tests.attacks.test_foreign:fast_sign)", antiadv.Linf(eps))
    assert found.robust_accuracy == 0
    (tmp_path / "nearby.py").write_text("def nothing(model, x, y, eps):\n    return x[:1]\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="shape"):
        antiadv.attack(net, x, y, "function:(nearby:nothing)", antiadv.Linf(eps))


def test_an_edited_function_has_results_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    attack = attacks.parse("function:(edited:one)")
    assert attacks.files_digest(attack) == "", "no such file yet"
    digests = set()
    for step in (1, 2):
        (tmp_path / "edited.py").write_text(f"def one(model, x, y, eps):\n    return x + {step} * eps\n")
        digests.add(attacks.files_digest(attack))
    assert len(digests) == 2
    assert "edited" not in sys.modules, "it was looked for, not run"


def test_some_of_the_samples_are_charged_to_the_right_ones() -> None:
    net, x, y, eps = halfspace()
    found = antiadv.attack(net, x, y, "function:(tests.attacks.test_foreign:half_of_them)", antiadv.Linf(eps))
    assert [record.queries for record in found.records] == [3, 0, 3, 0, 3, 0]


@dataclass(frozen=True)
class RandomStarts(Foreign):
    """As HopSkipJump of ART: random images of the first samples, as many as there are samples."""

    orderless: ClassVar[bool] = True
    level: Level = "labels"

    def _run(self, counted: CountingModel, x: Tensor, y: Tensor, ball: Ball) -> Tensor:
        for _ in x:
            counted(torch.rand(6, *x.shape[1:]))
        return x


def test_attacks_that_do_not_keep_to_the_batch_run_on_one_sample_at_a_time() -> None:
    net, x, y, eps = halfspace()
    found = antiadv.attack(net, x, y, RandomStarts(), antiadv.Linf(eps))
    assert [record.queries for record in found.records] == [6] * len(x)
    alone = {text: attacks.parse(text).alone for text in ("art", "art:level=scores", "torchattacks:level=labels")}  # type: ignore[attr-defined]
    assert list(alone.values()) == [False, True, True]
    assert [attacks.parse(text).edition for text in alone] == [1, 2, 2]


@pytest.mark.filterwarnings("ignore")  # of ART, about its own imports
def test_random_starts_of_art_are_charged_to_their_own_sample() -> None:
    pytest.importorskip("art", reason="ART is not installed; make bench has it")
    net, x, y, _ = halfspace()
    text = "art:HopSkipJump,level=labels,options=(max_iter=1+max_eval=6+init_eval=6+verbose=false)"
    found = antiadv.attack(net, x, y, text, antiadv.L2(1.0))
    assert min(r.queries for r in found.records) >= 32, "31 of its steps, and at least one random start"


@pytest.mark.parametrize("given", [fast_sign, functools.partial(fast_sign), lambda *a: fast_sign(*a)])
def test_a_function_in_hand_is_an_attack(given: Any) -> None:
    net, x, y, eps = halfspace()
    counted = Counted(net)
    found = antiadv.attack(counted, x, y, given, antiadv.Linf(eps))
    named = antiadv.attack(net, x, y, "function:(tests.attacks.test_foreign:fast_sign)", antiadv.Linf(eps))
    assert found.images.equal(named.images)
    assert [(r.queries, r.gradients) for r in found.records] == [(1, 1)] * len(x)
    assert found.robust_accuracy == 0
    assert "InHand" not in repr(found)
    with pytest.raises(BadInput, match="shape"):
        antiadv.attack(net, x, y, lambda model, x, y, eps: x[:1], antiadv.Linf(eps))


def test_a_module_of_ones_own_that_is_not_there_is_not_asked_of_pip(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    net, x, y, eps = halfspace()
    (tmp_path / "halfway.py").write_text("import no_such_package\n")
    (tmp_path / "faulty.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    for module, word in (("mine_not_here", "mine_not_here.py"), ("halfway", "no_such_package"), ("faulty", "Zero")):
        with pytest.raises(BadInput, match=word) as caught:
            antiadv.attack(net, x, y, f"function:({module}:attack)", antiadv.Linf(eps))
        assert "pip" not in str(caught.value)
    with pytest.raises(BadInput, match=r"antiadv\.wrap"):
        antiadv.attack(lambda images: images, x, y, "square", antiadv.Linf(eps))  # type: ignore[arg-type]


def test_global_random_numbers_are_put_back_and_results_repeat() -> None:
    net, x, y, eps = halfspace()
    before = torch.random.get_rng_state(), numpy_state(), random.getstate()
    runs = [antiadv.attack(net, x, y, "foolbox:LinfPGD", antiadv.Linf(eps / 2)).images for _ in range(2)]
    assert torch.equal(*runs)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert numpy_state() == before[1]
    assert random.getstate() == before[2]


@pytest.mark.parametrize(
    "text", ["foolbox:NoSuchAttack", "art:Nothing", "torchattacks:Nothing", "function:(no.such:one)"]
)
def test_what_is_missing_is_named(text: str) -> None:
    net, x, y, eps = halfspace()
    with pytest.raises((BadInput, BadSpec)):
        antiadv.attack(net, x, y, text, antiadv.Linf(eps))


def test_texts_read_back() -> None:
    text = "foolbox:attack=L2PGD,options=(steps=40+rel_stepsize=0.1)"
    assert antiadv.core.spec.text(attacks.parse(text)) == text
    with pytest.raises(BadSpec):
        arguments("steps")


def test_ours_as_foolbox_calls_it() -> None:
    net, x, y, eps = halfspace()
    model = foolbox.PyTorchModel(net, bounds=(0, 1))
    criterion = foolbox.criteria.Misclassification(y)
    images, _, fooled = AsFoolbox("pgd")(model, x, criterion, epsilons=eps)
    assert fooled.all()
    assert images.shape == x.shape
    _, _, each = AsFoolbox("pgd")(model, x, y, epsilons=[0.0, eps])
    assert each.shape == (2, 6)
    assert each[1].all()
    assert not each[0].any()


def test_ours_in_foolbox_keeps_its_bounds() -> None:
    net, x, y, eps = halfspace()
    unit = foolbox.PyTorchModel(net, bounds=(0, 1))
    model = foolbox.PyTorchModel(Centred(net), bounds=(-1, 1))
    ours, _, _ = AsFoolbox("pgd")(unit, x, y, epsilons=eps)
    images, _, fooled = AsFoolbox("pgd")(model, 2 * x - 1, y, epsilons=2 * eps)
    torch.testing.assert_close(images, 2 * ours - 1)
    assert fooled.all()
    assert images.min() < 0


def test_ours_in_foolbox_reaches_a_target() -> None:
    net, x, y, eps = halfspace()
    model = foolbox.PyTorchModel(net, bounds=(0, 1))
    images, _, reached = AsFoolbox("pgd")(model, x, foolbox.criteria.TargetedMisclassification(1 - y), epsilons=eps)
    assert reached.all()
    assert net(images).argmax(1).equal(1 - y)
    with pytest.raises(BadInput):
        AsFoolbox("pgd")(model, x, object(), epsilons=eps)


@pytest.mark.filterwarnings("ignore")  # of ART, about its own imports
def test_ours_as_art_calls_it() -> None:
    art = pytest.importorskip("art.estimators.classification", reason="ART is not installed; make bench has it")
    net, x, y, eps = halfspace()
    classifier = art.PyTorchClassifier(net, nn.CrossEntropyLoss(), SHAPE, 2, clip_values=(0, 1), device_type="cpu")
    ours = antiadv.attack(net, x, y, "pgd", antiadv.Linf(eps)).images
    for labels in (y.numpy(), np.eye(2)[y.numpy()], None):
        z = AsArt(classifier, "pgd", eps).generate(x=x.numpy(), y=labels)
        assert torch.equal(torch.from_numpy(z), ours)
    assert (classifier.predict(z).argmax(1) != y.numpy()).all()


def test_the_table_of_the_page_is_what_is_stored() -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "other-libraries.md").read_text().splitlines()
    lines = {attacks.parse(line.split("`")[1]): line for line in page if line.startswith("| `")}
    store = antiadv.Store(root / "results" / "other-libraries")
    found = {attacks.parse(cell.attack): (cell.threat, store.read(cell)) for cell in store.cells()}
    assert found.keys() == lines.keys()
    for attack, (threat, records) in found.items():
        asked = [sum(getattr(r, k) for r in records) / len(records) for k in ("queries", "gradients")]
        numbers = robust_accuracy(records, threat.ball), f"{asked[0]:.1f}", f"{asked[1]:.1f}"
        assert lines[attack].endswith("".join(f"| {number} " for number in numbers) + "|")
        assert len(records) == 100
