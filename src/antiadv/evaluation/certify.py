"""Certificates of randomised smoothing: a radius within which no attack can change the vote (Cohen et al., ICML 2019).

    g(x) = argmax_c P( argmax f(x + σ·n) = c ),  n ~ N(0, I)       the smoothed classifier, over all noise
    guess      A = the class with most votes among n₀ noisy copies of x
    bound      p = the lower bound of A's share, from its votes among n other copies, wrong with probability α   (1)
    radius     R = σ·Φ⁻¹(p) if p > ½;  else abstain                                                             (2)

With probability 1 − α or more, g(z) = A for every z with |z − x|₂ < R, for each sample. The statement is about g, and
not about f or the vote of a few copies.

    certify(model, x, y, std=0.25)   →  Certified          for images in hand; `certify_stored.py` stores them

Notation:   σ → `std`, n₀ → `n0`, α → `alpha`; (1) is the bound of Clopper and Pearson (Biometrika 26, 1934).
Cost:       n₀ + n forward passes of f for each sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from antiadv.core.defence import LARGEST, Defence
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.core.interval import wilson
from antiadv.core.validation import (
    check_base,
    check_images,
    check_labels,
    check_scores,
    check_sound,
    check_whole,
    describe,
    fitting,
    is_number,
    is_whole,
)
from antiadv.engine.fast import Fast, engine

STREAM = 0xCE2712  # folds the random numbers away from those of attacks, defences and the judge
GUESS, COUNT = 0, 1  # the copies that choose the class, and the others that count its votes
MOST_COPIES = 10**9
MOST_VALUES = 2**26  # pixels of the copies that exist at a time
MOST_RADII = 20  # in a default table


@dataclass(frozen=True)
class Setting:
    """How certificates are made. Equal settings, networks and images give equal certificates."""

    std: float = 0.25
    n0: int = 100
    n: int = 10_000
    alpha: float = 0.001
    seed: int = 0

    def __post_init__(self) -> None:
        if not is_number(self.std, LARGEST) or self.std == 0:
            raise BadInput(f"std must be above 0, at most {LARGEST:.0f}, in pixels of [0, 1]; found {self.std!r}.")
        if not is_number(self.alpha, 1) or self.alpha in (0, 1):
            raise BadInput(f"alpha, a probability of error, must be in (0, 1); found {self.alpha!r}. Use 0.001.")
        check_whole(n0=self.n0, n=self.n, seed=self.seed)
        for name, value in (("n0", self.n0), ("n", self.n)):
            if not 1 <= value <= MOST_COPIES:
                raise BadInput(f"{name}, a number of noisy copies, must be 1 … {MOST_COPIES:,}; found {value}.")

    @property
    def largest_radius(self) -> float:
        """The radius if all votes agree: no sample can get a larger one."""
        return radius(self.std, lower_bound(self.n, self.n, self.alpha))


@dataclass(frozen=True)
class Certificate:
    """One sample. `votes` of the n copies were for `guess`. The radius is 0 where the smoothed classifier abstains."""

    sample: int
    label: int
    guess: int
    votes: int
    lower: float
    radius: float

    @property
    def abstained(self) -> bool:
        return self.radius == 0

    def holds(self, radius: float) -> bool:
        """Whether the true class is certified at this distance."""
        return self.guess == self.label and self.radius > radius


@dataclass(frozen=True)
class Point:
    """Certified accuracy at a radius, and the 95 % interval of the share of samples."""

    radius: float
    certified: float
    low: float
    high: float


@dataclass(frozen=True)
class Certified:
    """The certificates of some samples."""

    setting: Setting
    records: list[Certificate]

    def __repr__(self) -> str:
        n = len(self.records)
        certified = f"{100 * self.accuracy():.1f} % certified, " if n else ""
        return f"Certified({n} samples: {certified}{self.abstained} without a certificate)"

    @property
    def abstained(self) -> int:
        """The number of samples without a certificate. They count as not certified at every radius."""
        return sum(r.abstained for r in self.records)

    def accuracy(self, radius: float = 0.0) -> float:
        """The share of samples whose true class is certified at this L2 distance."""
        return self.curve([radius])[0].certified

    def curve(self, radii: Sequence[float] | None = None) -> list[Point]:
        """Certified accuracy at these radii; by default 0, 0.25, 0.5, … up to the largest possible one."""
        n = len(self.records)
        if n == 0:
            raise BadInput("no samples were certified, so there is no certified accuracy. Pass at least one image.")
        points = []
        for r in self._radii() if radii is None else radii:
            count = sum(c.holds(r) for c in self.records)
            points.append(Point(r, count / n, *wilson(count, n)))
        return points

    def _radii(self) -> list[float]:
        step, most = 0.25, self.setting.largest_radius
        while most / step > MOST_RADII:
            step *= 2
        return [step * k for k in range(int(max(0.0, most) / step) + 1)]


def lower_bound(votes: int, n: int, alpha: float) -> float:
    """(1): the share p at which so many votes of n, or more, have probability α.

    >>> round(lower_bound(10_000, 10_000, 0.001), 6)  # α^(1/n) if all votes agree
    0.999309
    """
    from scipy.stats import beta

    return float(beta.ppf(alpha, votes, n - votes + 1)) if votes else 0.0


def radius(std: float, lower: float) -> float:
    """(2): the certified L2 radius, or 0 where the bound does not exceed one half."""
    from scipy.stats import norm

    return float(std * norm.ppf(lower)) if lower > 0.5 else 0.0


def certify(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    std: float = 0.25,
    n0: int = 100,
    n: int = 10_000,
    alpha: float = 0.001,
    seed: int = 0,
    ids: Tensor | None = None,
    batch: int | None = None,
) -> Certified:
    """Certify a batch of images: within which L2 distance can no attack change the vote of the smoothed classifier?

    `model` is the network that is smoothed, without the defence `smoothing`. It should be trained with noise of the
    same `std`. The class is chosen with `n0` noisy copies of an image and its votes are counted among `n` others; each
    certificate is wrong with probability `alpha` at most. `ids` are the numbers of the samples, which key their random
    numbers (by default 0, 1, …). `batch` copies pass through the network at once.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2)).eval()
    >>> x = torch.full((3, 1, 2, 2), 0.5)
    >>> made = certify(net, x, net(x).argmax(1), std=0.1, n=1000)
    >>> all(0 <= r.radius <= made.setting.largest_radius for r in made.records)
    True
    """
    setting = Setting(float(std) if is_number(std, math.inf) else std, n0, n, alpha, seed)
    check_images(x)
    check_labels(y, x)
    ids = torch.arange(len(x)) if ids is None else ids
    if not is_whole(ids, y.shape):
        raise BadInput(f"ids must be whole numbers, one for each image ({len(x)}); found {describe(ids)}.")
    with torch.inference_mode(False):
        passes = engine(x.device, batch)
        return Certified(setting, list(certificates(model, x, y, ids.tolist(), setting, passes)))


def certificates(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    ids: Sequence[int],
    setting: Setting,
    passes: Fast,
    classes: int | None = None,
) -> Iterator[Certificate]:
    """The certificates of these samples, one after the other. `classes` is the number of classes of the data."""
    check_base(model)
    check_bare(model)
    x = x.detach().clamp(0, 1)
    if len(x):
        with fitting(model, x):
            s = passes.scores(model, x[:1])
        check_scores(s.expand(len(y), -1), x, y.to(s.device), classes=classes)
    for image, label, sample in zip(x, y.tolist(), ids, strict=True):
        count = votes_for(model, image, sample, setting, passes)
        guess = int(count(GUESS, setting.n0).argmax())
        votes = int(count(COUNT, setting.n)[guess])
        lower = lower_bound(votes, setting.n, setting.alpha)
        yield Certificate(sample, label, guess, votes, lower, radius(setting.std, lower))


def votes_for(
    model: nn.Module, image: Tensor, sample: int, setting: Setting, passes: Fast
) -> Callable[[int, int], Tensor]:
    """A function that counts the votes for each class among some noisy copies of one image.

    The copies of one stage are independent of those of another. A copy depends on seed, sample, stage and its number,
    and not on the batch.
    """
    draws = Draws.of(setting.seed, torch.tensor([sample], device=image.device)).fold(STREAM)

    def count(stage: int, copies: int) -> Tensor:
        keys, votes = draws.fold(stage), torch.zeros(0, dtype=torch.int64)
        batch = max(1, min(passes.batch, MOST_VALUES // image.numel()))  # a batch of any size would fill the memory
        for first in range(0, copies, batch):
            some = keys.repeat(min(batch, copies - first), first)
            s = passes.scores(model, image + setting.std * some.normal(*image.shape).to(image))
            check_sound((~torch.isfinite(s).all(1)).any()[None], torch.tensor([sample]))
            part = torch.bincount(s.argmax(1), minlength=s.shape[1]).cpu()
            votes = part if first == 0 else votes + part
        return votes

    return count


def check_bare(model: nn.Module) -> None:
    """Refuse a randomised defence: the noise is added here, and the proof is about this noise alone."""
    for m in model.modules():
        if isinstance(m, Defence) and m.randomised:
            raise BadInput(
                f"certify adds its noise itself, to a network without random numbers; found {type(m).__name__}. "
                "Give the network inside it."
            )
