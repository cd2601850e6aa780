"""Normalise: a module in front of a network that turns images in [0, 1] into (x − mean) / std.

    nn.Sequential(Normalise((0.5,), (0.25,)), net)      your own network: now it takes images in [0, 1]
    normaliser("cifar10")                               named constants, as published networks were trained with

The constants are buffers that move with the module and are not saved. So the keys of a checkpoint do not depend on the
normalisation; the spec of the architecture names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from antiadv.core.errors import BadInput

Normalisation = Literal["none", "half", "cifar10", "cifar100", "imagenet", "resnet50-v1"]

# name: (mean, std) of each channel, in units of [0, 1]
CONSTANTS: dict[Normalisation, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "half": ((0.5,), (0.5,)),  # 2x − 1 (ImageNet-Pre)
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616)),  # digits as in AT-AWP
    "cifar100": (
        (0.5070751592371323, 0.48654887331495095, 0.4409178433670343),  # digits as in AT-AWP
        (0.2673342858792401, 0.2564384629170883, 0.27615047132568404),
    ),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),  # torchvision
    "resnet50-v1": ((123.68 / 255, 116.779 / 255, 103.939 / 255), (1 / 255,)),  # Caffe's and Keras' ResNet-50
}


class Normalise(nn.Module):
    """(x − mean) / std for each channel. A single value is used for all channels."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        channels = max(len(mean), len(std))
        if not {len(mean), len(std)} <= {1, channels}:
            raise BadInput(
                f"mean has {len(mean)} values and std {len(std)}; give one value per channel, or a single value"
            )
        if not all(value > 0 for value in std):
            raise BadInput(f"every std must be above 0; found {tuple(std)}")
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        channels = max(len(self.mean), len(self.std))
        if x.ndim > 2 and channels > 1 and x.shape[-3] != channels:  # a single constant fits any number
            raise BadInput(
                f"the network takes images with {channels} channels; found {x.shape[-3]}, of shape {tuple(x.shape)}. "
                f"Give {channels} channels, or use another network."
            )
        return (x - self.mean) / self.std

    def extra_repr(self) -> str:
        return f"mean={self.mean.flatten().tolist()}, std={self.std.flatten().tolist()}"


def normaliser(name: Normalisation) -> nn.Module:
    """Return the module of that name; the identity for `none`."""
    return nn.Identity() if name == "none" else Normalise(*CONSTANTS[name])
