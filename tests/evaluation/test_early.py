"""Chance accuracy and dark images are told before anything is attacked, once, and without a query of their own."""

from __future__ import annotations

import contextlib
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import antiadv
from antiadv.attacks import parse
from antiadv.cli.__main__ import main
from antiadv.core.ball import Linf
from antiadv.core.engine import Eager
from antiadv.core.errors import Suspicious
from antiadv.core.threat import Threat
from antiadv.evaluation import Resources
from antiadv.evaluation.shard import attack_and_judge
from antiadv.reporting.league import league
from tests.toys import Spy, halfspace, small_net

MODEL = "tests.toys:make_small_net"  # untrained: it guesses


def images(n: int = 40) -> tuple[Tensor, Tensor]:
    return antiadv.data.load("cifar10").images(range(n)), antiadv.data.load("cifar10").labels(range(n))


def flags(found: list[warnings.WarningMessage]) -> list[str]:
    return [str(one.message).split(":")[0] for one in found]


@pytest.mark.parametrize(("n", "scale", "raised"), [(40, 1, ["near_chance"]), (19, 1, []), (19, 255, ["narrow_range"])])
def test_attack_warns_once(n: int, scale: int, raised: list[str]) -> None:
    x, y = images(n)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        antiadv.attack(small_net(), x / scale, y, "square:steps=2", Linf(0.01), queries=3)
    assert flags(found) == [f"Flag {name}" for name in raised]


def test_the_warning_asks_nothing_more() -> None:
    (x, y), attack, seen = images(), parse("square:steps=2"), []
    for warn in (False, True):
        spy = Spy(small_net())
        with pytest.warns(Suspicious) if warn else contextlib.nullcontext():
            attack_and_judge(
                spy, attack, Threat(Linf(0.01), attack.access, 3), x, y, torch.arange(40), 0, Eager(), warn=warn
            )
        seen.append(spy.seen)
    assert seen[0] == seen[1] > 0


def test_targets_are_no_labels() -> None:
    toy = halfspace(math.inf, n=30)
    with pytest.warns(Suspicious, match="narrow_range"):
        antiadv.attack(toy.model, toy.x / 255, toy.y, "pgd:steps=1", Linf(0.01), targeted=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        antiadv.attack(toy.model, toy.x, 1 - toy.y, "pgd:steps=1", Linf(0.01), targeted=True)


def test_evaluate_says_it_once_and_before_the_attack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", "--model", MODEL, "--attack", "square:steps=2", "--threat", "linf:1/255,queries=3"]
    words += ["--samples", "0:60", "--shard", "25", "--store", str(tmp_path)]
    assert main([*words, "--defence", "anti_adversary"]) == 0
    said = capsys.readouterr()
    assert said.err.count("Flag near_chance") == 1
    assert "of 25 clean images" in said.err, "those of the first shard"
    assert "sent by the judge, besides the queries: 240." in said.out, "two looks at the clean and the attacked image"


def test_tune_and_league_say_it(tmp_path: Path) -> None:
    x, _ = images(80)
    y = (small_net()(x).argmax(1) + (torch.arange(80) % 8 > 0)) % 10  # one of eight is right
    with pytest.warns(Suspicious, match="near_chance"):
        antiadv.tune(small_net(), x, y, queries=2, attacked=2, steps=[1], gates=[1.0])
    with pytest.warns(Suspicious, match="near_chance") as found:
        league(
            MODEL,
            store=tmp_path,
            samples=range(24),
            queries=2,
            only=["rounded_scores"],
            minutes=0.01,
            resources=Resources("cpu"),
        )
    assert len(found) == 1


def test_check_does_not_call_shifted_labels_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = images(60)
    pixels = (255 * x).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    np.savez(tmp_path / "shifted.npz", images=pixels, labels=((y + 1) % 10).numpy())
    assert main(["check", "--model", "compact:trades", "--data", f"arrays:{tmp_path}/shifted.npz"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("WRONG")] == ["accuracy"]
    assert not any(line.split()[:2] == ["fine", "normalisation"] for line in lines)
