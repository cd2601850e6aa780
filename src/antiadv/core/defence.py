"""The Defence base class: a module that wraps a classifier f (`base`) and is a classifier g again.

    g = Defence(f, **options)        images [N, C, H, W] in [0, 1] → scores [N, K]

`forward` works under `no_grad` and `inference_mode`, and leaves the images, the base, the training flags and the
global generators alone. Options are constructor arguments kept as attributes of the same name, so that a defence has
the text form of every other configuration: `anti_adversary:steps=2,step_size=0.15`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from antiadv.core.door import check_base


class Defence(nn.Module, ABC):
    """`version` is raised by whoever changes results on purpose; it is part of every cell's key."""

    version: ClassVar[int] = 1
    base: nn.Module

    def __init__(self, base: nn.Module) -> None:
        check_base(base)
        super().__init__()
        self.base = base
        self.training = False  # as the base; `train()` still reaches both

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor: ...

    def surrogate(self) -> nn.Module:
        """A differentiable stand-in for an adaptive attacker; by default the defence itself."""
        return self


def base_of(model: nn.Module) -> nn.Module:
    """The bare classifier under a defence; a classifier without one is its own base."""
    return base_of(model.base) if isinstance(model, Defence) else model
