"""Extreme numbers, names and brackets give one line and exit code 2, in every command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_verbs import MODEL, one_line, picture, run

__all__ = ["picture"]

EVALUATE = {"--model": MODEL, "--attack": "square:steps=4", "--threat": "linf:4/255,queries=9", "--samples": "0:2"}
BEYOND = {
    "2^63": str(2**63),
    "2^64": str(2**64),
    "below -2^63": str(-(2**63) - 1),
    "400 digits": "9" * 400,
    "as many as Python reads": "9" * 4300,
    "5,000 digits": "9" * 5000,
    "5,000 digits, negative": "-" + "9" * 5000,
    "5,000 digits, grouped": "_".join(["999"] * 1667),
}
LONGEST = ["2^64", "5,000 digits"]  # one that does not fit into 64 bits, and one that Python does not read
DEVICES = ["hpu", "foo", "privateuseone", "xla", "maia", "cuda:99", "cpu:-1", "cpu:" + "9" * 5000, "é", "two words"]


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    code, out, err = run(capsys, *words)
    one_line((code, out, err), "")
    assert len(err) < 1200, "a screen is not filled with digits"
    assert err.strip().isprintable()
    return err


def evaluate(folder: Path, **changed: str) -> list[object]:
    asked = EVALUATE | {f"--{name}": value for name, value in changed.items()}
    return ["evaluate", *(word for pair in asked.items() for word in pair), "--store", folder / "store"]


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d[:20])
def test_a_device_that_is_none(capsys: pytest.CaptureFixture[str], picture: Path, device: str) -> None:
    out = picture.parent / "net.safetensors"
    training = ["train", "standard", "--model", "preact18:width=4", "--epochs", 1, "--out", out]
    for words in (
        ["attack", picture, "--model", MODEL],
        evaluate(picture.parent),
        ["demo", "--store", picture.parent / "store"],
        ["verdict", "--store", picture.parent / "store"],
        ["reproduce", "table-3", "--list", "--store", picture.parent / "store"],
        training,
    ):
        assert "device" in refused(capsys, *words, "--device", device)
    assert [path.name for path in picture.parent.iterdir()] == [picture.name], "nothing was begun"


@pytest.mark.parametrize("what", BEYOND)
@pytest.mark.parametrize("option", ["--size", "--label", "--target", "--seed"])
def test_a_picture_attacked_with_a_number_beyond_64_bits(
    capsys: pytest.CaptureFixture[str], picture: Path, option: str, what: str
) -> None:
    assert option in refused(capsys, "attack", picture, "--model", MODEL, option, BEYOND[what])


@pytest.mark.parametrize("size", [0, -1, 8193, 10**9, 2**62])
def test_a_size_that_no_picture_has(capsys: pytest.CaptureFixture[str], picture: Path, size: int) -> None:
    assert "--size" in refused(capsys, "attack", picture, "--model", MODEL, "--size", size)


@pytest.mark.parametrize("option", ["--label", "--target"])
@pytest.mark.parametrize("number", [-1, 10, 2**31, 2**63 - 1])
def test_a_class_that_the_network_has_not(
    capsys: pytest.CaptureFixture[str], picture: Path, option: str, number: int
) -> None:
    said = refused(capsys, "attack", picture, "--model", MODEL, option, number)
    assert option in said
    assert "0 … 9" in said


@pytest.mark.parametrize("what", LONGEST)
@pytest.mark.parametrize(
    ("option", "before"),
    [("seed", ""), ("batch", ""), ("shard", ""), ("looks", ""), ("samples", ""), ("samples", "0:"),
     ("runner", "processes:"), ("threat", "linf:8/255,queries="), ("attack", "square:steps="),
     ("attack", "pgd:restarts="), ("attack", "transfer:attack=(pgd:steps="), ("defence", "anti_adversary:steps=")],
    ids=lambda text: str(text),
)  # fmt: skip
def test_an_evaluation_with_a_number_beyond_64_bits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str, before: str, what: str
) -> None:
    value = before + BEYOND[what] + ")" * before.count("(")
    refused(capsys, *evaluate(tmp_path, **{option: value}))
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("what", LONGEST)
@pytest.mark.parametrize("option", ["--epochs", "--batch", "--seed"])
def test_training_with_a_number_beyond_64_bits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str, what: str
) -> None:
    words = {"--epochs": "1", "--model": "preact18:width=4", "--out": str(tmp_path / "net.safetensors")}
    asked = words | {option: BEYOND[what]}
    assert option in refused(capsys, "train", "standard", *(word for pair in asked.items() for word in pair))


@pytest.mark.parametrize("what", LONGEST)
def test_a_table_with_a_number_of_samples_beyond_64_bits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, what: str
) -> None:
    refused(capsys, "reproduce", "table-3", "--list", "--samples", BEYOND[what], "--store", tmp_path)


NESTED = {
    "brackets alone": lambda n: "(" * n,
    "closed alone": lambda n: ")" * n,
    "around a name": lambda n: "transfer:attack=" + "(" * n + "pgd" + ")" * n,
    "around a number": lambda n: "pgd:steps=" + "(" * n + "3" + ")" * n,
    "attacks in attacks": lambda n: "transfer:attack=(" * n + "pgd" + ")" * n,
    "never closed": lambda n: "transfer:attack=(" * n,
}


@pytest.mark.parametrize("deep", [21, 400, 10_000])
@pytest.mark.parametrize("how", NESTED)
def test_brackets_in_brackets(capsys: pytest.CaptureFixture[str], tmp_path: Path, how: str, deep: int) -> None:
    refused(capsys, *evaluate(tmp_path, attack=NESTED[how](deep)))


@pytest.mark.parametrize("option", ["model", "defence", "threat", "data", "runner"])
@pytest.mark.parametrize("deep", [21, 400, 10_000])
def test_brackets_in_brackets_of_other_options(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str, deep: int
) -> None:
    known = {"model": "file", "defence": "anti_adversary", "threat": "linf", "data": "arrays", "runner": "processes"}
    refused(capsys, *evaluate(tmp_path, **{option: f"{known[option]}:{'(' * deep}x{')' * deep}"}))


@pytest.mark.parametrize("deep", [21, 400])
def test_recipes_in_recipes(capsys: pytest.CaptureFixture[str], tmp_path: Path, deep: int) -> None:
    recipe = "awp:recipe=(" * deep + "trades" + ")" * deep
    refused(capsys, "train", recipe, "--model", "preact18:width=4", "--epochs", 1, "--out", tmp_path / "a.safetensors")
