"""WideResNet-D-k (Zagoruyko and Komodakis, BMVC 2016, arXiv:1605.07146); keys as in the robust checkpoints.

    conv 3x3, 16  →  three groups of n = (D − 4)/6 blocks, widths 16k, 32k, 64k, strides 1, 2, 2
                  →  batch norm, relu, global average, linear
    block         a = relu(bn1 x);   y = conv2 relu(bn2 conv1 a)
                  x + y  if the widths agree,  else convShortcut(a) + y

Notation:   D → `depth`, k → `widen`.
Departures: no dropout (its rate is 0 in all five checkpoints); the average is global, so any image size works.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.core.errors import BadInput
from antiadv.models.layers import Conv, Linear, initialise
from antiadv.models.preprocess import Normalisation, normaliser


class WideResNet(nn.Module):
    """Images [N, 3, H, W] in [0, 1] to logits [N, classes]."""

    def __init__(
        self,
        depth: int = 28,
        widen: int = 10,
        classes: int = 10,
        channels: int = 3,
        noise: float = 0.0,
        first_noise: float = 0.0,
        normalise: Normalisation = "none",
        seed: int = 0,
    ) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 4, 6)
        if rest or blocks < 1 or widen < 1:
            raise BadInput(
                f"a WideResNet has depth 6n + 4 (16, 28, 34) and widen at least 1; found depth {depth}, widen {widen}"
            )
        widths = 16 * widen, 32 * widen, 64 * widen
        self.normalise = normaliser(normalise)
        self.conv1 = Conv(channels, 16, 3, noise=first_noise)
        self.block1 = Group(blocks, 16, widths[0], 1, noise)
        self.block2 = Group(blocks, widths[0], widths[1], 2, noise)
        self.block3 = Group(blocks, widths[1], widths[2], 2, noise)
        self.bn1 = nn.BatchNorm2d(widths[2])
        self.fc = Linear(widths[2], classes)
        initialise(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(self.normalise(x))
        h = self.block3(self.block2(self.block1(h)))
        s: Tensor = self.fc(F.relu(self.bn1(h)).mean((2, 3)))
        return s


class Group(nn.Module):
    """Blocks of one width. The first block changes size and width."""

    def __init__(self, blocks: int, inner: int, outer: int, stride: int, noise: float) -> None:
        super().__init__()
        first = WideBlock(inner, outer, stride, noise)
        self.layer = nn.Sequential(first, *(WideBlock(outer, outer, 1, noise) for _ in range(blocks - 1)))

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.layer(x)
        return h


class WideBlock(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int, noise: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv1 = Conv(inner, outer, 3, stride, noise)
        self.bn2 = nn.BatchNorm2d(outer)
        self.conv2 = Conv(outer, outer, 3, 1, noise)
        self.convShortcut = (
            Conv(inner, outer, 1, stride, noise) if inner != outer else None
        )  # name as in the checkpoints

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.bn1(x))
        y: Tensor = self.conv2(F.relu(self.bn2(self.conv1(a))))
        return y + (x if self.convShortcut is None else self.convShortcut(a))
