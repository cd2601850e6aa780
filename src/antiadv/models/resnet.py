"""Residual networks (He et al., arXiv:1512.03385, 1603.05027): ResNet-18 and PreActResNet-18 for CIFAR, ResNet-50.

    ResNet18         block: relu(bn conv relu(bn conv x) + shortcut x)              strides 1, 2, 2, 2; no max pool
    PreActResNet18   block: conv relu(bn conv a) + shortcut, a = relu(bn x)         then batch norm, relu, average
    ResNet50         block: 1x1, 3x3, 1x1 to four times the width                   7x7 stem of stride 2, max pool

Widths are w, 2w, 4w, 8w with w = `width`. `stride_on` selects the convolution of a ResNet-50 block that halves the
size: the first 1x1 ("v1": the paper, Caffe, Keras) or the 3x3 ("v1.5": torchvision). Keys are those of torchvision;
the CIFAR networks use `shortcut` for `downsample`. The average is global, so any image size works.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from antiadv.models.layers import Conv, Linear, initialise
from antiadv.models.preprocess import Normalisation, normaliser


class ResNet18(nn.Module):
    """Images [N, channels, H, W] in [0, 1] to logits [N, classes]; for images of about 32 x 32."""

    def __init__(
        self,
        classes: int = 10,
        width: int = 64,
        channels: int = 3,
        noise: float = 0.0,
        first_noise: float = 0.0,
        normalise: Normalisation = "none",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.normalise = normaliser(normalise)
        self.conv1 = Conv(channels, width, 3, noise=first_noise)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1, self.layer2, self.layer3, self.layer4 = _groups(Block, width, noise)
        self.fc = Linear(8 * width, classes)
        initialise(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.bn1(self.conv1(self.normalise(x))))
        h = self.layer4(self.layer3(self.layer2(self.layer1(h))))
        s: Tensor = self.fc(h.mean((2, 3)))
        return s


class Block(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int, noise: float) -> None:
        super().__init__()
        self.conv1 = Conv(inner, outer, 3, stride, noise)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = Conv(outer, outer, 3, 1, noise)
        self.bn2 = nn.BatchNorm2d(outer)
        self.shortcut = nn.Sequential()
        if stride != 1 or inner != outer:
            self.shortcut.extend((Conv(inner, outer, 1, stride, noise), nn.BatchNorm2d(outer)))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class PreActResNet18(nn.Module):
    """Images [N, channels, H, W] in [0, 1] to logits [N, classes]; the `compact` networks have width 16."""

    def __init__(
        self,
        classes: int = 10,
        width: int = 64,
        channels: int = 3,
        noise: float = 0.0,
        first_noise: float = 0.0,
        normalise: Normalisation = "none",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.normalise = normaliser(normalise)
        self.conv1 = Conv(channels, width, 3, noise=first_noise)
        self.layer1, self.layer2, self.layer3, self.layer4 = _groups(PreActBlock, width, noise)
        self.bn = nn.BatchNorm2d(8 * width)
        self.fc = Linear(8 * width, classes)
        initialise(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(self.normalise(x))
        h = self.layer4(self.layer3(self.layer2(self.layer1(h))))
        s: Tensor = self.fc(F.relu(self.bn(h)).mean((2, 3)))
        return s


class PreActBlock(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int, noise: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv1 = Conv(inner, outer, 3, stride, noise)
        self.bn2 = nn.BatchNorm2d(outer)
        self.conv2 = Conv(outer, outer, 3, 1, noise)
        self.shortcut = nn.Sequential()
        if stride != 1 or inner != outer:
            self.shortcut.append(Conv(inner, outer, 1, stride, noise))

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.bn1(x))
        y: Tensor = self.conv2(F.relu(self.bn2(self.conv1(a))))
        return y + (
            self.shortcut(a) if len(self.shortcut) else x
        )  # the identity shortcut takes x before the activation


def _groups(block: type[Block] | type[PreActBlock], width: int, noise: float) -> list[nn.Sequential]:
    """Four groups of two blocks; every group but the first halves the size and doubles the width."""
    groups, inner = [], width
    for outer, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
        groups.append(nn.Sequential(block(inner, outer, stride, noise), block(outer, outer, 1, noise)))
        inner = outer
    return groups


class ResNet50(nn.Module):
    """Images [N, 3, H, W] in [0, 1], usually 224 x 224, to logits [N, classes]; keys as in torchvision."""

    def __init__(
        self,
        stride_on: Literal["v1", "v1.5"] = "v1.5",
        classes: int = 1000,
        width: int = 64,
        normalise: Normalisation = "none",
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.normalise = normaliser(normalise)
        self.conv1 = Conv(3, width, 7, 2)
        self.bn1 = nn.BatchNorm2d(width)
        groups, inner = [], width
        for blocks, outer, stride in ((3, width, 1), (4, 2 * width, 2), (6, 4 * width, 2), (3, 8 * width, 2)):
            first = Bottleneck(inner, outer, stride, stride_on)
            inner = 4 * outer
            groups.append(nn.Sequential(first, *(Bottleneck(inner, outer, 1, stride_on) for _ in range(blocks - 1))))
        self.layer1, self.layer2, self.layer3, self.layer4 = groups
        self.fc = Linear(inner, classes)
        initialise(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        h = F.max_pool2d(F.relu(self.bn1(self.conv1(self.normalise(x)))), 3, 2, padding=1)
        h = self.layer4(self.layer3(self.layer2(self.layer1(h))))
        s: Tensor = self.fc(h.mean((2, 3)))
        return s


class Bottleneck(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int, stride_on: Literal["v1", "v1.5"]) -> None:
        super().__init__()
        first, second = (stride, 1) if stride_on == "v1" else (1, stride)
        self.conv1 = Conv(inner, outer, 1, first)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = Conv(outer, outer, 3, second)
        self.bn2 = nn.BatchNorm2d(outer)
        self.conv3 = Conv(outer, 4 * outer, 1)
        self.bn3 = nn.BatchNorm2d(4 * outer)
        self.downsample = nn.Sequential()
        if stride != 1 or inner != 4 * outer:
            self.downsample.extend((Conv(inner, 4 * outer, 1, stride), nn.BatchNorm2d(4 * outer)))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return F.relu(y + self.downsample(x))
