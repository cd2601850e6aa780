"""Make the embedded slice: the first 1,000 test images of CIFAR-10 as a lossless WebP sheet, and their labels.

    python -m tools.make_sample SOURCE          SOURCE: anything `antiadv data import` takes for CIFAR-10

Lossless WebP is the smallest format that numpy or Pillow reads: 1.67 MB, against 2.16 MB for PNG and 3.07 MB raw.
The source is checked against the digest of the full test set.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from antiadv.data import cifar

ACROSS, DOWN = 25, 40  # images in a row of the sheet, and rows


def main(source: str) -> None:
    (test,) = (found for found in cifar.find(Path(source), "cifar10") if found.split == "test")
    count = ACROSS * DOWN
    tiles = test.x[:count].reshape(DOWN, ACROSS, 32, 32, 3).swapaxes(1, 2)
    sheet = np.ascontiguousarray(tiles).reshape(DOWN * 32, ACROSS * 32, 3)
    folder = Path(cifar.__file__).parent / "sample"
    Image.fromarray(sheet).save(folder / f"{cifar.SAMPLE}.webp", lossless=True, quality=100, method=6)
    card = {"of": "cifar10:test", "of_digest": test.digest, "ids": [0, count - 1], "labels": test.y[:count].tolist()}
    (folder / f"{cifar.SAMPLE}.json").write_text(json.dumps(card) + "\n")
    cifar.read_sample()  # raises if the written slice does not have the expected digest


if __name__ == "__main__":
    main(*sys.argv[1:])
