"""ImageNet's validation images, and other images with its 1,000 classes. Files are read when they are needed.

    FOLDER/n01440764/ILSVRC2012_val_00000293.JPEG …     1,000 folders by wnid; the class is the index of the folder
    FOLDER/*.csv with images there or in subfolders      one row per image: its name and its class
    imagenet_x.npy, imagenet_y.npy                       uint8 [N, H, W, 3], memory-mapped

The class column of a csv is `class_index` or `label` (0 to 999), `TrueLabel` (1 to 1000, as in the NIPS-2017
competition), `PredictionString` or `wnid`. Images become 224 x 224: the shorter side is resized to 256, then the centre
is cropped; images of 224 x 224 stay as they are. Samples of ImageNet are in the order of their file names, others in
the order of the csv.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal  # Any: values of a JSON file

import numpy as np
from PIL import Image

from antiadv.core.errors import BadInput
from antiadv.data import imported, pairs
from antiadv.data.dataset import Bytes, Dataset, Ints, digest
from antiadv.data.imported import Found
from antiadv.data.pictures import check_size, open_picture

CLASSES = 1000
SIDE, SHORTER = 224, 256
SUFFIXES = {".jpeg", ".jpg", ".png", ".webp"}
NAME_COLUMNS = ("ImageId", "image_id", "filename", "file", "image")
CLASS_COLUMNS = ("class_index", "label", "TrueLabel", "PredictionString", "wnid")


def imagenet(split: Literal["test"] = "test", dir: str | None = None) -> Dataset:
    """ImageNet's validation set. Must be imported first."""
    return _load("imagenet", split, dir)


def nips2017(split: Literal["test"] = "test", dir: str | None = None) -> Dataset:
    """The images of the NIPS-2017 adversarial competition, with ImageNet's classes. Must be imported first."""
    return _load("nips2017", split, dir)


def _load(name: str, split: str, dir: str | None) -> Dataset:
    directory = Path(dir) if dir else imported.DIRECTORY
    card = imported.read_card(directory, name, split)
    if card is None:
        raise BadInput(
            f"{name} is not in {directory}; import it with `antiadv data import SOURCE --name {name}`, where SOURCE is "
            "a folder of 1,000 wnid folders, a folder of images with a csv, or an .npy pair"
        )
    if "files" in card:
        files, labels = _listed(card, imported.place(directory, name, split))
        found = _list_digest(files.names, labels.tolist(), files.sha256)
        if found != card["digest"]:
            raise BadInput(
                f"{imported.place(directory, name, split)} was edited: the digest of its files and labels is {found}, "
                f"expected {card['digest']}; import the set again"
            )
        return Dataset(f"{name}:{split}", tuple(card["classes"]), card["digest"], files, labels)
    pixels, y = imported.open_arrays(directory, card, card["digest"])
    return Dataset(f"{name}:{split}", tuple(card["classes"]), card["digest"], pixels, y)


def _listed(card: Mapping[str, Any], place: Path) -> tuple[Files, Ints]:
    """Return the files and labels that a card lists, after checking their number and types."""
    lists: list[Any] = [card.get(key) for key in ("files", "sha256", "labels")]
    kinds = zip(lists, (str, str, int), strict=True)
    fits = isinstance(card.get("root"), str) and all(isinstance(part, list) for part in lists)
    if not fits or not all(len(part) == card["count"] and {*map(type, part)} == {kind} for part, kind in kinds):
        raise BadInput(f"{place} does not list {card['count']} files, digests and labels; import the set again")
    names, digests, labels = lists
    if min(labels) < 0 or max(labels) >= CLASSES:
        raise BadInput(f"{place} has labels {min(labels)} to {max(labels)}, expected 0 to 999; import the set again")
    return Files(Path(card["root"]), tuple(names), tuple(digests)), np.array(labels, np.int64)


@dataclass(frozen=True)
class Files:
    """Image files as `Pixels`. Each file is read when needed and compared with its digest."""

    root: Path
    names: tuple[str, ...]
    sha256: tuple[str, ...]

    def __getitem__(self, rows: Ints, /) -> Bytes:
        out = np.empty((len(rows), SIDE, SIDE, 3), np.uint8)
        for place, row in enumerate(rows):
            out[place] = crop(self._content(int(row)), self.names[row])
        return out

    def check(self, rows: Ints) -> None:
        for row in rows:
            self._content(int(row))

    def _content(self, row: int) -> bytes:
        content = _read(self.root / self.names[row])
        if _short_digest(content) != self.sha256[row]:
            raise BadInput(f"{self.root / self.names[row]} has changed since it was imported; import the set again")
        return content


