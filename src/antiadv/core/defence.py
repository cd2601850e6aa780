"""The Defence base class: a module that wraps a classifier f (`base`) and is a classifier g again.

    g = Defence(f, **options)        images [N, C, H, W] in [0, 1] → scores [N, K]

`forward` works under `no_grad` and `inference_mode`, and leaves the images, the base, the training flags and the
global generators alone. Options are constructor arguments kept as attributes of the same name, so that a defence has
the text form of every other configuration: `anti_adversary:steps=2,step_size=0.15`.

A `Randomised` defence rolls dice at every call. They are handed in as `draws`, one key per image, by the oracle and
the judge; a plain call `g(x)` makes fresh ones of its own.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.core.validation import check_base, check_float, check_shape, check_still

LARGEST = torch.finfo(torch.float16).max  # of an option in pixels: beyond it images in 16 bits overflow
TRANSFERS = ("transfer:attack=apgd", "transfer:attack=(apgd:loss=dlr,targets=9)")  # they need only the bare classifier


class Defence(nn.Module, ABC):
    """`edition` is raised by whoever changes results on purpose; it is part of every cell's key.

    `adaptive` names the attacks that undo this defence, as specs: what the attack `adaptive` runs on it first.
    """

    edition: ClassVar[int] = 1
    randomised: ClassVar[bool] = False
    adaptive: ClassVar[tuple[str, ...]] = (*TRANSFERS, "bpda:attack=apgd")
    base: nn.Module

    def __init__(self, base: nn.Module) -> None:
        check_base(base)
        super().__init__()
        self.base = base
        self.training = False  # as the base; `train()` still reaches both

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor: ...

    def surrogate(self, kappa: float = 3.0) -> nn.Module:
        """A differentiable stand-in for an adaptive attacker, sharper for larger κ; by default the defence itself."""
        return self


class Randomised(Defence):
    """A defence that rolls dice. An answer is a function of the image, its key and the options, and of nothing else.

    `adaptive` is run through `eot`, which averages over the dice; so it holds plain attacks here.
    """

    randomised: ClassVar[bool] = True
    adaptive: ClassVar[tuple[str, ...]] = (*TRANSFERS, "apgd", "apgd:loss=dlr")

    def forward(self, x: Tensor, draws: Draws | None = None) -> Tensor:
        check_float(x)
        check_still(self.base)
        if draws is None:
            # the system's: copies of one network must not serve the same dice, nor anybody know them
            draws = Draws.of(secrets.randbits(64), torch.arange(len(x), device=x.device))
        if len(draws) != len(x):
            raise BadInput(f"a randomised defence needs one key per image ({len(x)}); found {len(draws)}. Select them.")
        s = self.answer(x, draws)
        check_shape(s, x)
        return s

    @abstractmethod
    def answer(self, x: Tensor, draws: Draws) -> Tensor:
        """The scores for these images under these dice."""


def check_dice(model: nn.Module) -> None:
    """Whether dice reach whatever rolls them: inside another module it would roll its own, others at every call."""
    for outer in model.modules():
        for inner in outer.children():
            if isinstance(inner, Defence) and inner.randomised:
                raise BadInput(
                    "a defence that rolls dice must be the outermost, where they are handed in; "
                    f"found {type(inner).__name__} inside {type(outer).__name__}. {_outwards(inner, outer)}"
                )


def _outwards(inner: Defence, outer: nn.Module) -> str:
    """What to do with a defence that rolls dice inside another module."""
    if not isinstance(outer, Defence):
        return "Put it in front of that."
    if outer.randomised:
        return "Keep one of the two."
    return f"Wrap them the other way round: {type(inner).__name__}({type(outer).__name__}(f))."


def base_of(model: nn.Module) -> nn.Module:
    """The bare classifier under a defence; a classifier without one is its own base."""
    return base_of(model.base) if isinstance(model, Defence) else model
