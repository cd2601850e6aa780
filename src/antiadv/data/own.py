"""Your own data set: images and labels as arrays.

    arrays:mine.npz         images uint8 [N, H, W, C] or [N, C, H, W], C = 1 or 3; labels integers [N]
    arrays:FOLDER           the same as a pair of .npy files (data/pairs.py lists the names)

Nothing is copied. A store identifies such a set by the name of its file and its digest, so the file can be moved.
Classes have numbers only, and a network may have more classes than the labels show.
"""

from __future__ import annotations

from pathlib import Path

from antiadv.core.errors import BadInput
from antiadv.data.dataset import Dataset, Mapped, digest
from antiadv.data.pairs import read_pairs

MOST_CLASSES = 2**31  # no network has as many


def arrays(path: str) -> Dataset:
    """Images and labels of your own, in an .npz or a folder with two .npy files."""
    source = Path(path).expanduser().absolute()  # a folder has a name, also where it is written as a dot
    if not source.exists():
        raise BadInput(f"{source} does not exist; give an .npz with images and labels, or a folder with both as .npy")
    pairs = read_pairs(source, channels=(1, 3))
    if not pairs:
        raise BadInput(
            f"a data set is one pair of images and labels; found none in {source}. Name the arrays images and labels."
        )
    if len(pairs) > 1:
        found = ", ".join(pair.title for pair in pairs)
        raise BadInput(f"a data set is one pair of images and labels; found {found} in {source}. Keep one pair.")
    (pair,) = pairs
    for label in (pair.y.min(), pair.y.max()):
        if not 0 <= label < MOST_CLASSES:
            raise BadInput(f"labels count from 0; found {label} in {source}. Number the classes from 0 on.")
    pixels = Mapped.of(pair.x, source)  # before the digest, so that a change in between is noticed
    return Dataset(f"arrays:{source.name}", (), digest(pair.x, pair.y), pixels, pair.y)
