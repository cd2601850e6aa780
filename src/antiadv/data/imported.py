"""Imported sets on disk: how they are written and read.

    DIR/cifar10-test.images.npy     uint8 [N, H, W, C], memory-mapped when read
    DIR/cifar10-test.labels.npy     int64 [N]
    DIR/cifar10-test.json           name, split, classes, count, digest, source

The JSON file is written last, so an incomplete set is never read. For a set too large to copy (ImageNet), only the JSON
file is written; it lists the image files (data/imagenet.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO  # Any: values of a JSON file

import numpy as np

from antiadv.core.errors import BadInput, reason
from antiadv.core.files import atomic_write
from antiadv.data.dataset import Bytes, Ints, Mapped, Pixels, digest

FORMAT = 1
DIRECTORY = Path("~/.antiadv/data")


@dataclass(frozen=True, eq=False)
class Found:
    """A split of a data set, read from a source and checked."""

    name: str
    split: str
    classes: tuple[str, ...]
    x: Bytes
    y: Ints
    digest: str
    source: Mapping[str, str]  # file: the name; md5: the digest of an archive


def place(directory: Path, name: str, split: str) -> Path:
    return directory.expanduser() / f"{name}-{split}.json"


def write_arrays(found: Found, directory: Path) -> Path:
    """Write a split; return the path of its JSON file."""
    card = place(directory, found.name, found.split)
    write_file(card.with_suffix(".images.npy"), lambda file: np.save(file, found.x, allow_pickle=False))
    write_file(card.with_suffix(".labels.npy"), lambda file: np.save(file, found.y, allow_pickle=False))
    return write_card(card, found.name, found.split, found.classes, len(found.y), found.digest, found.source)


def write_card(
    card: Path,
    name: str,
    split: str,
    classes: Sequence[str],
    count: int,
    split_digest: str,
    source: Mapping[str, str],
    **more: Any,
) -> Path:
    """Write the JSON file of a split; return its path."""
    content = {"format": FORMAT, "name": name, "split": split, "count": count, "digest": split_digest}
    content |= {"source": dict(source), "classes": list(classes), **more}
    write_file(card, lambda file: file.write(json.dumps(content, indent=1).encode() + b"\n"))
    return card


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a temporary file, then rename it, so that the file is complete or absent."""
    try:
        with atomic_write(path) as part, part.open("wb") as file:
            write(file)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}; choose another data directory") from error


def read_card(directory: Path, name: str, split: str) -> dict[str, Any] | None:
    """Read and check the JSON file of an imported split; None if there is none."""
    card = place(directory, name, split)
    if not card.exists():
        return None
    try:
        content: dict[str, Any] = json.loads(card.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{card} cannot be read: {error}; import the set again") from error
    if not isinstance(content, dict):
        raise BadInput(f"{card} does not describe a data set; import the set again")
    missing = {"format", "name", "split", "count", "digest", "classes"} - set(content)
    if missing:
        raise BadInput(f"{card} lacks {', '.join(sorted(missing))}; import the set again")
    if content["format"] != FORMAT:
        raise BadInput(f"{card} has format {content['format']}, this version reads {FORMAT}; import the set again")
    count, classes = content["count"], content["classes"]
    named = isinstance(classes, list) and all(isinstance(text, str) for text in classes)
    if (content["name"], content["split"]) != (name, split) or type(count) is not int or count < 1 or not named:
        raise BadInput(f"{card} does not describe {name}:{split} with its count and classes; import the set again")
    if not isinstance(content["digest"], str):
        raise BadInput(f"{card} has a digest that is not a text; import the set again")
    return content


def read_arrays(directory: Path, card: Mapping[str, Any]) -> tuple[Bytes, Ints]:
    """Read the arrays of an imported split, with memory-mapped images, and check types and shapes."""
    path = place(directory, card["name"], card["split"])
    try:
        x = np.load(path.with_suffix(".images.npy"), mmap_mode="r", allow_pickle=False)
        y = np.load(path.with_suffix(".labels.npy"), mmap_mode="r", allow_pickle=False)
    except Exception as error:  # damaged header: ValueError, EOFError, OverflowError, MemoryError, SyntaxError …
        raise BadInput(f"the arrays of {path} cannot be read: {reason(error)}; import the set again") from error
    kinds = (x.dtype, x.ndim, y.dtype, y.ndim)
    if kinds != (np.uint8, 4, np.int64, 1) or not len(x) == len(y) == card["count"]:
        raise BadInput(f"the arrays of {path} are not {card['count']} images and labels; import the set again")
    return x, np.array(y)


def open_arrays(directory: Path, card: Mapping[str, Any], expected: str) -> tuple[Pixels, Ints]:
    """Return pixels and labels of an imported split, if their digest is the expected one."""
    x, y = read_arrays(directory, card)
    pixels = Mapped.of(x, directory)  # before the digest, so that a change in between is noticed
    found = digest(x, y)
    if found != expected:
        raise BadInput(
            f"the arrays of {place(directory, card['name'], card['split'])} have changed since they were imported: "
            f"their digest is {found}, expected {expected}; import the set again"
        )
    return pixels, y