def crop(content: bytes, name: str) -> Bytes:
    """Decode an image to uint8 [224, 224, 3]: shorter side to 256 (bilinear), then the centre."""
    image = open_picture(content, name).convert("RGB")
    if image.size != (SIDE, SIDE):
        width, height = (side * SHORTER // min(image.size) for side in image.size)
        check_size(width, height, f"{name}, resized,")
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        left, top = round((width - SIDE) / 2), round((height - SIDE) / 2)
        image = image.crop((left, top, left + SIDE, top + SIDE))
    return np.asarray(image)


# ---------------------------------------------------------------- importing


@dataclass(frozen=True)
class Listed:
    """Images at a source, with their classes. They are not copied."""

    name: str
    classes: tuple[str, ...]
    root: Path
    files: tuple[str, ...]
    labels: tuple[int, ...]


def find(source: Path, name: str | None = None) -> list[Found | Listed]:
    """Return the images at a source with ImageNet's classes; an empty list if the source is something else."""
    folders = sorted(path for path in source.glob("n*") if path.is_dir() and re.fullmatch(r"n\d{8}", path.name))
    if folders:
        return [_by_folder(source, folders, name or "imagenet")]
    tables = [source] if source.suffix == ".csv" else sorted(source.glob("*.csv"))
    for table in tables:
        listed = _by_table(table, name)
        if listed:
            return [listed]
    return [
        _pair(pair, name or ("nips2017" if "nips2017" in pair.words else "imagenet"), source)
        for pair in pairs.read_pairs(source)
        if name is not None or pair.x.shape[1:3] == (SIDE, SIDE)
    ]


def write(listed: Listed, directory: Path) -> Path:
    """Write the JSON file of a set that is not copied: each image file with its class and its digest."""
    digests = tuple(_short_digest(_read(listed.root / file)) for file in listed.files)
    return imported.write_card(
        imported.place(directory, listed.name, "test"),
        listed.name,
        "test",
        listed.classes,
        len(listed.files),
        _list_digest(listed.files, listed.labels, digests),
        {"file": listed.root.name},
        root=str(listed.root),
        files=listed.files,
        labels=listed.labels,
        sha256=digests,
    )


def _list_digest(files: Sequence[str], labels: Sequence[int], digests: Sequence[str]) -> str:
    """Return the digest of all names, classes and file digests."""
    total = hashlib.sha256()
    for file, label, value in zip(files, labels, digests, strict=True):
        total.update(f"{Path(file).name} {label} {value}\n".encode())
    return "sha256:" + total.hexdigest()


def _by_folder(source: Path, folders: Sequence[Path], name: str) -> Listed:
    if len(folders) != CLASSES:
        raise BadInput(
            f"{source} has {len(folders)} folders named by wnid, expected {CLASSES}, since a class is the index of its "
            "folder; complete the folders, or list your images in a csv with a class_index column"
        )
    found: list[tuple[str, str, int]] = []
    for label, folder in enumerate(folders):
        images = [path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES]
        if not images:
            raise BadInput(f"{folder} holds no image, so class {label} is missing; complete the folders")
        found += [(path.name, f"{folder.name}/{path.name}", label) for path in images]
    found.sort()
    return Listed(
        name,
        tuple(folder.name for folder in folders),
        source.resolve(),
        tuple(file for _, file, _ in found),
        tuple(label for _, _, label in found),
    )


def _by_table(table: Path, name: str | None) -> Listed | None:
    """Return the images of a csv; None if the csv has no columns for names and classes."""
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{table} cannot be read as csv: {error}") from error
    name_column = next((c for c in NAME_COLUMNS if rows and c in rows[0]), None)
    class_column = next((c for c in CLASS_COLUMNS if rows and c in rows[0]), None)
    if name_column is None or class_column is None:
        return None
    root = table.parent
    by_stem = {p.stem: p for depth in ("*", "*/*") for p in sorted(root.glob(depth)) if p.suffix.lower() in SUFFIXES}
    ids = [_without_suffix(row[name_column] or "") for row in rows]
    missing = [i for i in ids if i not in by_stem]
    if missing:
        raise BadInput(
            f"{table} lists {len(rows)} images, but {len(missing)} are missing, the first is {missing[0]!r}; "
            f"put them into {root}"
        )
    labels, classes = _labels(table, rows, class_column)
    order = sorted(range(len(ids)), key=ids.__getitem__) if ids[0].startswith("ILSVRC2012_val_") else range(len(ids))
    competition = all(re.fullmatch(r"[0-9a-f]{16}", i) for i in ids)
    return Listed(
        name or ("nips2017" if competition else "imagenet"),
        classes,
        root.resolve(),
        tuple(str(by_stem[ids[i]].relative_to(root)) for i in order),
        tuple(labels[i] for i in order),
    )


def _without_suffix(name: str) -> str:
    return Path(name).stem if Path(name).suffix.lower() in SUFFIXES else name


def _labels(table: Path, rows: Sequence[Mapping[str, str]], column: str) -> tuple[list[int], tuple[str, ...]]:
    """Return a class from 0 to 999 for each row, and the names of all classes."""
    texts = [(row[column] or "").split(" ")[0] for row in rows]
    if column in ("PredictionString", "wnid"):
        wnids = sorted(set(texts))
        if len(wnids) != CLASSES:
            raise BadInput(
                f"{table} names {len(wnids)} wnids, expected {CLASSES}, since a class is the index of its wnid; "
                "give a class_index column instead"
            )
        place = {wnid: label for label, wnid in enumerate(wnids)}
        return [place[text] for text in texts], tuple(wnids)
    first = 1 if column == "TrueLabel" else 0
    try:
        labels = [int(text) - first for text in texts]
    except ValueError as error:
        raise BadInput(f"{table}, column {column}: {error}; a class is a whole number") from error
    if min(labels) < 0 or max(labels) >= CLASSES:
        raise BadInput(
            f"{table}, column {column}: classes are {first} to {first + CLASSES - 1}; "
            f"found {min(labels) + first} to {max(labels) + first}"
        )
    return labels, tuple(map(str, range(CLASSES)))


def _pair(pair: pairs.Pair, name: str, source: Path) -> Found:
    if pair.y.min() < 0 or pair.y.max() >= CLASSES:
        raise BadInput(f"{pair.title}: classes are 0 to {CLASSES - 1}; found {pair.y.min()} to {pair.y.max()}")
    classes = tuple(map(str, range(CLASSES)))
    return Found(name, "test", classes, pair.x, pair.y, digest(pair.x, pair.y), {"file": source.name})


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: an impossible file name
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"{path} was imported but cannot be read: {why}; put it back or import again") from error


def _short_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
