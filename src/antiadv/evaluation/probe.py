"""Probes: what a network answers to a few fixed images. It is kept beside each cell, in `probe.json`.

    Asked(world, model, data)      asks the network for its answers
    .probe                         →  Probe: a row of scores for each image, to be stored
    .compare(stored)               →  Difference: what is no longer the same, if anything

The key of a cell names its network by name and weights. Code that is not in the weights (a normalisation in `forward`,
a file that is read at each call, a server that is asked) can change under the same key. So before stored numbers are
taken for those of a network, its answers are compared with those of the network that made them.

The images are the first two of the data set and two that a formula makes of their shape. The bare network is asked, as
the judge asks it: float32, the module as it stands. What a defence adds is in the key, by its spec and edition.

Answers are the same if no score differs by more than TOLERANCE times the spread of all scores (their largest less their
smallest). Measured on the twelve networks of the zoo: AVX2 and plain instructions against AVX-512 differ by 2e-7 of the
spread, float16 by 2e-4, bfloat16 by 3e-3; a mean of 0.5 for CIFAR's changes 2e-2 to 6e-2, another usual standard
deviation 7e-2 to 2e-1.

A network that rolls dice of its own answers the same image differently: such a row is stored as none and not compared.
Where a stored row is not met, the network is asked again a few times, and one answer that meets it is enough.
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
ASKS = 2  # how often each image is shown: a network that rolls dice gives itself away
MORE = 8  # how often again, before an answer is called another one
DIGITS = 9  # of a stored score: all that float32 has

Row = Tensor | None  # the scores of one image, float64; None where there is no answer


@dataclass(frozen=True)
class Probe:
    """`images` is the digest of the probe images. A row is None where the network had no answer, or several."""

    images: str
    scores: tuple[tuple[float, ...] | None, ...]

    @property
    def empty(self) -> bool:
        return all(row is None for row in self.scores)


@dataclass(frozen=True)
class Difference:
    """How the answers of a network are not those that were stored."""

    images: int  # those with another answer
    of: int
    largest: float  # infinite where the number of classes is another one
    spread: float  # of the stored scores

    def __str__(self) -> str:
        return (
            f"its scores for {self.images} of {self.of} probe images differ by up to {self.largest:.3g}, "
            f"where the stored ones span {self.spread:.3g}"
        )


class Asked:
    """One network and one data set. It is asked when this is made, and again only where an answer is in doubt."""

    def __init__(self, resources: Resources, model: str, data: str) -> None:
        self.network, self.device = resources.model(model), resources.device
        self.x = probe_images(resources.data(data))
        self.images = f"sha256:{hashlib.sha256(self.x.numpy().tobytes()).hexdigest()}"
        self.error: BaseException | None = None  # why some image has no answer
        self.answers: list[list[Row]] = []  # one row for each image, as often as it was asked
        for _ in range(ASKS):
            self.answers.append(self._ask())

    @property
    def probe(self) -> Probe:
        first, second, *_ = self.answers
        reach = _reach(first)
        same = [row if _apart(row, other) <= reach else None for row, other in zip(first, second, strict=True)]
        return Probe(self.images, tuple(None if row is None else _short(row) for row in same))

    def check_alive(self) -> None:
        """Raise what the network raised, where it answers no image at all."""
        if self.error is not None and all(row is None for row in self.answers[0]):
            raise self.error

    def compare(self, stored: Probe) -> Difference | None:
        """What is not as it was; raises where the network does not answer any more."""
        rows: list[Row] = [None if row is None else torch.tensor(row, dtype=torch.float64) for row in stored.scores]
        reach, asked = _reach(rows), [i for i, row in enumerate(rows) if row is not None]
        for _ in range(1 + MORE):
            apart = {i: min(_apart(rows[i], answer[i]) for answer in self.answers) for i in asked}
            other = [i for i in asked if apart[i] > reach]
            if not other:
                return None
            if self.error is not None and any(answer[i] is None for i in other for answer in self.answers):
                raise self.error
            self.answers.append(self._ask())
        return Difference(len(other), len(rows), max(apart[i] for i in other), _spread(rows))

    def _ask(self) -> list[Row]:
        """All images at once; one by one where that fails, so that one bad image costs no other."""
        try:
            return self._rows(self.x)
        except (Exception, SystemExit) as error:
            self.error = error
        return [row for image in self.x.split(1) for row in self._alone(image)]

    def _alone(self, image: Tensor) -> list[Row]:
        try:
            return self._rows(image)
        except (Exception, SystemExit) as error:
            self.error = error
        return [None]

    def _rows(self, x: Tensor) -> list[Row]:
        s = self._scores(x)
        fine = torch.isfinite(s).all(1)
        if not fine.all():
            self.error = BadInput(
                "scores must be finite; found NaN or infinity for a probe image. Check the weights and the input range "
                "of the network."
            )
        return [row if ok else None for row, ok in zip(s, fine, strict=True)]

    def _scores(self, x: Tensor) -> Tensor:
        """As the judge asks. A network that draws from torch's own generators has other draws at each ask, and they are
        left as they were."""
        cuda = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda), torch.inference_mode(False), switched("float32", self.device):
            for generator in (torch.default_generator, *(torch.cuda.default_generators[d.index] for d in cuda)):
                generator.manual_seed(len(self.answers))
            return Eager().scores(self.network, x.to(self.device)).cpu().double()


def probe_images(dataset: Dataset) -> Tensor:
    """The first samples of the set, and two images of the same shape with bytes as pixels: one fine, one smooth."""
    x = dataset.images(dataset.ids[:OF_DATA])
    i = np.arange(x[0].numel(), dtype=np.float64)
    fine, smooth = np.floor(256 * (i * GOLDEN % 1)), np.floor(255 * i / max(1, len(i) - 1))
    made = torch.from_numpy(np.stack([fine, smooth])).float() / 255
    return torch.cat([x, made.view(2, *x.shape[1:])])


GOLDEN = 0.6180339887498949  # its multiples, without their whole part, fill [0, 1) evenly


def _apart(a: Row, b: Row) -> float:
    """The largest difference of two rows; infinite where there is none to take."""
    if a is None or b is None or a.shape != b.shape:
        return math.inf
    return float((a - b).abs().max())


def _reach(rows: Sequence[Row]) -> float:
    largest = max((float(row.abs().max()) for row in rows if row is not None), default=0.0)
    return max(TOLERANCE * _spread(rows), FLOOR * largest)


def _spread(rows: Sequence[Row]) -> float:
    found = [row for row in rows if row is not None]
    return float(torch.cat(found).max() - torch.cat(found).min()) if found else 0.0


def _short(row: Tensor) -> tuple[float, ...]:
    return tuple(float(f"{value:.{DIGITS}g}") for value in row.tolist())
