"""Signs, before anything is attacked, that images, labels and network do not belong together.

early_signs(x, base, y, classes)   narrow_range: images that were divided by 255 twice; near_chance: the network guesses
warn_early(…)                      one warning for each, from answers that the judge has anyway
told()                             in this block there are none: the caller has shown them
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from torch import Tensor

from antiadv.core.errors import Suspicious
from antiadv.core.interval import chance, wilson

CHANCE = 0.05  # with a larger p, correct predictions may be chance
FEW = 20  # fewer samples are not tested against chance
NARROW = 2.01 / 255  # the brightest pixel of images that were scaled twice, with room for rounding
NO_MORE = "no better than guessing"


@dataclass(frozen=True)
class Sign:
    name: str
    numbers: tuple[tuple[str, float], ...]
    sentence: str


def guesses(good: int, n: int, classes: int) -> bool:
    """Whether so many correct predictions of n may be chance: one-sided exact test against 1 / classes.

    >>> guesses(10, 64, 10), guesses(30, 64, 10)
    (True, False)
    """
    return chance(good, n, 1 / max(2, classes)) > CHANCE


def early_signs(x: Tensor, base: Tensor, y: Tensor | None, classes: int) -> Iterator[Sign]:
    """`base` are the labels that the bare network gives the clean images, y the true ones if they are known."""
    high, n = float(x.max()) if x.numel() else 1.0, len(x)
    if high <= NARROW:
        text = f"no pixel of {n} images is above {high:.4g}, but images should cover [0, 1]: divided by 255 twice?"
        yield Sign("narrow_range", (("high", high), ("n", float(n))), text)
    if y is None:
        return
    good = int((base == y.to(base.device)).sum())
    if n >= FEW and guesses(good, n, classes):
        text = (
            f"the classifier is right on {100 * good / n:.1f} % of {n} clean images, {NO_MORE} among {classes} classes."
        )
        yield Sign("near_chance", (("share", good / n), ("low", wilson(good, n)[0]), ("n", float(n))), text)


_TOLD: ContextVar[bool] = ContextVar("told", default=False)


@contextlib.contextmanager
def told() -> Iterator[None]:
    before = _TOLD.set(True)
    try:
        yield
    finally:
        _TOLD.reset(before)


def warn_early(x: Tensor, base: Tensor, y: Tensor | None, classes: int) -> None:
    for sign in () if _TOLD.get() else early_signs(x, base, y, classes):
        warnings.warn(
            f"Flag {sign.name}: {sign.sentence}", Suspicious, stacklevel=1
        )  # always this line: Python shows it once
