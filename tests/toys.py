"""Classifiers whose right answer is known: the distance to the decision boundary has a closed form.

    Halfspace    m(x) = <w, x − ½>            distance |m| / |w|₁ (Linf), |m| / |w|₂ (L2)
    Sphere       m(x) = r² − |x − c|²         from its centre: r / √d (Linf), r (L2)

Scores are (m/2, −m/2, −9, −9): four classes; only the first two matter. Every sum is over the pixels of one sample and
so small that its order does not depend on the batch, so records can be compared with `==`.
"""

from __future__ import annotations

import atexit
import functools
import math
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from antiadv.core.defence import Defence
from antiadv.defences.robust_features import last_layer


class Halfspace(nn.Module):
    def __init__(self, shape: tuple[int, ...], seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        size = 0.5 + torch.rand(shape, generator=generator)
        sign = (torch.rand((shape[0], 1, 1), generator=generator) < 0.5).float() * 2 - 1
        self.w: Tensor
        self.register_buffer("w", size * sign)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return four(((x - 0.5) * self.w.to(x)).flatten(1).sum(1))


class Sphere(nn.Module):
    def __init__(self, radius: float) -> None:
        super().__init__()
        self.radius = radius
        self.centre: Tensor
        self.register_buffer("centre", torch.tensor(0.5))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return four(self.radius**2 - (x - self.centre.to(x)).flatten(1).square().sum(1))


def four(m: Tensor) -> Tensor:
    rest = torch.full_like(m, -9.0)
    return torch.stack([m / 2, -m / 2, rest, rest], 1)


@dataclass(frozen=True)
class Toy:
    """A classifier, images it gets right, and their distance to the boundary in the p-norm."""

    model: nn.Module
    x: Tensor
    y: Tensor
    distance: float


class HalfspaceToy(Toy):
    model: Halfspace


def halfspace(
    p: float, n: int = 6, shape: tuple[int, ...] = (3, 4, 4), distance: float = 0.1, seed: int = 0
) -> HalfspaceToy:
    """Half of the images on each side, all at the same distance, each with noise of its own along the boundary."""
    model = Halfspace(shape, seed)
    w = model.w
    noise = torch.rand((n, *shape), generator=torch.Generator().manual_seed(seed + 1)) * 0.2 - 0.1
    along = noise - (noise * w).flatten(1).sum(1).view(-1, 1, 1, 1) * w / w.square().sum()
    out = w.sign() if p == math.inf else w / w.norm()
    y = torch.arange(n) % 2
    side = (1.0 - 2.0 * y).view(-1, 1, 1, 1)
    return HalfspaceToy(model, 0.5 + along + side * distance * out, y, distance)


def sphere(p: float, n: int = 4, shape: tuple[int, ...] = (3, 4, 4)) -> Toy:
    """Images at the centre, in class 0."""
    radius = 1.0
    distance = radius / math.sqrt(math.prod(shape)) if p == math.inf else radius
    return Toy(Sphere(radius), torch.full((n, *shape), 0.5), torch.zeros(n, dtype=torch.int64), distance)


class Spy(Defence):
    """A defence that only counts the images sent through it."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__(base)
        self.seen = 0

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        scores: Tensor = self.base(x)
        return scores


def small_net(classes: int = 10, channels: int = 3, seed: int = 0) -> nn.Module:
    """A small convolutional network with batch normalisation, untrained, in evaluation mode."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(
            nn.Conv2d(channels, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(64, classes),
        )
    return net.eval()


def spec_for(name: str, base: nn.Module) -> str:
    """The shortest spec of a defence on this network. `robust_features` needs a file, which is made of noise."""
    if name != "robust_features":
        return name
    layer = last_layer(base)
    moment = torch.rand(layer.in_features, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    path = Path(_folder().name, f"{zlib.crc32(layer.weight.detach().numpy().tobytes())}.safetensors")
    save_file({"moment": moment @ moment.T / 50, "weight": layer.weight.detach().contiguous()}, path)
    return f"{name}:path={path}"


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return folder


def make_small_net() -> nn.Module:
    """`--model tests.toys:make_small_net`"""
    return small_net()


def make_grey_net() -> nn.Module:
    """`--model tests.toys:make_grey_net`: it takes one channel."""
    return small_net(channels=1)


def make_probable() -> nn.Module:
    """`--model tests.toys:make_probable`: it answers with probabilities."""
    return nn.Sequential(small_net(), nn.Softmax(1)).eval()


def make_rule() -> nn.Module:
    """`--model tests.toys:make_rule`: ten classes by the brightness of ten bands; some CIFAR images are right."""
    return Bands().eval()


class Bands(nn.Module):
    """Score k: the mean of the k-th tenth of the pixels. Exact in any batch."""

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        size = flat.shape[1] // 10
        return flat[:, : 10 * size].reshape(len(x), 10, size).mean(2) * 10
