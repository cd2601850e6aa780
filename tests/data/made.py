"""Small data sets in every published form. They have the layout of CIFAR and fewer images.

The forms are written from their descriptions, byte by byte where that matters, not with the code under test.
"""

from __future__ import annotations

import dataclasses
import io
import json
import struct
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from antiadv.data import cifar
from antiadv.data.dataset import Bytes, Ints, digest

COUNTS = {"cifar10": {"train": 100, "test": 20}, "cifar100": {"train": 200, "test": 100}}
Splits = dict[str, tuple[Bytes, Ints]]


def make(name: str) -> Splits:
    """Return random images, with all classes equally often, in random order."""
    dice = np.random.default_rng(len(name))
    classes = 10 if name == "cifar10" else 100
    return {
        split: (
            dice.integers(0, 256, (count, 32, 32, 3), np.uint8),
            dice.permutation(np.arange(count, dtype=np.int64) % classes),
        )
        for split, count in COUNTS[name].items()
    }


def pretend(name: str, splits: Splits, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register these images as the published ones of that name, with their counts and digests."""
    kind = dataclasses.replace(
        cifar.KINDS[name],
        count={split: len(y) for split, (_, y) in splits.items()},
        digest={split: digest(x, y) for split, (x, y) in splits.items()},
    )
    monkeypatch.setitem(cifar.KINDS, name, kind)


# ---------------------------------------------------------------- the published forms: file name → content


def python_files(name: str, splits: Splits) -> dict[str, bytes]:
    if name == "cifar100":
        return {split: python2_batch(planes(x), y, b"fine_labels") for split, (x, y) in splits.items()}
    return {part: python2_batch(planes(x), y, b"labels") for part, (x, y) in batches(splits).items()}


def binary_files(name: str, splits: Splits) -> dict[str, bytes]:
    if name == "cifar100":
        return {f"{split}.bin": rows(x, y % 20, y) for split, (x, y) in splits.items()}  # coarse label, then fine
    return {f"{part}.bin": rows(x, y) for part, (x, y) in batches(splits).items()}


def npm_files(splits: Splits) -> dict[str, bytes]:
    files = {}
    for part, (x, _) in batches(splits).items():
        buffer = io.BytesIO()
        Image.fromarray(x.reshape(len(x), 1024, 3)).save(buffer, "png")
        files[f"{part}.png"] = buffer.getvalue()
    return files | {f"{split}_lables.json": json.dumps(y.tolist()).encode() for split, (_, y) in splits.items()}


def batches(splits: Splits) -> Splits:
    x, y = splits["train"]
    size = len(x) // 5
    train = {f"data_batch_{i + 1}": (x[i * size : (i + 1) * size], y[i * size : (i + 1) * size]) for i in range(5)}
    return train | {"test_batch": splits["test"]}


def planes(x: Bytes) -> Bytes:
    return np.stack([x[..., channel].reshape(len(x), 1024) for channel in range(3)], axis=1).reshape(len(x), 3072)


def rows(x: Bytes, *labels: Ints) -> bytes:
    return b"".join(bytes([*said, *row]) for *said, row in zip(*labels, planes(x), strict=True))


def python2_batch(data: Bytes, labels: Ints, key: bytes) -> bytes:
    """Return a pickle as Python 2 and an old numpy wrote it: texts are byte strings."""

    def string(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    dtype = b"cnumpy\ndtype\n(" + string(b"u1") + number(0) + number(1) + b"tR"
    dtype += b"(" + number(3) + string(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + number(0) + b"t" + string(b"b") + b"tR"
    array += b"(" + number(1) + b"(" + number(len(data)) + number(3072) + b"t" + dtype + b"\x89"
    array += string(data.tobytes()) + b"tb"
    listed = b"](" + b"".join(number(int(label)) for label in labels) + b"e"
    named = string(b"batch_label") + string(b"testing batch 1 of 1")
    return b"\x80\x02}(" + named + string(b"data") + array + string(key) + listed + b"u."


# ---------------------------------------------------------------- on disk


def write_folder(files: Mapping[str, bytes], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def write_archive(files: Mapping[str, bytes], path: Path, inside: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{inside}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path
