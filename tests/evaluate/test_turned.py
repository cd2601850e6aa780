"""The gradient of a convolution as a convolution: torch's own, in float64; and only where it is asked for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv import models
from antiadv.evaluate.ready import channels_last, shortened
from antiadv.evaluate.turned import turn_back, turned
from tests.evaluate.probes import Doubled, same_gradients


def conv(inner: int = 64, outer: int = 64, kernel: int = 3, **options: object) -> nn.Conv2d:
    torch.manual_seed(0)
    options = {"padding": kernel // 2} | options
    return nn.Conv2d(inner, outer, kernel, **options).double().requires_grad_(False)  # type: ignore[arg-type]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("size", [(6, 7), (1, 1), (2, 9)], ids=str)
def test_a_convolution_with_turned_weights_is_the_gradient(kernel: int, size: tuple[int, int], bias: bool):
    m, x = conv(kernel=kernel, bias=bias), torch.rand(2, 64, *size, dtype=torch.float64, requires_grad=True)
    want = m(x)
    turn_back(m)
    found = m(x)
    assert "_Turned" in type(found.grad_fn).__name__
    torch.testing.assert_close(found, want, rtol=0, atol=0)
    for up in (torch.rand_like(want), torch.rand_like(want).contiguous(memory_format=torch.channels_last)):
        (g,), (h,) = (torch.autograd.grad(y, x, up, retain_graph=True) for y in (want, found))
        torch.testing.assert_close(h, g, rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        assert m(x).equal(want)


def test_turned_twice_is_as_before():
    w = torch.rand(3, 5, 3, 3)
    assert turned(w).shape == (5, 3, 3, 3)
    assert turned(turned(w)).equal(w)


@pytest.mark.parametrize(
    "other",
    [
        conv(64, 32),
        conv(48, 48),
        conv(128, 128),
        conv(kernel=1),
        conv(padding=0),
        conv(stride=2),
        conv(groups=2),
        conv(dilation=2),
        conv(padding_mode="reflect"),
    ],
    ids=str,
)
def test_other_convolutions_are_left_alone(other: nn.Conv2d):
    turn_back(other)
    assert "_conv_forward" not in vars(other)


def test_weights_that_are_made_anew_at_every_call_have_their_own_gradient():
    torch.manual_seed(0)
    m, x = Doubled(64, 64, 3, padding=1).requires_grad_(False), torch.rand(1, 64, 5, 5, requires_grad=True)
    same_gradients(m, x, turn_back)


def test_a_layer_may_ask_for_gradients_of_gradients():
    m, x = conv(), torch.rand(1, 64, 2, 2, dtype=torch.float64, requires_grad=True)
    seconds = []
    for _ in range(2):
        (g,) = torch.autograd.grad(m(x).square().sum(), x, create_graph=True)
        seconds += torch.autograd.grad(g.square().sum(), x)
        turn_back(m)
    torch.testing.assert_close(seconds[1], seconds[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("compiled", "count"), [(False, 0), (True, 4)])
def test_it_is_for_compiled_networks_with_sixteen_bits(compiled: bool, count: int):
    short = shortened(channels_last(models.load("resnet18:standard")), torch.float16, compiled)
    assert sum("turned" in m._buffers for m in short.modules()) == count


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about its own compiler
@pytest.mark.parametrize("compiled", [False, True])
def test_weights_that_keep_their_bits_under_autocast_have_gradients_too(compiled: bool):
    """A convolution with a forward of its own is not made shorter, but its answer is, and what comes back."""

    class Own(nn.Conv2d):
        def forward(self, input: Tensor) -> Tensor:
            return self._conv_forward(input, self.weight, self.bias)

    torch.manual_seed(0)
    net, x = nn.Sequential(Own(3, 64, 3, padding=1), nn.ReLU(), Own(64, 64, 3, padding=1)), torch.rand(2, 3, 8, 8)
    short = shortened(net, torch.bfloat16, compiled=True)
    assert sum("turned" in m._buffers for m in short.modules()) == 1
    found = []
    for f in (net.requires_grad_(False), torch.compile(short) if compiled else short):
        z = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            s = f(z)
        found += torch.autograd.grad(s.float().square().sum(), z)
    assert F.cosine_similarity(*(g.flatten(1) for g in found)).min() > 0.999


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about its own compiler
def test_it_is_compiled_and_keeps_no_mask():
    """What goes from the way there to the way back: the rectified image, not a mask of it."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), conv().float()).requires_grad_(False)
    x = torch.rand(2, 3, 8, 8, requires_grad=True)
    (want,) = torch.autograd.grad(net(x).square().sum(), x)
    turn_back(net)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):  # type: ignore[func-returns-value]
        out = torch.compile(net)(x)
    (found,) = torch.autograd.grad(out.square().sum(), x)
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)
    assert kept
    assert all(t.dtype != torch.bool for t in kept)
