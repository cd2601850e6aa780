"""benchmarks/parity on tiny jobs: it writes, resumes and judges correctly; the published loops count as published; and
the verdicts stored under results/parity follow from their facts."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any  # what a json file holds

import pytest
import torch
from torch import Tensor, nn

from antiadv import data, models
from antiadv.attacks._search.nearest import Nearest
from antiadv.core.ball import Linf
from antiadv.core.errors import BadInput, BadSpec
from antiadv.engine.meter import Meter
from benchmarks import peers, published_loops
from benchmarks.files import pick
from benchmarks.parity.__main__ import perform
from benchmarks.parity.compare import Setting, compare, over_the_edge
from benchmarks.parity.files import read, write
from benchmarks.parity.jobs import JOBS
from benchmarks.parity.sides import full_budget_of_theirs
from benchmarks.parity.verdict import verdict
from benchmarks.peers import PEERS
from tools.docs import parity as pages

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
STORED = sorted((ROOT / "results" / "parity").glob("*.json"))
CPU = Setting(torch.device("cpu"))
APGD = "pyautoattack-apgd-ce-compact-trades"


# ---------------------------------------------------------------- a job, from the command line


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("parity")
    return out / f"{APGD}.json", call("--jobs", APGD, "--samples", "8", "--device", "cpu", "--out", str(out))


def call(*said: str, code: int = 0) -> str:
    script = [sys.executable, "-m", "benchmarks.parity", *said]
    done = subprocess.run(script, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_job_is_written_with_all_that_it_rests_on(run: tuple[Path, str]) -> None:
    facts = read(run[0])
    net, images = models.load("compact:trades"), data.load("cifar10:test")
    assert (facts["weights"], facts["images"]) == (models.digest(net), images.digest)
    assert (facts["ids"], facts["threat"], facts["device"]) == (list(range(8)), "linf:8/255", "cpu")
    assert facts["command"].startswith(f"python -m benchmarks.parity --jobs {APGD} --device cpu --samples 8")
    assert {"torch", "pyautoattack", "numpy", "python"} <= set(facts["versions"])
    right = (net(images.images(range(8))).argmax(1) == images.labels(range(8))).int().tolist()
    assert facts["right"] == right
    for side in ("ours", "theirs"):
        assert all(stood <= was for stood, was in zip(facts[side]["standing"], right, strict=True))
        assert facts[side]["seconds"] is None, "times of a CPU are kept as a ratio only"
    assert facts["seconds_ratio"] > 0
    assert facts["verdict"] == verdict(facts)


def test_passes_are_counted_at_the_network(run: tuple[Path, str]) -> None:
    """Theirs sends 1 + 101 images for every sample, 101 with gradient. Ours sends 101 for a robust sample, 100 with."""
    facts = read(run[0])
    attacked, stands = sum(facts["right"]), sum(facts["ours"]["standing"])
    assert 0 < stands < attacked, "nothing can be learnt from these images"
    assert (facts["theirs"]["forwards"], facts["theirs"]["backwards"]) == (102 * attacked, 101 * attacked)
    assert 101 * stands < facts["ours"]["forwards"] < 101 * attacked
    assert facts["ours"]["forwards"] - facts["ours"]["backwards"] >= stands


def test_what_is_stored_is_not_run_again(run: tuple[Path, str]) -> None:
    path, said = run
    before = path.stat().st_mtime_ns, path.read_bytes()
    assert call("--jobs", APGD, "--samples", "8", "--device", "cpu", "--out", str(path.parent)) == said
    assert (path.stat().st_mtime_ns, path.read_bytes()) == before
    listed = call("--list", "--out", str(path.parent)).splitlines()
    assert [line.split()[0] for line in listed] == list(JOBS)
    assert [line.split()[0] for line in listed if line.endswith("stored")] == [APGD]


def test_a_file_that_is_no_comparison_is_named(tmp_path: Path) -> None:
    (tmp_path / f"{APGD}.json").write_text('{"format": 1')
    said = call("--jobs", APGD, "--out", str(tmp_path), code=1)
    assert f"{APGD}.json is not a stored comparison" in said
    assert "Traceback" not in said


def test_an_unknown_job_is_told_in_a_sentence() -> None:
    with pytest.raises(BadSpec, match=r"'apgd-ce'.*pyautoattack-apgd-ce"):
        pick("apgd-ce", JOBS)
    names = [job.name for job in pick("pyautoattack-*-compact-trades", JOBS)]
    assert len(names) == 5
    assert names[-1] == "pyautoattack-worst-compact-trades"


def test_a_package_that_is_not_there_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torchattacks", None)
    with pytest.raises(BadInput, match=r"torchattacks.*make bench"):
        perform(JOBS["torchattacks-apgd-compact-standard"], tmp_path, 2, CPU)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- the judge


def test_both_sides_are_judged_and_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that fool outside the ball do not break their samples. An image with NaN is refused."""
    broken = False

    def noise(task: Any, short: bool) -> Any:
        z = torch.rand(task.x.shape, generator=torch.Generator().manual_seed(0))
        return peers.Found(z.index_fill(0, torch.tensor([0]), torch.nan) if broken else z)

    monkeypatch.setitem(PEERS, "noise", peers.Peer("torch", "noise", noise))
    job = replace(JOBS[APGD], peer="noise", ours="pgd:steps=2", model="compact:standard")
    facts = compare(job, 8, CPU)
    assert facts["theirs"]["standing"] == facts["right"]
    assert sum(facts["ours"]["standing"]) < sum(facts["right"])
    assert (facts["theirs"]["forwards"], facts["theirs"]["backwards"]) == (0, 0)
    broken = True
    with pytest.raises(BadInput, match="NaN"):
        compare(job, 8, CPU)


