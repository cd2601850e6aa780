"""Intact files with impossible content: each is refused with an AntiadvError."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from antiadv import data
from antiadv.cli.__main__ import main
from antiadv.core.errors import BadInput
from antiadv.data import cifar
from antiadv.models import checkpoints
from antiadv.models.card import read_card


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_links_and_special_files_in_an_archive_are_not_followed(kind: bytes, tmp_path: Path) -> None:
    link = tarfile.TarInfo("cifar-10-batches-py/test_batch")
    link.type, link.linkname = kind, "/etc/passwd"
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.addfile(link)
    assert cifar.find(tmp_path / "a.tar") == []


@pytest.mark.parametrize("label", [2**70, -1, 256, True, 1.5, None, "3"])
def test_impossible_labels_in_a_pickle(label: object, tmp_path: Path) -> None:
    (tmp_path / "test_batch").write_bytes(
        pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [label]}, protocol=2)
    )
    with pytest.raises(BadInput, match="numbers"):
        cifar.find(tmp_path)


@pytest.mark.parametrize("label", [2**64 - 1, 2**63, 2**40])
def test_impossible_labels_in_arrays(label: int, tmp_path: Path) -> None:
    labels = np.array([label], np.uint64)
    np.savez(tmp_path / "a.npz", images=np.zeros((1, 8, 8, 3), np.uint8), labels=labels)
    with pytest.raises(BadInput, match="labels"):
        data.load(f"arrays:{tmp_path}/a.npz")


@pytest.mark.parametrize("shape", ["(10**30, 8, 8, 3)", "(-1, 8, 8, 3)", "(2**62, 2**62)", "((((1,),),),)", "(1.5,)"])
def test_impossible_headers(shape: str, tmp_path: Path) -> None:
    said = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(said).to_bytes(2, "little") + said + bytes(100))
    np.save(tmp_path / "y.npy", np.zeros(1, np.int64))
    with pytest.raises(BadInput):
        data.load(f"arrays:{tmp_path}")


@pytest.mark.parametrize(
    "content", [b"", b"\x89PNG\r\n\x1a\n", b"GIF89a" + bytes(4), b"%!PS-Adobe-3.0 EPSF-3.0\n", b"BM"]
)
def test_corrupt_pictures_are_one_line(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.png").write_bytes(content)
    out = ["--out", str(tmp_path / "out")]
    assert main(["attack", str(tmp_path / "a.png"), "--model", "compact:standard", *out]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_sparse_weights_are_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.eye(3).to_sparse()}, tmp_path / "a.pt")
    with pytest.raises(BadInput):
        checkpoints.read(tmp_path / "a.pt")


@pytest.mark.parametrize("content", ["[]", "3", "null", '{"clean": 3}', "[" * 100_000, '{"a":' * 5000, "\ud800"])
def test_a_file_that_is_not_a_card(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(content.encode(errors="surrogatepass"))
    with pytest.raises(BadInput, match="card"):
        read_card(tmp_path / "a.json")


@pytest.mark.parametrize("said", [[], 3, {"format": 1}, "x"])
def test_a_file_that_is_not_the_card_of_a_data_set(said: object, tmp_path: Path) -> None:
    (tmp_path / "cifar10-test.json").write_text(json.dumps(said))
    with pytest.raises(BadInput, match="import"):
        data.load(f"cifar10:dir={tmp_path}")


def test_a_damaged_sheet_of_pictures(tmp_path: Path) -> None:
    (tmp_path / "test_batch.png").write_bytes(io.BytesIO(b"\x89PNG").getvalue())
    (tmp_path / "test_lables.json").write_text("[" * 100_000)
    with pytest.raises(BadInput):
        cifar.find(tmp_path)
