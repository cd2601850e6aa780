"""Dataset: images addressed by a stable sample id, which is their index in the canonical order of the set.

    dataset.images([0, 7])     float32 [N, C, H, W] in [0, 1]
    dataset.labels([0, 7])     int64 [N]
    dataset.digest             identity of the whole split: the same for a slice of it, on every machine
    dataset.arrays()           everything at hand, as uint8 [N, H, W, C] and int64 [N]: what training wants

The pixels come from anything that takes an array of ids and gives uint8 images: an array, a memory map, or files that
are opened when asked for (data/imagenet.py). The digest is of what was read when the set was opened. What stays on the
disk is compared with it again whenever it is read, and `check` does so without unpacking anything: an edited file is
refused, never taken for the one that was opened.
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
    """uint8 [N, H, W, C] for an integer array [N]; a numpy array is one."""

    def __getitem__(self, rows: Ints, /) -> Bytes: ...


@runtime_checkable
class Kept(Protocol):
    """Pixels that stay on the disk, and can have changed there."""

    def check(self, rows: Ints) -> None:
        """Refuse those of these rows that are no longer what the digest was made of."""
        ...


@dataclass(frozen=True, eq=False)
class Dataset:
    name: str  # "cifar10:test"
    classes: tuple[str, ...]  # what they are called; empty where the set does not say, and may lack some
    digest: str
    pixels: Pixels
    truth: Ints  # the label of every sample at hand
    missing: str = "the set ends there"  # said to whoever asks for an id that is not at hand

    def __len__(self) -> int:
        return len(self.truth)

    @property
    def ids(self) -> range:
        """The sample ids that can be read."""
        return range(len(self))

    def called(self, label: int) -> str:
        """The name of a class, or its number where the set has none for it."""
        return self.classes[label] if 0 <= label < len(self.classes) else f"class {label}"

    def images(self, ids: Sequence[int] | Tensor | Ints) -> Tensor:
        x = torch.from_numpy(np.ascontiguousarray(self.pixels[self._rows(ids)]))
        return x.permute(0, 3, 1, 2).contiguous().float() / 255

    def labels(self, ids: Sequence[int] | Tensor | Ints) -> Tensor:
        return torch.from_numpy(self.truth[self._rows(ids)])

    def check(self, ids: Sequence[int] | Tensor | Ints) -> None:
        """Refuse samples that have changed on the disk since the set was opened or imported."""
        if isinstance(self.pixels, Kept):
            self.pixels.check(self._rows(ids))

    def arrays(self) -> tuple[Bytes, Ints]:
        return np.ascontiguousarray(self.pixels[np.arange(len(self))]), self.truth.copy()

    def _rows(self, ids: Sequence[int] | Tensor | Ints) -> Ints:
        said = np.asarray(ids)
        if said.size and said.dtype.kind not in "iu":
            raise BadInput(f"sample ids are whole numbers; found {ids!r}. Give for example range(100).")
        rows = said.astype(np.int64).reshape(-1)
        outside = rows[(rows < 0) | (rows >= len(self))]
        if outside.size:
            raise BadInput(f"{self.name} has samples 0 to {len(self) - 1} here; asked for {outside[0]}: {self.missing}")
        return rows


def digest(x: Bytes, y: Ints) -> str:
    """sha256 over the shape, the pixels in canonical order, and the labels as little-endian int64."""
    whole = hashlib.sha256(repr(x.shape).encode())
    for start in range(0, len(x), 1000):  # piece by piece, so that a memory map stays on disk
        whole.update(np.ascontiguousarray(x[start : start + 1000]).data)
    whole.update(np.ascontiguousarray(y, dtype="<i8").data)
    return "sha256:" + whole.hexdigest()


@dataclass(frozen=True, eq=False)
class Mapped:
    """A memory map as `Pixels`. Each image is compared with what it was when the map was opened."""

    x: Bytes
    where: str
    marks: tuple[bytes, ...]

    @classmethod
    def of(cls, x: Bytes, where: object) -> Bytes | Mapped:
        """The array itself where it is in memory already."""
        return cls(x, str(where), tuple(map(_mark, x))) if isinstance(x, np.memmap) else x

    @property
    def shape(self) -> tuple[int, ...]:
        return self.x.shape

    def __getitem__(self, rows: Ints, /) -> Bytes:
        found = np.array(self.x[rows])  # what is checked is what is given: a map would be read twice
        self._compare(rows, found)
        return found

    def check(self, rows: Ints) -> None:
        for start in range(0, len(rows), 1000):
            self[rows[start : start + 1000]]

    def _compare(self, rows: Ints, found: Bytes) -> None:
        changed = [int(row) for row, image in zip(rows, found, strict=True) if _mark(image) != self.marks[row]]
        if changed:
            raise BadInput(
                f"sample {changed[0]} in {self.where} has changed since the set was opened. "
                "Leave the file alone while it is in use, and run again."
            )


def _mark(image: Bytes) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(image).data).digest()[:8]
