"""Probes: the scores of a network for a few fixed images, stored next to each cell in `probe.json`.

    Asked(resources, model, data)     asks the network
    .probe                            →  Probe: a row of scores for each image, to be stored
    .compare(stored)                  →  Difference from a stored probe, or None

The key of a cell covers the name and the weights of its network. Code can change under the same key: a normalisation in
`forward`, a file that is read at each call, a server. So the network's scores are compared with the stored ones before
stored records are used.

The images are the first two of the data set and two of the same shape made by a formula. The base network is asked in
float32. A defence is in the key, by its spec and edition.

Answers are equal if no score differs by more than TOLERANCE times the spread of all scores (largest minus smallest).
Measured on the twelve networks of the zoo: AVX2 and plain instructions differ from AVX-512 by 2e-7 of the spread,
float16 by 2e-4, bfloat16 by 3e-3. A mean of 0.5 instead of CIFAR's changes 2e-2 to 6e-2, another usual standard
deviation 7e-2 to 2e-1.

A network with random numbers of its own answers the same image differently. Such a row is stored as None and not
compared. Where a row differs from the stored one, the network is asked again a few times; one equal answer is enough.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from antiadv.core.engine import Eager
from antiadv.core.errors import BadInput
from antiadv.data.dataset import Dataset
from antiadv.engine.switches import switched
from antiadv.evaluation.resources import Resources

TOLERANCE = 5e-3  # of the spread of the scores
FLOOR = 1e-6  # of the largest score: float32 has no more digits where all scores are nearly equal
OF_DATA = 2  # probe images that are samples of the data set
ASKS = 2  # how often each image is sent: shows whether the network is random
MORE = 8  # how often a different answer is asked for again
DIGITS = 9  # of a stored score: float32 has no more
GOLDEN = 0.6180339887498949  # the fractional parts of its multiples fill [0, 1) evenly

Row = Tensor | None  # the scores of one image, float64; None where there is no answer


@dataclass(frozen=True)
class Probe:
    """`images` is the digest of the probe images. A row is None where the network gave no answer or different ones."""

    images: str
    scores: tuple[tuple[float, ...] | None, ...]

    @property
    def empty(self) -> bool:
        return all(row is None for row in self.scores)


@dataclass(frozen=True)
class Difference:
    """How the answers of a network differ from the stored ones."""

    images: int  # the number of images with another answer
    of: int
    largest: float  # infinite where the number of classes differs
    spread: float  # of the stored scores

    def __str__(self) -> str:
        return (
            f"its scores for {self.images} of {self.of} probe images differ by up to {self.largest:.3g}, "
            f"where the stored ones span {self.spread:.3g}"
        )


class Asked:
    """The answers of one network to the probe images of one data set."""

    def __init__(self, resources: Resources, model: str, data: str) -> None:
        self.network, self.device = resources.model(model), resources.device
        self.x = probe_images(resources.data(data))
        self.images = f"sha256:{hashlib.sha256(self.x.numpy().tobytes()).hexdigest()}"
        self.error: BaseException | None = None  # why an image has no answer
        self.answers: list[list[Row]] = []  # for each time it was asked, one row per image
        for _ in range(ASKS):
            self.answers.append(self._ask())

    @property
    def probe(self) -> Probe:
        first, second, *_ = self.answers
        reach = _reach(first)
        same = [row if _apart(row, other) <= reach else None for row, other in zip(first, second, strict=True)]
        return Probe(self.images, tuple(None if row is None else _rounded(row) for row in same))

    def check_alive(self) -> None:
        """Raise the network's own error where it answers no image at all."""
        if self.error is not None and all(row is None for row in self.answers[0]):
            raise self.error

    def compare(self, stored: Probe) -> Difference | None:
        """The difference from the stored answers; raises where the network no longer answers."""
        rows: list[Row] = [None if row is None else torch.tensor(row, dtype=torch.float64) for row in stored.scores]
        reach, asked = _reach(rows), [i for i, row in enumerate(rows) if row is not None]
        for _ in range(1 + MORE):
            apart = {i: min(_apart(rows[i], answer[i]) for answer in self.answers) for i in asked}
            changed = [i for i in asked if apart[i] > reach]
            if not changed:
                return None
            if self.error is not None and any(answer[i] is None for i in changed for answer in self.answers):
                raise self.error
            self.answers.append(self._ask())
        return Difference(len(changed), len(rows), max(apart[i] for i in changed), _spread(rows))

    def _ask(self) -> list[Row]:
        """All images at once; one by one if that fails, so that one bad image does not hide the others."""
        together = self._rows(self.x)
        if together is not None:
            return together
        return [row for image in self.x.split(1) for row in self._rows(image) or [None]]

    def _rows(self, x: Tensor) -> list[Row] | None:
        """The scores of each image; None for those that are not finite. None in all if the network raises."""
        try:
            s = self._scores(x)
            finite = torch.isfinite(s).all(1)
        except (Exception, SystemExit) as error:
            self.error = error
            return None
        if not finite.all():
            self.error = BadInput(
                "scores must be finite; found NaN or infinity for a probe image. Check the weights and the input range "
                "of the network."
            )
        return [row if ok else None for row, ok in zip(s, finite, strict=True)]

    def _scores(self, x: Tensor) -> Tensor:
        """The scores as the judge asks for them. torch's generators get another seed each time, which exposes a random
        network, and are restored afterwards."""
        cuda = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda), torch.inference_mode(False), switched("float32", self.device):
            for generator in (torch.default_generator, *(torch.cuda.default_generators[d.index] for d in cuda)):
                generator.manual_seed(len(self.answers))
            return Eager().scores(self.network, x.to(self.device)).cpu().double()


def probe_images(dataset: Dataset) -> Tensor:
    """The first samples of the data set, a noisy image and a smooth one of the same shape."""
    x = dataset.images(dataset.ids[:OF_DATA])
    i = np.arange(x[0].numel(), dtype=np.float64)
    noisy, smooth = np.floor(256 * (i * GOLDEN % 1)), np.floor(255 * i / max(1, len(i) - 1))
    made = torch.from_numpy(np.stack([noisy, smooth])).float() / 255
    return torch.cat([x, made.view(2, *x.shape[1:])])


def _apart(a: Row, b: Row) -> float:
    """The largest difference of two rows; infinite where they cannot be compared."""
    if a is None or b is None or a.shape != b.shape:
        return math.inf
    return float((a - b).abs().max())


def _reach(rows: Sequence[Row]) -> float:
    largest = max((float(row.abs().max()) for row in rows if row is not None), default=0.0)
    return max(TOLERANCE * _spread(rows), FLOOR * largest)


def _spread(rows: Sequence[Row]) -> float:
    scores = torch.cat([torch.zeros(0, dtype=torch.float64), *(row for row in rows if row is not None)])
    return float(scores.max() - scores.min()) if len(scores) else 0.0


def _rounded(row: Tensor) -> tuple[float, ...]:
    return tuple(float(f"{value:.{DIGITS}g}") for value in row.tolist())
