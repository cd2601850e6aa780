"""Certificates: exact on a linear classifier, wrong no more often than promised, and stored sample by sample."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm
from torch import Tensor, nn

import antiadv
from antiadv.cli.__main__ import main
from antiadv.core.errors import BadInput, StoreMismatch
from antiadv.data.dataset import Dataset
from antiadv.data.dataset import digest as data_digest
from antiadv.defences.smoothing import Smoothing
from antiadv.engine.fast import Fast
from antiadv.evaluation import Resources
from antiadv.evaluation.certify import (
    COUNT,
    GUESS,
    Certificate,
    Certified,
    Setting,
    certify,
    lower_bound,
    radius,
    votes_for,
)
from antiadv.evaluation.certify_stored import Stored, certify_stored
from tests.toys import halfspace, small_net

SMALL = (1, 2, 2)

# ---------------------------------------------------------------- the numbers


@pytest.mark.parametrize("n", [1, 20, 200])
@pytest.mark.parametrize("alpha", [0.001, 0.1, 0.5])
def test_the_bound_is_too_high_with_probability_alpha_at_most(n: int, alpha: float) -> None:
    """Exact: the probability of every number of votes, for many true shares."""
    bounds = np.array([lower_bound(votes, n, alpha) for votes in range(n + 1)])
    assert (np.diff(bounds) > 0).all()
    for share in np.linspace(0.005, 0.995, 100):
        assert binom.pmf(np.arange(n + 1), n, share)[bounds > share].sum() <= alpha * (1 + 1e-9)


def test_the_bound_and_the_radius_have_the_values_of_the_formulas() -> None:
    assert lower_bound(0, 50, 0.01) == 0
    assert lower_bound(50, 50, 0.01) == pytest.approx(0.01 ** (1 / 50))
    assert binom.sf(69, 100, lower_bound(70, 100, 0.05)) == pytest.approx(0.05)  # by its definition
    assert radius(0.25, 0.5) == radius(0.25, 0.2) == 0
    assert radius(0.25, norm.cdf(1.5)) == pytest.approx(0.375)


def test_radii_of_a_linear_classifier_are_below_the_true_ones_and_close() -> None:
    """The smoothed classifier of a half-space is the half-space, so its radius is the distance to the boundary."""
    for distance in (0.05, 0.3):
        toy = halfspace(2, n=4, shape=SMALL, distance=distance)
        made = certify(toy.model, toy.x, toy.y, std=0.25, n=20_000)
        assert [r.guess for r in made.records] == toy.y.tolist()
        for r in made.records:
            assert r.votes / 20_000 == pytest.approx(norm.cdf(distance / 0.25), abs=0.015)
            assert distance * 0.8 < r.radius < distance
        assert made.accuracy(distance * 0.8) == 1
        assert made.accuracy(distance) == 0
    few = certify(toy.model, toy.x, toy.y, std=0.25, n=100)
    assert max(r.radius for r in few.records) < min(r.radius for r in made.records)


def test_a_certificate_is_wrong_as_often_as_alpha_says() -> None:
    """Four hundred independent certificates: wrong in about a tenth of the cases, and not much more."""
    toy = halfspace(2, n=2, shape=SMALL, distance=0.1)
    repeats, alpha = 400, 0.1
    x, y = toy.x[:1].repeat(repeats, 1, 1, 1), toy.y[:1].repeat(repeats)
    made = certify(toy.model, x, y, std=0.25, n0=20, n=300, alpha=alpha, batch=300)
    # a certificate for the other class would be wrong at any radius, because g is of the true class here
    wrong = sum(r.radius > 0.1 or (r.guess != r.label and not r.abstained) for r in made.records)
    assert binom.ppf(1e-4, repeats, alpha / 2) < wrong < binom.ppf(1 - 1e-4, repeats, alpha)


def test_points_on_the_boundary_get_certificates_as_rarely_as_alpha_says() -> None:
    """Any certificate is wrong there. A few must be expected: one of 1000 with alpha 0.001."""
    toy = halfspace(2, n=2, shape=SMALL, distance=0.0)
    repeats, alpha = 400, 0.05
    x, y = toy.x[:1].repeat(repeats, 1, 1, 1), toy.y[:1].repeat(repeats)
    made = certify(toy.model, x, y, n0=20, n=200, alpha=alpha, batch=200)
    assert repeats - made.abstained < binom.ppf(1 - 1e-4, repeats, alpha)


def test_the_curve_counts_the_true_class_alone() -> None:
    rows = [(0, 0, 0.3), (1, 1, 0.1), (0, 1, 0.4), (1, 1, 0.0)]
    made = Certified(Setting(), [Certificate(i, y, guess, 9, 0.6, r) for i, (y, guess, r) in enumerate(rows)])
    assert [made.accuracy(r) for r in (0, 0.1, 0.25, 0.3)] == [0.5, 0.25, 0.25, 0]
    assert [p.radius for p in made.curve()] == [0, 0.25, 0.5, 0.75]  # the largest is 0.25 · Φ⁻¹(0.001^(1/10000)) = 0.80
    assert all(p.low <= p.certified <= p.high for p in made.curve())
    assert made.abstained == 1
    assert len(Certified(Setting(std=1000.0), made.records).curve()) <= 21
    with pytest.raises(BadInput):
        Certified(Setting(), []).curve()


# ---------------------------------------------------------------- random numbers and input


def test_results_do_not_depend_on_batch_order_or_company() -> None:
    toy = halfspace(2, n=5, shape=SMALL)
    how = {"n0": 30, "n": 200, "seed": 3}
    whole = certify(toy.model, toy.x, toy.y, **how).records  # type: ignore[arg-type]
    assert certify(toy.model, toy.x, toy.y, batch=7, **how).records == whole  # type: ignore[arg-type]
    rows = torch.tensor([4, 1])
    some = certify(toy.model, toy.x[rows], toy.y[rows], ids=rows, **how).records
    assert some == [whole[4], whole[1]]
    assert antiadv.certify(toy.model, toy.x, toy.y, n0=30, n=200, seed=4).records != whole


class Seen(nn.Module):
    """Keeps the images that it is asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.images: list[Tensor] = []
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.images.append(x.clone())
        return torch.stack([x.flatten(1).sum(1), -x.flatten(1).sum(1)], 1)


