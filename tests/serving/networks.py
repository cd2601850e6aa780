"""Tiny networks with the operators that an export must handle. Images are [N, 3, 16, 16], five classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SHAPE = (3, 16, 16)


class Attention(nn.Module):
    """A small vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 8, 8)
        self.token = nn.Parameter(torch.randn(1, 1, 16) * 0.1)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu", norm_first=True)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), patches], 1)
        scores: Tensor = self.head(self.norm(self.block(tokens))[:, 0])
        return scores


class Counting(nn.Module):
    """Its code uses the number of images as a plain number, so it fits one batch size only."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :5].reshape(len(x), 5) * 3


def _pools() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4), nn.GELU(),
        nn.AvgPool2d(3, 2, 1, count_include_pad=False, ceil_mode=True),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=2), nn.SiLU(), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d((2, 1)),
        nn.Flatten(), nn.Linear(32, 5),
    )  # fmt: skip


def _norms() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(), nn.AvgPool2d(2, padding=1),
        nn.GroupNorm(2, 8), nn.Hardswish(), nn.ZeroPad2d((0, 1, 2, 0)), nn.AdaptiveAvgPool2d(3),
        nn.Conv2d(8, 8, 1, padding=1), nn.ConvTranspose2d(8, 8, 2, stride=2), nn.LeakyReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


def _largest() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveMaxPool2d(1), nn.Flatten())


def _linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 5))


KINDS = {"pools": _pools, "norms": _norms, "attention": Attention, "largest": _largest, "linear": _linear}


def network(kind: str) -> nn.Module:
    """A network of this kind, untrained, in evaluation mode."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return KINDS[kind]().eval()


def images(n: int = 12) -> Tensor:
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(5))
