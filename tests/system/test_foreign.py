"""A store from an unknown source: reading it imports, opens and runs nothing that it names."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from antiadv.cli.__main__ import main
from antiadv.data import load
from antiadv.evaluation import Store
from antiadv.evaluation.cell import Cell, read_threat
from tests.engine.probes import RECEIPT, record

EVIL = """
from pathlib import Path

Path("imported").touch()

def make():
    Path("called").touch()
"""
MODELS = (
    "evil:make",
    "evil",
    "file:evil.pt,architecture=resnet18",
    "file:evil.safetensors",
    "resnet18:standard,path=evil.pt",
    "hub:someone/evil",
)

# an audit hook cannot be removed, and sees every import and every file that is opened
WATCHED = """
import sys

def watch(event, args):
    if event in ("import", "open") and "evil" in str(args[0]):
        touched.append((event, args[0]))

touched = []
sys.addaudithook(watch)

import antiadv
from antiadv.cli.__main__ import main

VERBS
print(antiadv.report("store"), antiadv.report("store")._repr_html_())
print("TOUCHED", touched)
"""
VERBS = (
    ["report", "--store", "store"],
    ["report", "--store", "store", "--json"],
    ["report", "all", "--store", "store", "--json"],
    ["report", "--store", "store", "--out", "out"],
    ["reproduce", "table-4", "--samples", "1", "--list", "--store", "store"],
)


class Payload:
    """Makes a folder when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("unpickled",)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with kept images of every model, bare and defended, for a published data set and for a file."""
    root = tmp_path_factory.mktemp("foreign")
    np.savez(root / "evil.npz", images=np.zeros((4, 32, 32, 3), np.uint8), labels=np.full(4, 3))
    digests = {"cifar10:test": load("cifar10:test").digest, "arrays:evil.npz": load(f"arrays:{root}/evil.npz").digest}
    threat, store = read_threat("linf:8/255,access=gradients"), Store(root / "store")
    for model in MODELS:
        for data, images in digests.items():
            for defence in ("none", "anti_adversary"):
                cell = Cell(data, images, model, "sha256:" + "0" * 64, defence, "pgd:steps=5", threat, range(4))
                store.append(cell, [record(i) for i in range(4)], RECEIPT, torch.full((4, 3, 32, 32), 0.5))
    (root / "evil.py").write_text(EVIL)
    (root / "evil.pt").write_bytes(pickle.dumps(Payload()))
    (root / "evil.safetensors").write_bytes(b"")
    return root


def test_nothing_that_a_store_names_is_imported_opened_or_called(folder: Path) -> None:
    verbs = "".join(f"assert main({verb!r}) == 0, {verb!r}\n" for verb in VERBS)
    done = subprocess.run(
        [sys.executable, "-c", WATCHED.replace("VERBS", verbs)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "TOUCHED []"
    assert not [name for name in ("imported", "called", "unpickled") if (folder / name).exists()]
    shown = (folder / "out" / "report.md").read_text()
    assert "anti_adversary, cifar10:test" in shown
    assert "files that a store names are not opened" in shown
    assert len(list((folder / "out" / "gallery").glob("*-after.png"))) == 4 * len(MODELS)


def test_a_file_is_opened_where_the_command_line_names_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert main(["report", "--store", "store", "--out", "named", "--data", "arrays:evil.npz"]) == 0
    assert "files that a store names are not opened" not in (folder / "named" / "report.md").read_text()
    assert len(list((folder / "named" / "gallery").glob("*-after.png"))) == 2 * 4 * len(MODELS)
    assert main(["report", "--store", "store", "--data", "arrays:evil.npz"]) == 2
