"""A set of one's own: images and labels as arrays, read where they lie.

    arrays:mine.npz         images uint8 [N, H, W, C] or [N, C, H, W], C = 1 or 3; labels whole numbers [N]
    arrays:FOLDER           the same as a pair of .npy files (data/pairs.py has the names)

Nothing is imported or copied. A store knows such a set by the name of its file and by its digest, so that it may lie
anywhere, and another set of the same name is not taken for it. Its classes have numbers only, and a network may know
more of them than appear.
"""

from __future__ import annotations

from pathlib import Path

from antiadv.core.errors import BadInput
from antiadv.data.dataset import Dataset, Mapped, digest
from antiadv.data.pairs import read_pairs

MOST_CLASSES = 2**31  # a label beyond it is no class of any network


def arrays(path: str) -> Dataset:
    """Images and labels of your own, in an .npz or a folder with two .npy files."""
    source = Path(path).expanduser()
    if not source.exists():
        raise BadInput(f"{source} does not exist; give an .npz with images and labels, or a folder with both as .npy")
    pairs = read_pairs(source, channels=(1, 3))
    if not pairs:
        raise BadInput(
            f"a data set is one pair of images and labels; found none by such names in {source}. "
            "Call the arrays images and labels."
        )
    if len(pairs) > 1:
        found = ", ".join(pair.title for pair in pairs)
        raise BadInput(f"a data set is one pair of images and labels; found {found} in {source}. Keep one there.")
    (pair,) = pairs
    if pair.y.min() < 0:
        raise BadInput(f"labels count from 0; found {pair.y.min()} in {source}. Number the classes from 0 on.")
    if pair.y.max() >= MOST_CLASSES:
        raise BadInput(f"labels count from 0; found {pair.y.max()} in {source}. Number the classes from 0 on.")
    pixels = Mapped.of(pair.x, source)  # before the digest: a change between the two is seen
    return Dataset(f"arrays:{source.name}", (), digest(pair.x, pair.y), pixels, pair.y)
