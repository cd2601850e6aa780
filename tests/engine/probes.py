"""Attacks that do one odd thing each, and cells of toy networks, shared by several tests."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from antiadv.core.ball import Ball
from antiadv.core.draws import Draws
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access
from antiadv.evaluation import Cell, Resources, make_cell
from antiadv.evaluation.cell import COLUMNS, Receipt, Record
from tests.toys import Bands

MODEL = "toys:bands"


@dataclass(frozen=True)
class Odd:
    """An attack that is one function of (oracle, x, y, ball, draws)."""

    do: Callable[[Oracle, Tensor, Tensor, Ball, Draws], Tensor]

    access: ClassVar[Access] = Access.LABELS
    norms: ClassVar[frozenset[float]] = frozenset({2, math.inf})
    minimal: ClassVar[bool] = False
    edition: ClassVar[int] = 1

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        return self.do(oracle, x, y, ball, draws)


@dataclass(frozen=True)
class Chessboard:
    """An attack that works in Linf only."""

    access: ClassVar[Access] = Access.LABELS
    norms: ClassVar[frozenset[float]] = frozenset({math.inf})
    minimal: ClassVar[bool] = False
    edition: ClassVar[int] = 1

    def __call__(self, oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        raise AssertionError("refused before it is called")


def bands() -> nn.Module:
    return Bands().eval()


@functools.cache
def resources() -> Resources:
    """One for all tests, so that the images are unpacked once."""
    return Resources("cpu", models={MODEL: bands()})


def cell(attack: str = "pgd:steps=3", samples: range | str = range(20), **words: object) -> Cell:
    """A cell of the exact toy on the embedded images."""
    said: dict[str, object] = {"model": MODEL, "threat": "linf:2/255", "resources": resources(), **words}
    return make_cell(attack=attack, samples=samples, **said)  # type: ignore[arg-type]


RECEIPT = Receipt(1.5, 30, 10, "cpu", {"torch": "2"}, "abc")


def record(sample: int = 0, label: int = 3, clean: int = 3, attacked: int = 3, **words: float) -> Record:
    """A record of a sample that is robust after one query (no query if it was misclassified)."""
    facts: dict[str, float] = dict.fromkeys(COLUMNS, 0) | {"distance": 0.0, "draws": 1, "queries": int(clean == label)}
    facts |= {f"{when}_{what}": 0.5 for when in ("clean", "attacked") for what in ("confidence", "truth")}
    facts |= {"clean_right": int(clean == label), "attacked_right": int(attacked == label)}
    facts |= {"sample": sample, "label": label, "clean": clean, "attacked": attacked}
    return Record(**facts | {"base_clean": clean, "base_attacked": attacked} | words)  # type: ignore[arg-type]


class Passes:
    """Counts the images through a module with hooks of its own: forward, and backward through its output."""

    def __init__(self, module: nn.Module) -> None:
        self.forwards = self.backwards = 0
        module.register_forward_hook(self._forward)
        module.register_full_backward_hook(self._backward)

    def _forward(self, module: nn.Module, args: tuple[Tensor, ...], s: Tensor) -> None:
        self.forwards += len(s)

    def _backward(self, module: nn.Module, to_input: object, from_output: tuple[Tensor, ...]) -> None:
        self.backwards += len(from_output[0])


def same(a: Tensor, b: Tensor) -> bool:
    """Bit for bit."""
    return a.dtype == b.dtype and torch.equal(a, b)


class Doubled(nn.Conv2d):
    """A convolution that computes its weights at each call."""

    def forward(self, input: Tensor) -> Tensor:
        s: Tensor = self._conv_forward(input, 2 * self.weight, self.bias)
        return s


def same_gradients(m: nn.Conv2d, x: Tensor, change: Callable[[nn.Module], None]) -> None:
    """The gradient at x is the same before and after this change."""
    (want,) = torch.autograd.grad(m(x).square().sum(), x)
    change(m)
    torch.testing.assert_close(torch.autograd.grad(m(x).square().sum(), x)[0], want)
