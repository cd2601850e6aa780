"""Your own data set: arrays in a file, used from the command line, and identified by their digest."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from antiadv import data
from antiadv.cli.__main__ import main
from antiadv.core.errors import BadInput
from antiadv.evaluation import Resources, Store, make_cell

DICE = np.random.default_rng(0)
X, Y = DICE.integers(0, 256, (6, 8, 10, 3), dtype=np.uint8), np.array([0, 4, 1, 2, 0, 3])
GREY = DICE.integers(0, 256, (6, 1, 8, 10), dtype=np.uint8)


def test_an_npz_or_a_folder_is_a_data_set(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", images=X, labels=Y)
    folder = tmp_path / "folder"
    folder.mkdir()
    np.save(folder / "x.npy", X.transpose(0, 3, 1, 2))
    np.save(folder / "y.npy", Y[:, None].astype(np.int16))
    first, second = data.load(f"arrays:{tmp_path}/mine.npz"), data.load(f"arrays:path={folder}")
    assert first.digest == second.digest
    assert first.classes == (), "a class that no label names may be there all the same"
    assert (first.name, second.name) == ("arrays:mine.npz", "arrays:folder")
    for found in (first, second):
        assert torch.equal(found.images([2]), torch.from_numpy(X[[2]]).permute(0, 3, 1, 2).float() / 255)
        assert found.labels(range(6)).tolist() == Y.tolist()


def test_grey_images_are_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "grey.npz", x=GREY, y=Y)
    assert data.load(f"arrays:{tmp_path}/grey.npz").images([0, 1]).shape == (2, 1, 8, 10)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"images": X / 255, "labels": Y}, "images must be uint8"),
        ({"images": X, "labels": Y[:3]}, "one integer per image"),
        ({"images": X, "labels": Y / 2}, "one integer per image"),
        ({"images": X}, "has no partner with the labels"),
        ({"images": X, "labels": Y, "targets": Y}, "labels and targets are both"),
        ({"images": X, "x": X, "labels": Y}, "images and x are both"),
        ({"pictures": X, "labels": Y}, "has no partner with the images"),
        ({"something": X}, "found none"),
        ({"images": X[..., :2], "labels": Y}, "images are [N, H, W, 1 or 3]"),
        ({"images": X, "labels": Y - 1}, "labels count from 0; found -1"),
        ({"x_train": X, "y_train": Y, "x_test": X, "y_test": Y}, "one pair"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(arrays: dict[str, Any], said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(BadInput) as error:
        data.load(f"arrays:{tmp_path}/mine.npz")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_or_no_array(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        data.load(f"arrays:{tmp_path}/mine.npz")
    (tmp_path / "mine.npz").write_bytes(b"PK and nothing more")
    with pytest.raises(BadInput, match="cannot be read as arrays"):
        data.load(f"arrays:{tmp_path}/mine.npz")


def test_what_would_run_code_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", images=X, labels=np.array([print] * 6, dtype=object))
    with pytest.raises(BadInput, match=r"cannot be read as arrays: .*labels as integers, with .*numpy\.savez"):
        data.load(f"arrays:{tmp_path}/mine.npz")


def test_the_current_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=f"found none in {re.escape(str(tmp_path))}\\. Name"):
        data.load("arrays:.")
    np.save("x.npy", X)
    np.save("y.npy", Y)
    assert data.load("arrays:.").name == f"arrays:{tmp_path.name}"


def test_from_the_command_line_to_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are found after the file was moved, and the stored command runs next to it. All samples are used if there
    are few."""
    small = DICE.integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for where in ("a", "b"):
        np.savez(tmp_path / where / "mine.npz", images=small, labels=Y)
    store = tmp_path / "store"
    words = ["--model", "compact:trades", "--attack", "pgd:steps=2", "--threat", "linf:8/255"]
    words += ["--store", str(store), "--device", "cpu", "--json"]
    assert main(["evaluate", "--data", f"arrays:{tmp_path}/a/mine.npz", *words]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["data"], row["robust"]["n"]) == ("arrays:mine.npz", 6)
    (cell,) = Store(store).cells()
    assert str(tmp_path) not in (store / cell.key / "cell.json").read_text()
    there = make_cell(
        data=f"arrays:{tmp_path}/b/mine.npz",
        model="compact:trades",
        attack="pgd:steps=2",
        threat="linf:8/255",
        resources=Resources("cpu"),
    )
    assert there.key == cell.key
    assert there.samples == cell.samples == range(6)
    monkeypatch.chdir(tmp_path / "b")
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    assert cell.command is not None
    assert main([*cell.command.split()[1:], "--store", str(store), "--device", "cpu", "--json"]) == 0
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before  # nothing was run again


def test_training_needs_two_splits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "mine.npz", images=X, labels=Y)
    words = ["--model", "preact18:width=4", "--epochs", "1", "--out", str(tmp_path / "out.safetensors")]
    assert main(["train", "standard", *words, "--data", f"arrays:{tmp_path}/mine.npz"]) == 2
    assert "train and a test split" in capsys.readouterr().err
