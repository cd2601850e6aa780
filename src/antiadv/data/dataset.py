"""Dataset: images with stable sample ids. An id is the index in the canonical order of the set.

    dataset.images([0, 7])     float32 [N, C, H, W] in [0, 1]
    dataset.labels([0, 7])     int64 [N]
    dataset.digest             identity of the complete split, also if only a part of it is at hand
    dataset.arrays()           all samples at hand, as uint8 [N, H, W, C] and int64 [N], for training

Pixels are an array, a memory map, or files that are read when needed (data/imagenet.py). Pixels on disk are compared
with what was opened whenever they are read: a file that was edited meanwhile is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiadv.core.errors import BadInput

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


class Pixels(Protocol):
    """Anything that gives uint8 [N, H, W, C] for an integer array [N], such as a numpy array."""

    def __getitem__(self, rows: Ints, /) -> Bytes: ...


@runtime_checkable
class Kept(Protocol):
    """Pixels on disk, which can change there."""

    def check(self, rows: Ints) -> None:
        """Raise if a row has changed since the set was opened."""
        ...


@dataclass(frozen=True, eq=False)
class Dataset:
    name: str  # "cifar10:test"
    classes: tuple[str, ...]  # names; empty or incomplete if the set does not name its classes
    digest: str
    pixels: Pixels
    truth: Ints  # labels of all samples at hand
    missing: str = "the set ends there"  # explanation in the error for an id that is not at hand

    def __len__(self) -> int:
        return len(self.truth)

    def __repr__(self) -> str:
        return f"Dataset({self.name}: {len(self)} images, {len(self.classes)} named classes)"

    @property
    def ids(self) -> range:
        """The sample ids at hand."""
        return range(len(self))

    def called(self, label: int) -> str:
        """Return the name of a class, or its number if it has no name."""
        return self.classes[label] if 0 <= label < len(self.classes) else f"class {label}"

    def images(self, ids: Sequence[int] | Tensor | Ints) -> Tensor:
        x = torch.from_numpy(np.ascontiguousarray(self.pixels[self._rows(ids)]))
        return x.permute(0, 3, 1, 2).contiguous().float() / 255

    def labels(self, ids: Sequence[int] | Tensor | Ints) -> Tensor:
        return torch.from_numpy(self.truth[self._rows(ids)])

    def check(self, ids: Sequence[int] | Tensor | Ints) -> None:
        """Raise if a sample has changed on disk since the set was opened or imported."""
        if isinstance(self.pixels, Kept):
            self.pixels.check(self._rows(ids))

    def arrays(self) -> tuple[Bytes, Ints]:
        return np.ascontiguousarray(self.pixels[np.arange(len(self))]), self.truth.copy()

    def _rows(self, ids: Sequence[int] | Tensor | Ints) -> Ints:
        array = np.asarray(ids)
        if array.size and array.dtype.kind not in "iu":
            raise BadInput(f"sample ids are whole numbers; found {ids!r}. Give for example range(100).")
        rows = array.astype(np.int64).reshape(-1)
        outside = rows[(rows < 0) | (rows >= len(self))]
        if outside.size:
            raise BadInput(f"{self.name} has samples 0 to {len(self) - 1} here; asked for {outside[0]}: {self.missing}")
        return rows


def digest(x: Bytes, y: Ints) -> str:
    """Return the sha256 of the shape, the pixels in canonical order, and the labels as little-endian int64."""
    total = hashlib.sha256(repr(x.shape).encode())
    for start in range(0, len(x), 1000):  # in pieces, so that a memory map is not read at once
        total.update(np.ascontiguousarray(x[start : start + 1000]).data)
    total.update(np.ascontiguousarray(y, dtype="<i8").data)
    return "sha256:" + total.hexdigest()


@dataclass(frozen=True, eq=False)
class Mapped:
    """A memory map as `Pixels`. Each image is compared with what it was when the map was opened."""

    x: Bytes
    where: str
    marks: tuple[bytes, ...]

    @classmethod
    def of(cls, x: Bytes, where: object) -> Bytes | Mapped:
        """Wrap a memory map; return any other array as it is."""
        return cls(x, str(where), tuple(map(_mark, x))) if isinstance(x, np.memmap) else x

    @property
    def shape(self) -> tuple[int, ...]:
        return self.x.shape

    def __getitem__(self, rows: Ints, /) -> Bytes:
        images = np.array(self.x[rows])  # a copy, so that the checked pixels are the returned ones
        changed = [int(row) for row, image in zip(rows, images, strict=True) if _mark(image) != self.marks[row]]
        if changed:
            raise BadInput(
                f"sample {changed[0]} in {self.where} has changed since the set was opened. "
                "Do not edit the file while it is in use, and run again."
            )
        return images

    def check(self, rows: Ints) -> None:
        for start in range(0, len(rows), 1000):
            self[rows[start : start + 1000]]


def _mark(image: Bytes) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(image).data).digest()[:8]
