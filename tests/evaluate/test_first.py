"""The gradient of the first convolution by its images: torch's own, in float64; and only where it is asked for."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from antiadv import models
from antiadv.evaluate.first import gather_first, is_first
from antiadv.evaluate.ready import channels_last, shortened
from tests.evaluate.probes import Doubled, same_gradients


def conv(inner: int, outer: int, kernel: int, **options: object) -> nn.Conv2d:
    torch.manual_seed(0)
    options = {"padding": kernel // 2} | options
    return nn.Conv2d(inner, outer, kernel, **options).double().requires_grad_(False)  # type: ignore[arg-type]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("inner", "kernel"), [(3, 3), (2, 3), (1, 3), (1, 5)])
@pytest.mark.parametrize("size", [(6, 7), (1, 1), (2, 9)], ids=str)
def test_windows_say_what_the_gradient_is(inner: int, kernel: int, size: tuple[int, int], bias: bool):
    m, x = conv(inner, 5, kernel, bias=bias), torch.rand(2, inner, *size, dtype=torch.float64, requires_grad=True)
    want = m(x)
    gather_first(m)
    found = m(x)
    assert "_First" in type(found.grad_fn).__name__
    torch.testing.assert_close(found, want, rtol=1e-12, atol=1e-12)
    for up in (torch.rand_like(want), torch.rand_like(want).contiguous(memory_format=torch.channels_last)):
        (g,), (h,) = (torch.autograd.grad(y, x, up, retain_graph=True) for y in (want, found))
        torch.testing.assert_close(h, g, rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(m(x), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "other",
    [
        conv(4, 5, 3),  # 36 numbers
        conv(3, 5, 5),
        conv(3, 5, 1, padding=0),
        conv(3, 5, 3, padding=0),
        conv(3, 5, 3, stride=2),
        conv(3, 6, 3, groups=3),
        conv(3, 5, 3, padding_mode="reflect"),
        conv(3, 5, 3, dilation=2),
        conv(1, 5, 2, padding=1),
    ],
    ids=str,
)
def test_other_convolutions_are_left_alone(other: nn.Conv2d):
    gather_first(other)
    assert "_conv_forward" not in vars(other)


def test_weights_that_are_made_anew_at_every_call_have_their_own_gradient():
    torch.manual_seed(0)
    m, x = Doubled(3, 4, 3, padding=1).requires_grad_(False), torch.rand(1, 3, 5, 5, requires_grad=True)
    same_gradients(m, x, gather_first)


@pytest.mark.parametrize("channels", [1, 2, 4, 5])
def test_images_of_other_channels_are_refused(channels: int):
    """As by torch's own, and not filled up with zeros, or cut."""
    m = conv(3, 4, 3)
    gather_first(m)
    with pytest.raises(RuntimeError, match=rf"to have 3 channels, but got {channels} channels"):
        m(torch.rand(1, channels, 5, 5, dtype=torch.float64))


def test_a_layer_may_ask_for_gradients_of_gradients():
    m, x = conv(3, 4, 3), torch.rand(1, 3, 5, 5, dtype=torch.float64, requires_grad=True)
    gather_first(m)
    assert torch.autograd.gradgradcheck(lambda z: m(z).square(), (x,))


@pytest.mark.parametrize(("compiled", "count"), [(False, 0), (True, 1)])
def test_it_is_for_compiled_networks_with_sixteen_bits(compiled: bool, count: int):
    net = models.load("compact:trades")
    short = shortened(channels_last(net), torch.float16, compiled)
    assert sum("windows" in m._buffers for m in short.modules()) == count
    assert sum(isinstance(m, nn.Conv2d) and is_first(m) for m in net.modules()) == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about its own compiler
def test_it_is_compiled():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 3)).requires_grad_(False)
    x = torch.rand(2, 3, 8, 8, requires_grad=True)
    (want,) = torch.autograd.grad(net(x).square().sum(), x)
    gather_first(net)
    (found,) = torch.autograd.grad(torch.compile(net)(x).square().sum(), x)
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)
