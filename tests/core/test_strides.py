"""oneDNN's weight gradient of a strided 1 x 1 convolution corrupts memory on CPUs without AVX-512: it is never used.

The upstream bug: https://github.com/uxlfoundation/oneDNN/issues/6035. Where the CPU has AVX-512, two variables make
oneDNN and torch behave as on one without. A process of its own does the work, since it would crash or hang.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from antiadv.core.engine import Eager
from antiadv.core.losses import ce
from antiadv.core.strides import taken_first
from antiadv.engine.fast import Fast
from antiadv.train import RECIPES
from antiadv.train.step import Settings, Step, schedule

AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"}
CPU = torch.device("cpu")


class Net(nn.Module):
    """The dangerous layer as a module and as a function, on activations that lie channels last."""

    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.inner = nn.Sequential(nn.Sequential(nn.Conv2d(channels, 8, 1, 2)))
        self.weight = nn.Parameter(torch.randn(8, channels, 1, 1))
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x).relu().contiguous(memory_format=torch.channels_last)
        s: torch.Tensor = self.last((self.inner(h) + F.conv2d(h, self.weight, stride=(2, 2))).mean((2, 3)))
        return s


class Uncopyable(Net):
    """The engine cannot copy this network, so its weights keep their gradients."""

    def __deepcopy__(self, memo: object) -> Uncopyable:
        raise TypeError("holds a lock")


class Learns(Net):
    """A network that computes gradients of its weights at every call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            super().forward(x.detach()).square().sum().backward()
        return super().forward(x)


def last(net: nn.Module) -> nn.Module:
    """The same network with its weights in channels-last memory."""
    return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def trained() -> None:
    for channels in range(2, 8):
        net = last(Net(channels))
        settings = Settings(epochs=1, batch=16)
        images, labels = torch.randint(0, 256, (64, 16, 16, 3), dtype=torch.uint8), torch.arange(64) % 3
        step = Step(net, RECIPES["standard"](), images, labels, settings)
        for k, knobs in enumerate(schedule(12, settings, 0.1)):
            step.draw(torch.arange(16), knobs, k)
            step()
        assert all(w.isfinite().all() for w in step.weights)


def attacked(net: nn.Module, compiled: bool = False) -> None:
    x, y = torch.rand(16, 3, 16, 16).contiguous(memory_format=torch.channels_last), torch.arange(16) % 3
    true = torch.randn(0)
    for engine in (Eager(), Fast(compiled=compiled)):
        for _ in range(12):
            s, g = engine.gradient(net, x, ce, y)
        true = g if not len(true) else true
        assert s.isfinite().all()
        torch.testing.assert_close(g, true)


def in_process(case: str) -> None:
    torch.manual_seed(0)
    if case == "trained":
        trained()
    elif case == "learns":
        attacked(last(Learns()))
    else:
        attacked(last(Uncopyable()), compiled=True)


@pytest.mark.parametrize(
    "case", ["trained", *(pytest.param(c, marks=pytest.mark.slow) for c in ("learns", "compiled"))]
)
def test_no_route_enters_the_kernel_that_corrupts_memory(case: str) -> None:
    done = subprocess.run([sys.executable, "-m", __name__, case], env=os.environ | AVX2, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("stride", [1, 2, 3, (1, 2), [2, 1], (2,)])
@pytest.mark.parametrize("padding", [0, 1, "valid", (0, 0), (0,)])
@pytest.mark.parametrize(("channels", "kernel", "groups"), [(4, 1, 1), (4, 1, 2), (9, 1, 1), (4, 3, 1)])
def test_it_is_the_same_function(stride: Any, padding: Any, channels: int, kernel: int, groups: int) -> None:
    dice = torch.Generator().manual_seed(0)
    x = torch.randn(2, channels, 7, 6, dtype=torch.float64, generator=dice, requires_grad=True)
    w = torch.randn(6, channels // groups, kernel, kernel, dtype=torch.float64, generator=dice, requires_grad=True)
    b = torch.randn(6, dtype=torch.float64, generator=dice)
    how: dict[str, Any] = {"stride": stride, "padding": padding, "groups": groups}
    true = F.conv2d(x, w, b, **how)
    with taken_first(CPU):
        s = F.conv2d(x, w, b, **how)
    torch.testing.assert_close(s, true)
    d = torch.randn(true.shape, dtype=torch.float64, generator=dice)
    torch.testing.assert_close(torch.autograd.grad(s, (x, w), d), torch.autograd.grad(true, (x, w), d))


if __name__ == "__main__":
    in_process(sys.argv[1])
