"""Count near-duplicate queries of each client: attacks that search ask about many images that hardly differ.

    near = NearDuplicates(shape)
    near.seen(client, images)   →  how many rows are near a recent query of the same client, or an earlier row

An image is shrunk to 8×8 blocks. The signs of 256 fixed random projections, which do not see its mean, are its
fingerprint. Noise of 8/255 turns a few of the signs, another image about half of them. Up to `DISTANCE` turned signs
count as near. On CIFAR-10 that is true of all perturbed copies and of 1 in 700 other photos, each compared with 256
before it. Kept are 256 fingerprints of 32 bytes for each of the last 1,024 clients: 8 MB at most.

This is a number for an operator to look at, and no defence: an attacker may use several clients, and video frames and
repeated uploads are near duplicates too.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from antiadv.serving.backend import Images

BLOCKS = 8  # in each direction
BITS = 256
DISTANCE = 24
CLIENTS_KEPT = 1024
QUERIES_KEPT = 256

Prints = NDArray[np.uint64]


class NearDuplicates:
    """See the head of this file."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        size = _shrunk(np.zeros((1, *shape), np.float32)).shape[1]
        directions = np.random.default_rng(0).standard_normal((size, BITS)).astype(np.float32)
        self._directions = directions - directions.mean(0)  # so that they do not see the mean of an image
        self._recent: OrderedDict[str, tuple[Prints, int]] = OrderedDict()  # fingerprints, and how many were written

    def seen(self, client: str, images: Images) -> int:
        kept, written = self._recent.pop(client, (np.zeros((QUERIES_KEPT, BITS // 64), np.uint64), 0))
        near = 0
        for print_ in self.fingerprints(images):
            turned = np.bitwise_count(kept[: min(written, QUERIES_KEPT)] ^ print_).sum(1)
            near += int(turned.size > 0 and turned.min() <= DISTANCE)
            kept[written % QUERIES_KEPT] = print_
            written += 1
        self._recent[client] = kept, written
        if len(self._recent) > CLIENTS_KEPT:
            self._recent.popitem(last=False)
        return near

    def fingerprints(self, images: Images) -> Prints:
        signs = _shrunk(images) @ self._directions > 0
        return np.packbits(signs, axis=1).view(np.uint64)


def _shrunk(images: Images) -> Images:
    """The sum of each block of pixels, flat. Images that are not pictures, or are too small, stay as they are."""
    n, *shape = images.shape
    if len(shape) != 3 or min(shape[1:]) < BLOCKS:
        return images.reshape(n, -1)
    channels, height, width = shape
    h, w = height // BLOCKS, width // BLOCKS
    cut = images[:, :, : h * BLOCKS, : w * BLOCKS].reshape(n, channels, BLOCKS, h, BLOCKS, w)
    sums: Images = np.add.reduce(cut, (3, 5))
    return sums.reshape(n, -1)