def test_attacks_on_labels_begin_at_one_place_and_spend_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Nearest.start
    name = "foolbox boundary"
    monkeypatch.setitem(PEERS, name, replace(PEERS[name], run=peers._foolbox("BoundaryAttack", 30)))
    facts = compare(JOBS["foolbox-boundary-compact-standard"], 3, CPU)
    assert Nearest.start is own
    assert facts["right"] == [1, 1, 1]
    assert facts["budget"] == facts["theirs"]["forwards"] // 3
    assert 3 * (facts["budget"] - 1) <= facts["ours"]["forwards"] <= 3 * facts["budget"]
    (check,) = verdict(facts)["checks"]
    for side in ("ours", "theirs"):
        assert sorted(facts[side]["distance"])[1] == pytest.approx(check[side], abs=1e-4)
    assert check["ratio"]["low"] <= check["ratio"]["value"] <= check["ratio"]["high"]


def test_what_rounding_puts_back_is_judged_a_hundredth_further_out() -> None:
    net, x, y = Steep(0.5), torch.full((3, 3, 4, 4), 0.5), torch.zeros(3, dtype=torch.int64)
    d = (0.5 * net.w / net.w.square().sum()).view(1, 3, 4, 4)  # the shortest way to the boundary
    z = x + torch.tensor([0.999, 1.1, 0.5]).view(-1, 1, 1, 1) * d
    judged = over_the_edge(net, x, y, z)
    assert net(z).argmax(1).tolist() == [0, 1, 0]
    assert net(judged).argmax(1).tolist() == [1, 1, 0], "on the edge, beyond it, and far from it"
    assert torch.equal(judged[1], z[1])


def test_the_budget_is_what_theirs_sends_for_a_sample_that_stands() -> None:
    """The authors' Square: a prediction, the stripes, 5,000 proposals, and a prediction at the end."""
    task = peers.Task(nn.Identity(), torch.rand(2, 3, 8, 8), torch.tensor([1, 0]), 10, Linf(0.1), 0)
    assert full_budget_of_theirs(JOBS["pyautoattack-square-compact-trades"], task) == 5003


# ---------------------------------------------------------------- the rules


def facts_of(kind: str, ours: dict[str, Any], theirs: dict[str, Any], points: float = 0.5) -> dict[str, Any]:
    n = len(next(iter(ours.values())))
    return {"kind": kind, "points": points, "ids": list(range(n)), "ours": ours, "theirs": theirs}


def test_half_a_point_is_one_sample_of_two_hundred() -> None:
    theirs = {"standing": [1] * 100 + [0] * 100}
    for more, holds in ((0, True), (1, True), (2, False)):
        facts = facts_of("standing", {"standing": [1] * (100 + more) + [0] * (100 - more)}, theirs)
        found = verdict(facts)
        assert found["holds"] is holds
        assert found["checks"][0]["difference"]["value"] == pytest.approx(more / 200)
    assert not verdict({**facts_of("worst", {"standing": [1] * 101 + [0] * 99}, theirs), "points": 0.3})["holds"]


def test_accuracy_after_so_many_queries_is_in_the_authors_counting() -> None:
    """A budget of 5,000 ends before the update that would reach it. None: it stands; 0: it was wrong from the start."""
    fell = [None, 0, 100, 4900, 5000, 9900]
    side = {"standing": [1, 0, 0, 0, 0, 0], "fell": fell}
    five, ten = verdict(facts_of("falls", side, side, 2.0))["checks"]
    assert five["ours"]["value"] == pytest.approx(3 / 6, abs=1e-6)
    assert ten["ours"]["value"] == pytest.approx(1 / 6, abs=1e-6)
    slower = {"standing": [1, 0, 0, 0, 0, 0], "fell": [None, 0, 100, 5000, 5000, 9900]}
    found = verdict(facts_of("falls", slower, side, 2.0))
    assert [check["holds"] for check in found["checks"]] == [False, True]
    assert not found["holds"]


def test_distances_may_be_a_twentieth_longer() -> None:
    theirs = {"distance": [1.0, 2.0, 3.0]}
    for ours, holds in (([9.0, 2.09, 1.0], True), ([2.11, 2.11, 2.11], False)):
        assert verdict(facts_of("distance", {"distance": ours}, theirs))["holds"] is holds


