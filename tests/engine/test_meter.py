"""The receipt counts the images through the base network, forward and backward, as hooks of the tests do.

For the anti-adversary layer that is exactly K + 1 forwards and K backwards per query.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import antiadv
from antiadv import AntiAdversary, Linf, attacks
from antiadv.core.engine import Eager
from antiadv.core.threat import Threat
from antiadv.engine.meter import Meter, aside, revision, revision_of, versions
from antiadv.evaluation.shard import attack_and_judge
from tests.engine.probes import Odd, Passes
from tests.toys import halfspace, small_net

ATTACKS = ("pgd:steps=4", "square:steps=6", "transfer")


@pytest.mark.parametrize("steps", [None, 0, 1, 3])
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("batch", [256, 2])
def test_the_receipt_is_what_hooks_saw(steps: int | None, attack: str, batch: int) -> None:
    net = small_net()
    x = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    y = net(x).argmax(1)
    y[3] = (y[3] + 1) % 10  # one is wrong from the start
    model = net if steps is None else AntiAdversary(net, steps)
    receipt = antiadv.attack(model, x, y, attack, Linf(0.01), batch=batch).receipt
    seen, chosen = Passes(net), attacks.parse(attack)
    plain = attack_and_judge(model, chosen, Threat(Linf(0.01), chosen.access), x, y, torch.arange(5), 0, Eager(batch))[
        2
    ]
    assert (plain.forwards, plain.backwards) == (seen.forwards, seen.backwards)
    assert (receipt.forwards, receipt.backwards) == (seen.forwards, seen.backwards), "what is asked of a copy counts"
    assert seen.forwards > 2 * len(x)


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("attack", ["pgd:steps=4", "square:steps=6"])
@pytest.mark.parametrize("batch", [256, 1])
def test_the_layer_costs_k_and_one_forwards_and_k_backwards_a_query(steps: int, attack: str, batch: int) -> None:
    toy = halfspace(math.inf, n=6, distance=0.1)
    outcome = antiadv.attack(AntiAdversary(toy.model, steps), toy.x, toy.y, attack, Linf(0.08), batch=batch)
    queries = sum(r.queries for r in outcome.records)
    gradients = sum(r.gradients for r in outcome.records)
    looks = 2 * len(toy.x)  # the judge's, at x and at z; each time the bare classifier is asked too
    assert queries > 0
    assert outcome.receipt.forwards == (steps + 1) * (queries + looks) + looks
    assert outcome.receipt.backwards == steps * (queries + looks) + gradients


def test_work_on_the_attackers_own_model_is_metered_and_not_charged() -> None:
    toy = halfspace(math.inf, n=6, distance=0.1)
    outcome = antiadv.attack(AntiAdversary(toy.model), toy.x, toy.y, "transfer", Linf(0.08))
    assert [r.queries for r in outcome.records] == [0] * 6
    looks = 2 * 6
    assert outcome.receipt.forwards == 3 * looks + looks + 21 * 6  # 20 steps and the last iterate, on f
    assert outcome.receipt.backwards == 2 * looks + 20 * 6


@pytest.mark.parametrize("shared", [True, False], ids=["one network", "a network each"])
def test_threads_that_attack_at_once_have_the_receipts_of_one_after_the_other(shared: bool) -> None:
    """A receipt counts the passes of its own thread only."""
    nets = [small_net()] * 8 if shared else [small_net(seed=k) for k in range(8)]
    x = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    attacks = ("pgd:steps=4", "square:steps=9", "transfer:attack=(pgd:steps=3)", "fab:steps=3")

    def run(k: int) -> tuple[int, int]:
        model = AntiAdversary(nets[k], steps=1 + k % 3) if k % 2 else nets[k]
        y = nets[k](x[: 1 + k % 6]).argmax(1)
        receipt = antiadv.attack(model, x[: 1 + k % 6], y, attacks[k % 4], Linf(0.01), batch=2, seed=k).receipt
        return receipt.forwards, receipt.backwards

    order = [k % 8 for k in range(32)]
    alone = {k: run(k) for k in range(8)}
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(run, order))
    assert together == [alone[k] for k in order]
    assert not any(net._forward_hooks for net in nets), "and no hook stays"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_threads_on_a_gpu_have_the_records_and_receipts_of_one_after_the_other(precision: str) -> None:
    """They capture graphs and switch precisions, which torch keeps for the complete process."""
    net = small_net().cuda()
    x = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1)).cuda()
    y = net(x).argmax(1)

    def run(k: int) -> tuple[object, ...]:
        layer, chosen = AntiAdversary(net, steps=1 + k % 3), "float32" if k % 2 else precision
        outcome = antiadv.attack(layer, x, y, "square:steps=9", Linf(0.01), seed=k, precision=chosen)
        return outcome.records, outcome.receipt.forwards, outcome.receipt.backwards

    order = [k % 8 for k in range(32)]
    alone = {k: run(k) for k in range(8)}
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(run, order)) == [alone[k] for k in order]


def test_threads_may_share_a_replayed_network() -> None:
    where = "cuda" if torch.cuda.is_available() else "cpu"
    net = small_net().to(where)
    x = torch.rand(64, 3, 8, 8, generator=torch.Generator().manual_seed(1)).to(where)
    parts = [x[k : k + 1 + k % 5] for k in range(40)]
    served = antiadv.Replayed(AntiAdversary(net))
    alone = [served(part) for part in parts]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(served, parts))
    assert all(map(torch.equal, together, alone))


def test_an_attack_that_asks_nothing_costs_the_judges_looks() -> None:
    toy = halfspace(math.inf, n=6)
    outcome = antiadv.attack(toy.model, toy.x, toy.y, Odd(lambda oracle, x, y, ball, draws: x), Linf(0.1))
    assert (outcome.receipt.forwards, outcome.receipt.backwards) == (12, 0)


def test_nothing_is_counted_outside_the_context() -> None:
    toy = halfspace(math.inf, n=6)
    toy.model(toy.x)
    with Meter(toy.model) as meter:
        toy.model(toy.x[:2])
    toy.model(toy.x)
    assert meter.forwards == 2


def test_what_fails_aside_is_not_on_the_bill_either() -> None:
    """A batch that does not fit is sent again in halves. The failed pass is not counted."""
    toy = halfspace(math.inf, n=6)

    def too_much() -> None:
        toy.model(toy.x.requires_grad_()).sum().backward()
        raise torch.OutOfMemoryError("no more memory")

    with Meter(toy.model) as meter:
        toy.model(toy.x[:1])
        with pytest.raises(torch.OutOfMemoryError), aside() as seen:
            too_much()
        assert (meter.forwards, meter.backwards) == (1, 0)
    assert seen == {toy.model: (6, 6)}


def test_a_receipt_says_where_and_with_what() -> None:
    toy = halfspace(math.inf, n=2)
    start = time.perf_counter()
    receipt = antiadv.attack(toy.model, toy.x, toy.y, "pgd:steps=2", Linf(0.05)).receipt
    assert 0 <= receipt.seconds < time.perf_counter() - start + 0.001, "rounded to thousandths"
    assert receipt.device.startswith("cpu ")
    assert receipt.versions["torch"] == torch.__version__
    assert set(versions()) == {"antiadv", "torch", "python"}
    assert receipt.revision == revision()


def test_the_revision_is_that_at_the_beginning_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit during a long run: the code in memory is the older one."""
    head = ["before"]
    monkeypatch.setattr(sys.modules[Meter.__module__], "revision", lambda: head[-1])
    with Meter(torch.nn.Identity()) as meter:
        head.append("after")
        assert meter.receipt(torch.device("cpu")).revision == "before"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    assert revision_of(tmp_path) == "", "no checkout"
    me = ["-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("one = 1\n")
    for words in (["init", "-q"], ["add", "."], [*me, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_a_revision_says_whether_the_code_is_still_that(checkout: Path) -> None:
    clean = revision_of(checkout)
    assert len(clean) == 12
    (checkout / "notes.txt").write_text("no code")
    assert revision_of(checkout) == clean
    (checkout / "src" / "b.py").write_text("two = 2\n")
    assert revision_of(checkout) == f"{clean}+", "a file that is not in it"
    (checkout / "src" / "b.py").unlink()
    (checkout / "src" / "a.py").write_text("one = 2\n")
    assert revision_of(checkout) == f"{clean}+"


def test_the_revision_is_that_of_the_checkout_this_package_lies_in() -> None:
    """Compared without the +, since the checkout may have changed meanwhile."""
    root = Path(antiadv.__file__).resolve().parents[2]
    assert revision.__wrapped__().rstrip("+") == revision_of(root).rstrip("+")
    assert bool(revision.__wrapped__()) == (root / ".git").exists()


def test_a_revision_counts_new_folders_whatever_git_is_told_to_show(checkout: Path) -> None:
    clean = revision_of(checkout)
    subprocess.run(["git", "config", "status.showUntrackedFiles", "no"], cwd=checkout, check=True)
    (checkout / "src" / "new").mkdir()
    (checkout / "src" / "new" / "c.py").write_text("three = 3\n")
    assert revision_of(checkout) == f"{clean}+"


def test_a_checkout_around_an_installed_package_is_not_its_own(checkout: Path) -> None:
    """For example, the package is installed in an environment inside another project under git."""
    assert revision_of(checkout / "src") == ""


def test_code_that_git_cannot_compare_is_not_called_the_same(checkout: Path) -> None:
    clean = revision_of(checkout)
    (checkout / ".git" / "index").write_text("no index")
    assert revision_of(checkout) == f"{clean}+"


def test_where_there_is_no_git_there_is_no_revision(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(checkout))
    assert revision_of(checkout) == ""
