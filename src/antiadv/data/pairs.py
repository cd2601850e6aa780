"""Images and labels as plain arrays: pairs of `.npy` files in a folder, one `.npy` and its partner, or an `.npz`.

    cifar10_test_x.npy  cifar10_test_y.npy          x, images, image or data; y, labels, label or targets
    x_train, y_train, x_test, y_test  in an .npz    the other words of a name tell the set and the split
    images, labels                                  without other words, the caller or the digest tells the set

Images are uint8 [N, H, W, 3], [N, 3, H, W] or [N, 3072] (CIFAR's planes), labels integers [N] or [N, 1]. The caller may
accept images with one channel too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from antiadv.core.bounds import check_zip
from antiadv.core.errors import BadInput, reason
from antiadv.data.dataset import Bytes, Ints

ROLES = {"x": "images", "images": "images", "image": "images", "data": "images"}
ROLES |= {"y": "labels", "labels": "labels", "label": "labels", "targets": "labels"}
Array = NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class Pair:
    words: frozenset[str]  # of its name, without x and y: {"cifar10", "test"}
    title: str  # name of the images, for messages
    x: Bytes  # [N, H, W, C]
    y: Ints


def read_pairs(source: Path, channels: tuple[int, ...] = (3,)) -> list[Pair]:
    """Return all pairs at a source; an empty list if no array has a known name."""
    groups: dict[frozenset[str], dict[str, tuple[str, Array]]] = {}
    for title, array in _arrays(source).items():
        role, words = _meaning(title)
        if not role:
            continue
        group = groups.setdefault(words, {})
        if role in group:
            raise BadInput(f"{source}: {group[role][0]} and {title} are both named as {role}; rename one")
        group[role] = title, array
    pairs = []
    for words, group in groups.items():
        if len(group) == 1:
            (title, _), (missing,) = *group.values(), {"images", "labels"} - set(group)
            raise BadInput(f"{source}: {title} has no partner with the {missing}; put both in one folder or one .npz")
        (title, x), (_, y) = group["images"], group["labels"]
        images = as_images(x, f"{source}: {title}", channels)
        pairs.append(Pair(words, f"{source}: {title}", images, as_labels(y, len(images), f"{source}: {title}")))
    return pairs


def as_images(x: Array, where: str, channels: tuple[int, ...] = (3,)) -> Bytes:
    """Convert any accepted layout to [N, H, W, C]."""
    if x.dtype != np.uint8:
        raise BadInput(f"{where} holds {x.dtype}; images must be uint8, 0 to 255")
    shape = x.shape
    if x.ndim == 2 and shape[1] == 3072:
        x = x.reshape(-1, 3, 32, 32)
    if x.ndim == 4 and x.shape[1] in channels and x.shape[3] not in channels:
        x = x.transpose(0, 2, 3, 1)
    if x.ndim != 4 or x.shape[3] not in channels or len(x) == 0:
        last = " or ".join(map(str, channels))
        raise BadInput(f"{where} has shape {shape}; images are [N, H, W, {last}], [N, {last}, H, W] or [N, 3072]")
    return x.astype(np.uint8, copy=False)


def as_labels(y: Array, count: int, where: str) -> Ints:
    if y.dtype.kind not in "iu" or y.shape not in ((count,), (count, 1)):
        raise BadInput(
            f"{where} has {count} images, its labels are {y.dtype} of shape {y.shape}; give one integer per image"
        )
    if y.dtype.kind == "u" and y.size and y.max() > np.iinfo(np.int64).max:
        raise BadInput(f"{where}: label {y.max()} is too large; number the classes from 0 on")
    return y.reshape(-1).astype(np.int64)


def _meaning(title: str) -> tuple[str | None, frozenset[str]]:
    """Return the role of an array, images or labels, and the other words of its name."""
    words = re.split(r"[_.\- ]+", title.removesuffix(".npy").lower())
    roles = [ROLES[word] for word in words if word in ROLES]
    return (roles[0] if roles else None), frozenset(word for word in words if word not in ROLES)


def _arrays(source: Path) -> dict[str, Array]:
    """Return the arrays at a source by name; `.npy` files are memory-mapped."""
    files: list[Path] = []
    if source.is_dir():
        files = sorted(source.glob("*.npy"))
    elif source.suffix == ".npy":
        files = sorted(p for p in source.parent.glob("*.npy") if _meaning(p.name)[1] == _meaning(source.name)[1])
    try:
        if source.suffix == ".npz":  # opened here, because numpy does not close a damaged file
            with source.open("rb") as file:
                check_zip(file, source)
                with np.load(file, allow_pickle=False) as archive:
                    return {name: archive[name] for name in archive.files if _meaning(name)[0]}
        return {path.name: np.load(path, mmap_mode="r", allow_pickle=False) for path in files if _meaning(path.name)[0]}
    except BadInput:
        raise
    except Exception as error:  # damaged file: ValueError, BadZipFile, zlib.error, MemoryError, SyntaxError …
        raise BadInput(
            f"{source} cannot be read as arrays: {reason(error)}; "
            "save images as uint8 and labels as integers, with numpy.save or numpy.savez"
        ) from error
