"""Unpack the image sheets of CIFAR into the form that `antiadv.data` reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tools.train_zoo.jobs import log

SHEETS = {  # files of each data set and split; a sheet has 100 x 100 tiles, row by row
    (name, split): [f"{name}_train_{i}.webp" for i in range(5)] if split == "train" else [f"{name}_test.webp"]
    for name in ("cifar10", "cifar100")
    for split in ("train", "test")
}


def unpack(sheets: Path, data: Path) -> None:
    """Unpack every split whose sheets and labels are all there."""
    from antiadv.data.imported import place

    for (name, split), files in SHEETS.items():
        paths = [sheets / f for f in files]
        labels = sheets / f"{name}_labels.npz"
        if place(data, name, split).exists():
            log(f"{name} {split} is in {data}")
        elif missing := [p.name for p in (*paths, labels) if not p.exists()]:
            log(f"{name} {split} waits for {', '.join(missing)}")
        else:
            unpack_split(name, split, paths, labels, data)


def unpack_split(name: str, split: str, paths: Sequence[Path], labels: Path, data: Path) -> None:
    """Unpack one split; `antiadv.data` checks its digest."""
    from PIL import Image

    from antiadv.data.cifar import find
    from antiadv.data.imported import write_arrays

    Image.MAX_IMAGE_PIXELS = None
    pair = data / f"pair-{name}-{split}"
    pair.mkdir(parents=True, exist_ok=True)
    x = np.concatenate([tiles(np.asarray(Image.open(p).convert("RGB"))) for p in paths])
    np.save(pair / f"{name}_{split}_x.npy", x)
    np.save(pair / f"{name}_{split}_y.npy", np.load(labels)[split].astype(np.int64))
    for found in find(pair, name):
        log(f"{name} {split}: {len(found.y)} images, {found.digest} -> {write_arrays(found, data)}")


def tiles(sheet: NDArray[np.uint8], side: int = 32) -> NDArray[np.uint8]:
    """Cut a sheet into its tiles, row by row."""
    rows, cols = sheet.shape[0] // side, sheet.shape[1] // side
    return sheet.reshape(rows, side, cols, side, 3).swapaxes(1, 2).reshape(-1, side, side, 3)
