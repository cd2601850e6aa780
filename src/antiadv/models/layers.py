"""Convolution, linear layer and weight initialisation of all our networks.

    Conv, Linear      as in torch, but creating one uses no random numbers
    initialise        conv weight ~ N(0, 2 / (k·k·out));  linear weight ~ U(±1/√in), bias 0;  batch norm 1 and 0

The WideResNet, TRADES and torchvision code initialise in the same way (kaiming normal, fan out). `Conv` can add noise
to its input (models/noise.py), which adds no key to the state_dict.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from antiadv.core.errors import BadInput
from antiadv.models.noise import GaussianNoise


class Conv(nn.Conv2d):
    """A square convolution without bias that keeps the size at stride 1. `noise` is the σ of noise on its input."""

    def __init__(self, inner: int, outer: int, kernel: int, stride: int = 1, noise: float = 0.0) -> None:
        if inner < 1 or outer < 1 or noise < 0:
            raise BadInput(
                f"a convolution needs at least one channel and noise >= 0; "
                f"found {inner} to {outer} channels and noise {noise}"
            )
        super().__init__(inner, outer, kernel, stride, padding=kernel // 2, bias=False)
        self.noise: nn.Module = GaussianNoise(noise) if noise > 0 else nn.Identity()

    def reset_parameters(self) -> None:
        """Do nothing. torch would use the global generator here; `initialise` uses its own."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.noise(x))


class Linear(nn.Linear):
    """The last layer of a network."""

    def __init__(self, inner: int, classes: int) -> None:
        if classes < 1:
            raise BadInput(f"a network needs at least one class; found {classes}")
        super().__init__(inner, classes)

    def reset_parameters(self) -> None:
        """Do nothing, as `Conv.reset_parameters`."""


@torch.no_grad()
def initialise(network: nn.Module, seed: int) -> None:
    """Set every weight of the network from one generator, in the order of its modules."""
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, Conv):
            fan_out = module.out_channels * module.kernel_size[0] * module.kernel_size[1]
            module.weight.normal_(0.0, math.sqrt(2 / fan_out), generator=generator)
        elif isinstance(module, Linear):
            bound = 1 / math.sqrt(module.in_features)
            module.weight.uniform_(-bound, bound, generator=generator)
            module.bias.zero_()
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
