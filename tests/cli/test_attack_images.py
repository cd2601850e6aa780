"""`antiadv attack` on greyscale pictures; its errors are those of the library."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import antiadv
from antiadv.cli.__main__ import main
from antiadv.core.errors import BadInput
from antiadv.defences.anti_adversary import AntiAdversary
from tests.toys import make_probable, small_net


def attack(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, object]:
    assert main(["attack", *map(str, words), "--json"]) == 0
    said: dict[str, object] = json.loads(capsys.readouterr().out)
    return said


def picture(path: Path, mode: str) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)
    return path


@pytest.mark.parametrize("mode", ["L", "RGB", "LA", "1"])
@pytest.mark.parametrize(("model", "mode_out"), [("make_grey_net", "L"), ("make_small_net", "RGB")])
def test_grey_and_colour(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, mode: str, model: str, mode_out: str
) -> None:
    path = picture(tmp_path / "one.png", mode)
    said = attack(capsys, path, "--model", f"tests.toys:{model}", "--attack", "pgd:steps=3", "--out", tmp_path)
    with Image.open(str(said["attacked"])) as made:
        assert (made.mode, made.size) == (mode_out, (16, 16))
    with Image.open(str(said["compared"])) as made:
        assert made.mode == mode_out
    assert said["judge_queries"] == 2 or said["judge_queries"] == 4
    assert said["not_attacked"] is False


def test_an_attack_that_never_ran_is_said_not_to_have(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = picture(tmp_path / "one.png", "RGB")
    words = (path, "--model", "tests.toys:make_small_net", "--attack", "nes", "--out", tmp_path)
    said = attack(capsys, *words, "--threat", "linf:8/255,queries=100")
    assert (said["not_attacked"], said["least_queries"], said["queries"]) == (True, 101, 0)
    assert main(["attack", *map(str, words), "--threat", "linf:8/255,queries=100"]) == 0
    assert capsys.readouterr().out.startswith("not attacked: nes ")


def test_probabilities_are_refused_in_the_same_words(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = picture(tmp_path / "one.png", "RGB")
    assert main(["attack", str(path), "--model", "tests.toys:make_probable", "--out", str(tmp_path)]) == 2
    x = torch.rand((2, 3, 16, 16), generator=torch.Generator().manual_seed(0))
    with pytest.raises(BadInput, match="logits") as refused:
        antiadv.attack(make_probable(), x, torch.zeros(2, dtype=torch.int64), "pgd", antiadv.Linf(0.1))
    assert str(refused.value).split(";")[0] in capsys.readouterr().err


def make_flat() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4)).eval()


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        ("tests.evaluation.test_attack:Last", "antiadv.wrap(net, channels_last=True)."),
        (f"{__name__}:make_flat", "--size."),
    ],
)
def test_a_picture_that_does_not_fit_is_refused_with_advice(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str, advice: str
) -> None:
    assert main(["attack", str(picture(tmp_path / "one.png", "RGB")), "--model", model, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.strip().endswith(advice)


def test_other_channels_are_refused_in_the_same_words() -> None:
    net, x = small_net(), torch.full((2, 1, 16, 16), 0.5)
    with pytest.raises(BadInput, match="3 channels") as by_attack:
        antiadv.attack(net, x, torch.zeros(2, dtype=torch.int64), "pgd", antiadv.Linf(0.1))
    with pytest.raises(BadInput, match="3 channels") as by_layer:
        AntiAdversary(net)(x)
    assert str(by_attack.value) == str(by_layer.value)
    with pytest.raises(BadInput, match="evaluation mode") as by_layer:
        AntiAdversary(small_net().train())
    with pytest.raises(BadInput, match="evaluation mode") as by_attack:
        antiadv.attack(small_net().train(), x, torch.zeros(2, dtype=torch.int64), "pgd", antiadv.Linf(0.1))
    assert str(by_attack.value) == str(by_layer.value)


def test_black_pictures_raise_a_flag_before_the_attack(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Image.new("RGB", (16, 16), (1, 2, 0)).save(tmp_path / "dark.png")
    words = ["attack", str(tmp_path / "dark.png"), "--model", "tests.toys:make_small_net", "--out", str(tmp_path)]
    assert main([*words, "--attack", "pgd:steps=2"]) == 0
    assert "narrow_range" in capsys.readouterr().err


def test_sixteen_bits_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Image.fromarray(np.full((16, 16), 40_000, np.uint16)).save(tmp_path / "deep.png")
    assert main(["attack", str(tmp_path / "deep.png"), "--model", "tests.toys:make_small_net"]) == 2
    assert "8 bits" in capsys.readouterr().err
