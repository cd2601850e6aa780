"""Damaged and altered files of every kind: each is read, or refused with an AntiadvError."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import random
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

import antiadv
from antiadv import data, models
from antiadv.cli.attack import read_image
from antiadv.data import cifar, imagenet, imported
from antiadv.evaluation import Store
from antiadv.evaluation.cell import key_of
from antiadv.evaluation.store.files import digest, json_line
from antiadv.models import checkpoints
from antiadv.models.card import read_card
from antiadv.reporting import gallery
from tests.data import made
from tests.engine.probes import RECEIPT, cell, record
from tests.system.fuzz import altered, damaged, files, harmless, seeds

Read = Callable[[Path], object]


def picture(kind: str) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)).save(out, kind)
    return out.getvalue()


def saved(save: Callable[[io.BytesIO], object]) -> bytes:
    out = io.BytesIO()
    save(out)
    return out.getvalue()


CLEAN = data.load("cifar10:test")
IMAGES, LABELS = np.zeros((4, 8, 8, 3), np.uint8), np.arange(4)
TENSORS = {"weight": torch.zeros(3, 4), "bias:low": torch.zeros(6, dtype=torch.uint8)}
SMALL = {"test_batch": made.python_files("cifar10", made.make("cifar10"))["test_batch"]}


def archive(suffix: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return made.write_archive(SMALL, Path(folder) / f"a{suffix}", "cifar-10-batches-py").read_bytes()


def next_to(name: str, content: bytes) -> Read:
    """Reads a folder with two arrays; this one is intact."""

    def read(path: Path) -> object:
        (path.parent / name).write_bytes(content)
        return data.load(f"arrays:{path.parent}")

    return read


KINDS: dict[str, tuple[str, Callable[[], bytes], Read]] = {
    "png": ("a.png", lambda: picture("png"), lambda path: imagenet.crop(path.read_bytes(), "a")),
    "jpeg": ("a.jpg", lambda: picture("jpeg"), lambda path: read_image(path, 8)),
    "webp": ("a.webp", lambda: picture("webp"), lambda path: read_image(path, None)),
    "gif": ("a.gif", lambda: picture("gif"), lambda path: read_image(path, None)),
    "tiff": ("a.tiff", lambda: picture("tiff"), lambda path: read_image(path, None)),
    "bmp": ("a.bmp", lambda: picture("bmp"), lambda path: read_image(path, None)),
    "npz": (
        "a.npz",
        lambda: saved(lambda out: np.savez_compressed(out, images=IMAGES, labels=LABELS)),
        lambda path: data.load(f"arrays:{path}"),
    ),
    "npy images": (
        "x.npy",
        lambda: saved(lambda out: np.save(out, IMAGES)),
        next_to("y.npy", saved(lambda out: np.save(out, LABELS))),
    ),
    "npy labels": (
        "y.npy",
        lambda: saved(lambda out: np.save(out, LABELS)),
        next_to("x.npy", saved(lambda out: np.save(out, IMAGES))),
    ),
    "tar": ("a.tar", lambda: archive(".tar"), cifar.find),
    "tar.gz": ("a.tar.gz", lambda: archive(".tar.gz"), cifar.find),
    "cifar pickle": ("test_batch", lambda: SMALL["test_batch"], lambda path: cifar.find(path.parent)),
    "safetensors": ("a.safetensors", lambda: safetensors.torch.save(TENSORS), checkpoints.read),
    "torch": ("a.pt", lambda: saved(lambda out: torch.save(TENSORS, out)), checkpoints.read),
}


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(kind: str, tmp_path: Path) -> None:
    name, make, read = KINDS[kind]
    whole, path = make(), tmp_path / name
    for seed, dice in seeds():
        path.write_bytes(damaged(whole, dice))
        with harmless(f"{kind}, seed {seed}"):
            read(path)
    assert len(files(tmp_path)) <= 2


# ---------------------------------------------------------------- json, with values of any type


def test_altered_cards(tmp_path: Path) -> None:
    whole = json.loads((Path(models.__file__).parent / "zoo" / "compact-cifar10-trades.json").read_text())
    path = tmp_path / "a.json"
    for seed, dice in seeds():
        path.write_text(json.dumps(altered(whole, dice)))
        with harmless(f"card, seed {seed}"):
            card = read_card(path)
            assert 0 <= card.clean.share <= 1
            assert isinstance(card.spec + card.data["name"] + card.architecture, str)


def test_altered_cards_of_data_sets(tmp_path: Path) -> None:
    whole = {"format": 1, "name": "imagenet", "split": "test", "count": 2, "digest": "sha256:0", "classes": ["a", "b"]}
    whole |= {
        "source": {"file": "x"},
        "root": str(tmp_path),
        "files": ["a", "b"],
        "labels": [0, 1],
        "sha256": ["0", "0"],
    }
    for seed, dice in seeds():
        imported.place(tmp_path, "imagenet", "test").write_text(json.dumps(altered(whole, dice)))
        with harmless(f"card of data, seed {seed}"):
            found = data.load(f"imagenet:dir={tmp_path}")
            assert found.labels([0, 1]).tolist() == [found.truth[0], found.truth[1]]
            found.images([0])


def shown(root: Path) -> None:
    """Everything that a report makes from a store, except figures and pages, which take a second each."""
    made = antiadv.report(root)
    assert str(made)
    assert made._repr_html_()
    json.dumps(made.json())
    gallery.kept(Store(root), made.rows, [CLEAN])


@pytest.fixture
def store(tmp_path: Path) -> tuple[Path, Path]:
    """A store with one bare and one defended cell, and the folder of the defended one."""
    for defence in ("none", "anti_adversary"):
        asked = cell(defence=defence)
        rows = [record(i, attacked=i % 4, queries=10 * i, gradients=i) for i in range(8)]
        path = Store(tmp_path).append(asked, rows, RECEIPT, torch.zeros(8, 3, 32, 32))
    return tmp_path, path.parent


def test_altered_descriptions_of_cells(store: tuple[Path, Path]) -> None:
    root, folder = store
    path = folder / "cell.json"
    whole = json.loads(path.read_text())
    for seed, dice in seeds():
        said = altered(whole, dice)
        place = folder
        if dice.random() < 0.5 and isinstance(said, dict) and isinstance(said.get("identity"), dict):
            place = folder.rename(root / key_of(said["identity"]))  # with the key of the altered identity
        (place / "cell.json").write_text(json.dumps(said))
        with harmless(f"cell.json, seed {seed}"), _quiet():
            shown(root)
        place.rename(folder)
        path.write_text(json.dumps(whole))


def test_damaged_descriptions_of_cells(store: tuple[Path, Path]) -> None:
    root, folder = store
    whole = (folder / "cell.json").read_bytes()
    for seed, dice in seeds():
        (folder / "cell.json").write_bytes(damaged(whole, dice))
        with harmless(f"cell.json, seed {seed}"), _quiet():
            shown(root)


def signed(header: Any, columns: Any) -> bytes:
    """A shard with a correct digest, for any header and columns."""
    body = json_line(columns)
    head = {k: v for k, v in header.items() if k != "digest"} if isinstance(header, dict) else header
    if isinstance(head, dict):
        head = {**head, "digest": digest(head, body)}
    return lzma.compress(json_line(head) + b"\n" + body + b"\n", preset=0)


def test_altered_shards_with_a_right_digest(store: tuple[Path, Path]) -> None:
    root, folder = store
    path = next(folder.glob("*.json.xz"))
    header, columns = map(json.loads, lzma.decompress(path.read_bytes()).splitlines())
    for seed, dice in seeds():
        if dice.random() < 0.3:
            path.write_bytes(signed(altered(header, dice), columns))
        else:
            path.write_bytes(signed(header, altered(columns, dice)))
        with harmless(f"shard, seed {seed}"), _quiet():
            shown(root)


def test_damaged_shards_and_images(store: tuple[Path, Path]) -> None:
    root, folder = store
    paths = [next(folder.glob(f"*.{kind}")) for kind in ("json.xz", "safetensors")]
    whole = [path.read_bytes() for path in paths]
    for seed, dice in seeds():
        which = dice.randrange(2)
        paths[which].write_bytes(damaged(whole[which], dice))
        with harmless(f"{paths[which].suffix}, seed {seed}"), _quiet():
            shown(root)
        paths[which].write_bytes(whole[which])


def test_names_of_shards(store: tuple[Path, Path]) -> None:
    """The name of a shard is enough to know which samples are stored."""
    root, folder = store
    path = next(folder.glob("*.json.xz"))
    asked = cell(defence="anti_adversary")
    for seed, dice in seeds():
        first, last, count = (
            dice.choice(["000000", "7" * dice.randrange(6, 40), f"{dice.randrange(20):06d}"]) for _ in "abc"
        )
        moved = path.rename(folder / f"{first}-{last}-{count.lstrip('0') or '0'}.json.xz")
        with harmless(f"{moved.name}, seed {seed}"), _quiet():
            Store(root).done(asked)
            shown(root)
        moved.rename(path)


def _quiet() -> Any:
    return warnings.catch_warnings(action="ignore")


def test_the_random_numbers_are_seeded() -> None:
    once, again = ([damaged(b"0123456789" * 20, dice) for _, dice in seeds()] for _ in range(2))
    assert hashlib.sha256(b"".join(once)).digest() == hashlib.sha256(b"".join(again)).digest()
    assert len({*once}) > len(once) // 2
    assert random.Random(1).random() == random.Random(1).random()