def test_the_copies_that_count_are_others_than_those_that_choose() -> None:
    net = Seen()
    image = torch.full((3, 8, 8), 0.5)
    count = votes_for(net, image, 7, Setting(std=0.5), Fast(100))
    assert [int(count(stage, 150).sum()) for stage in (GUESS, COUNT)] == [150, 150]
    noise = (torch.cat(net.images) - image).flatten(1) / 0.5
    assert len(noise.unique(dim=0)) == 300
    assert abs(noise.mean()) < 5 / math.sqrt(noise.numel())
    assert noise.std() == pytest.approx(1, abs=0.02)


class Broken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        s = torch.stack([x.flatten(1).sum(1), x.flatten(1).mean(1)], 1)
        return s.masked_fill((x > 1.2).flatten(1).any(1)[:, None], math.nan)


def test_bad_input_is_refused() -> None:
    toy = halfspace(2, n=2, shape=SMALL)
    for model in (Smoothing(toy.model), nn.Sequential(Smoothing(toy.model)).eval(), Broken().eval()):
        with pytest.raises(BadInput):
            certify(model, toy.x, toy.y, n=100)
    with pytest.raises(BadInput, match="evaluation mode"):
        certify(small_net().train(), toy.x, toy.y)
    with pytest.raises(BadInput, match="labels"):
        certify(toy.model, toy.x, toy.y + 4, n=10)
    for wrong in ({"std": 0.0}, {"std": math.nan}, {"std": "a"}, {"alpha": 0.0}, {"alpha": 1.0}, {"n": 0}, {"n0": 0}):
        with pytest.raises(BadInput):
            certify(toy.model, toy.x, toy.y, **wrong)
    assert certify(toy.model, toy.x[:0], toy.y[:0]).records == []


# ---------------------------------------------------------------- stored


class Sum(nn.Module):
    """Three classes by the brightness of three bands; raises at the image after the next `left` passes."""

    def __init__(self, scale: float = 1.0, left: int = 10**9) -> None:
        super().__init__()
        self.scale, self.left = scale, left
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("it stopped")
        return x.flatten(1)[:, :48].reshape(len(x), 3, 16).mean(2) * self.scale