def test_a_worst_case_is_made_of_what_is_stored(run: tuple[Path, str], tmp_path: Path) -> None:
    job, part = JOBS["pyautoattack-worst-compact-trades"], read(run[0])
    with pytest.raises(BadInput, match=r"pyautoattack-apgd-ce-compact-trades, .* not found"):
        perform(job, tmp_path, None, CPU)
    for k, name in enumerate(job.parts):
        stands = [int(i != k and was) for i, was in enumerate(part["right"])]
        own = {side: {**part[side], "standing": stands} for side in ("ours", "theirs")}
        write({**part, **own, "job": name}, tmp_path)
    facts = perform(job, tmp_path, None, CPU)
    assert facts["ours"]["standing"] == [int(i > 3 and was) for i, was in enumerate(part["right"])]
    assert facts["theirs"]["forwards"] == 4 * part["theirs"]["forwards"]
    assert facts["verdict"]["holds"]
    write({**part, "job": job.parts[1], "seed": 1}, tmp_path)
    with pytest.raises(BadInput, match="differ in seed"):
        perform(job, tmp_path, None, CPU)


# ---------------------------------------------------------------- the published loops


class Steep(nn.Module):
    """Two classes: 0 while <w, x> is below a bound."""

    def __init__(self, bound: float) -> None:
        super().__init__()
        self.bound, self.w = bound, torch.linspace(-1, 1, 48)

    def forward(self, x: Tensor) -> Tensor:
        v = (x.flatten(1) @ self.w) - self.bound
        return torch.stack([-v, v], 1)


@pytest.mark.parametrize(("name", "each", "updates"), [("nes", 101, 9), ("bandits", 3, 499)])
def test_the_loops_count_as_published(name: str, each: int, updates: int) -> None:
    """1,000 queries pay for 9 updates of 50 pairs and for 499 of one; a look after each is sent and not counted."""
    x = torch.full((2, 3, 4, 4), 0.5)
    net, more = Steep(100.0), {"tile": 2} if name == "bandits" else {}
    with torch.random.fork_rng(), Meter(net) as meter:
        z, fell = getattr(published_loops, name)(net, x, torch.tensor([0, 0]), 0.1, 1000, **more)
    assert meter.forwards == 2 * updates * each
    assert fell.tolist() == [0, 0]
    assert (z - x).abs().max() <= 0.1 + 1e-6


@pytest.mark.parametrize("name", ["nes", "bandits"])
def test_the_loops_climb_and_keep_the_first_that_fools(name: str) -> None:
    """Of the reach ε·|w|₁ along w, a third is enough for the first sample, and the second is out of it."""
    x = torch.full((2, 3, 4, 4), 0.5)
    net, more = Steep(0.0), {"tile": 4} if name == "bandits" else {"pairs": 20}
    reach = 0.1 * net.w.abs().sum()
    x[0] -= (reach / 3 * net.w / net.w.square().sum()).view(3, 4, 4)
    x[1] -= (reach * 2 * net.w / net.w.square().sum()).view(3, 4, 4)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        z, fell = getattr(published_loops, name)(net, x, torch.tensor([0, 0]), 0.1, 1000, **more)
    assert net(z).argmax(1).tolist() == [1, 0]
    assert fell[0] > 0
    assert fell[0] % (2 * more.get("pairs", 1)) == 0
    assert fell[1] == 0
    closer = net(z)[1, 1] - net(x)[1, 1]
    assert closer > 0.5 * reach, "the second went most of its way"


# ---------------------------------------------------------------- what is stored


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_verdicts_follow_from_stored_facts(path: Path) -> None:
    facts = read(path)
    job = JOBS[facts["job"]]
    assert (facts["model"], facts["threat"], facts["points"]) == (job.model, str(job.ball), job.points)
    if job.kind != "worst":
        assert (facts["ours"]["attack"], facts["theirs"]["attack"]) == (job.ours, PEERS[job.peer].said)
    assert facts["weights"] == models.digest(models.load(job.model))
    assert facts["images"] == data.load("cifar10:test").digest
    assert facts["verdict"] == verdict(facts)


def test_the_page_says_plainly_where_a_comparison_fails(run: tuple[Path, str], tmp_path: Path) -> None:
    part = read(run[0])
    write({**part, "ours": {**part["ours"], "standing": part["right"]}}, tmp_path / "results" / "parity")
    page = pages.page(tmp_path)
    assert "**0 of 1 comparisons keep their rule.** These do not:" in page
    (row,) = [line for line in page.splitlines() if line.startswith("| compact:trades")]
    assert row.endswith("| **no** |")
    assert f"{part['theirs']['forwards']:,}" in row
    write({**part, "ours": part["theirs"]}, tmp_path / "results" / "parity")
    assert "**1 of 1 comparisons keep their rule.**" in pages.page(tmp_path)
    assert json.dumps(part["command"])[1:-1] in pages.page(tmp_path)