def run(net: nn.Module, samples: range, store: Path, **more: float) -> Stored:
    pixels = (np.arange(6 * 48).reshape(6, 4, 4, 3) * 37 % 256).astype(np.uint8)
    labels = np.arange(6, dtype=np.int64) % 3
    dataset = Dataset("arrays", ("a", "b", "c"), data_digest(pixels, labels), pixels, labels)
    resources = Resources("cpu", models={"mine": net}, data={"arrays:here": dataset})
    setting = Setting(n0=20, n=100, **more)  # type: ignore[arg-type]
    return certify_stored(
        resources, model="mine", data="arrays:here", samples=samples, setting=setting, store=store, batch=50
    )


def test_a_run_continues_after_a_failure_and_repeats_nothing(tmp_path: Path) -> None:
    whole = run(Sum(), range(6), tmp_path / "whole").certified.records
    with pytest.raises(RuntimeError, match="stopped"):
        run(Sum(left=12), range(6), tmp_path / "parts")  # probes take a few passes, a sample takes three
    (folder,) = (tmp_path / "parts").iterdir()
    lines = (folder / "000000.jsonl").read_text().splitlines()
    assert 1 <= json.loads(lines[0])["records"] == len(lines) - 1 < 6
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    made = run(Sum(), range(6), tmp_path / "parts")
    assert made.folder == folder
    assert made.certified.records == whole
    assert before.items() <= {p.name: p.read_bytes() for p in folder.iterdir()}.items()
    asks = Sum(left=2)  # the probes alone
    assert run(asks, range(2, 5), tmp_path / "parts").certified.records == whole[2:5]
    assert run(Sum(), range(6), tmp_path / "parts", std=0.5).folder != folder


def test_stored_certificates_of_a_changed_network_or_an_edited_file_are_refused(tmp_path: Path) -> None:
    folder = run(Sum(), range(2), tmp_path).folder
    with pytest.raises(StoreMismatch, match="changed"):
        run(Sum(scale=2.0), range(2), tmp_path)
    path = folder / "000000.jsonl"
    path.write_text(path.read_text().replace('"radius":0', '"radius":1'))
    with pytest.raises(StoreMismatch, match="edited"):
        run(Sum(), range(2), tmp_path)


def test_the_command_prints_the_curve_and_writes_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["certify", "--model", "tests.toys:make_rule", "--samples", "0:6", "--std", "0.12", "--n0", "20"]
    words += ["--n", "200", "--store", str(tmp_path / "store"), "--csv", str(tmp_path / "curve.csv"), "--device", "cpu"]
    assert main([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["samples"] == 6
    assert [p["radius"] for p in said["curve"]] == [0]  # with 200 copies no radius exceeds 0.12 · 1.83
    assert said["largest_radius"] == pytest.approx(0.12 * norm.ppf(0.001 ** (1 / 200)))
    written = (tmp_path / "curve.csv").read_text().splitlines()
    assert written[0] == "radius,certified,low,high"
    assert [float(v) for v in written[1].split(",")] == list(said["curve"][0].values())
    assert main(words) == 0
    assert f"{100 * said['curve'][0]['certified']:.1f} [" in capsys.readouterr().out
    run_file = json.loads((Path(said["folder"]) / "run.json").read_text())
    assert run_file["command"].startswith("antiadv certify --data cifar10:test --model tests.toys:make_rule")
    assert main(["certify", "--model", "tests.toys:make_rule", "--alpha", "2"]) == 2


def test_copies_are_made_a_few_at_a_time_whatever_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sizes(nn.Module):
        seen: list[int] = []  # noqa: RUF012

        def forward(self, x: Tensor) -> Tensor:
            self.seen.append(len(x))
            return x.flatten(1)[:, :3]

    x = torch.full((1, 3, 2, 2), 0.5)
    whole = certify(Sizes().eval(), x, torch.tensor([0]), n0=7, n=40)
    monkeypatch.setattr(sys.modules["antiadv.evaluation.certify"], "MOST_VALUES", 5 * x[0].numel())
    Sizes.seen.clear()
    assert certify(Sizes().eval(), x, torch.tensor([0]), n0=7, n=40, batch=10**12).records == whole.records
    assert max(Sizes.seen) == 5
