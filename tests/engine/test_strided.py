"""Strided convolutions give the same numbers as torch, in float64, or are left alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from antiadv import models
from antiadv.engine.optimise import channels_last, optimised, shortened
from antiadv.engine.rewrites.strided import is_stem, join_strides


def conv(inner: int, outer: int, kernel: int, stride: int | tuple[int, int], **options: object) -> nn.Conv2d:
    torch.manual_seed(0)
    options = {"padding": kernel // 2} | options
    return nn.Conv2d(inner, outer, kernel, stride, **options).double().requires_grad_(False)  # type: ignore[arg-type]


def same(m: nn.Conv2d, x: Tensor) -> None:
    """Scores and gradients, before and after."""
    want = m(x)
    join_strides(m)
    assert "_conv_forward" in vars(m)
    for given in (x, x.contiguous(memory_format=torch.channels_last)):
        found = m(given)
        torch.testing.assert_close(found, want, rtol=1e-12, atol=1e-12)
        up = torch.rand_like(want)
        (g,), (h,) = (torch.autograd.grad(y, x, up, retain_graph=True) for y in (want, found))
        torch.testing.assert_close(h, g, rtol=1e-12, atol=1e-12)
        with torch.no_grad():
            torch.testing.assert_close(m(given), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", [3, 5, 7, 9])
@pytest.mark.parametrize("inner", [1, 3, 4])
@pytest.mark.parametrize("size", [(12, 8), (7, 8), (8, 7), (2, 2)], ids=str)
def test_cells_of_pixels_give_the_numbers_of_pixels(kernel: int, inner: int, size: tuple[int, int]) -> None:
    """Images with odd sides are not rewritten."""
    same(conv(inner, 5, kernel, 2), torch.rand(2, inner, *size, dtype=torch.float64, requires_grad=True))


def test_gradients_go_in_cells() -> None:
    """The cells are really used: a change of their weights changes the gradient."""
    m, x = conv(1, 1, 3, 2), torch.rand(1, 1, 4, 4, dtype=torch.float64, requires_grad=True)
    join_strides(m)
    m.get_buffer("cells").zero_()
    assert not torch.autograd.grad(m(x).sum(), x)[0].any()
    with torch.no_grad():
        assert m(x).any()


@pytest.mark.parametrize("stride", [2, 3, (2, 1), (1, 2)], ids=str)
@pytest.mark.parametrize("size", [(8, 8), (7, 6), (5, 9)], ids=str)
def test_pixels_that_count_are_taken_first(stride: int | tuple[int, int], size: tuple[int, int]) -> None:
    same(conv(6, 5, 1, stride), torch.rand(2, 6, *size, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize(
    "other",
    [
        conv(6, 5, 1, 1),
        conv(6, 5, 1, 2, padding=1),
        conv(6, 4, 1, 2, groups=2),
        conv(5, 4, 7, 2),
        conv(3, 4, 7, 1),
        conv(3, 4, 7, 4),
        conv(3, 4, 7, 2, padding=2),
        conv(3, 4, 4, 2),
        conv(3, 4, 7, 2, padding_mode="reflect"),
        torch.nn.utils.parametrizations.weight_norm(conv(3, 4, 7, 2)),
    ],
    ids=str,
)
def test_other_convolutions_are_left_alone(other: nn.Conv2d) -> None:
    join_strides(other)
    assert "_conv_forward" not in vars(other)


@pytest.mark.parametrize(("name", "joined"), [("compact:trades", 3), ("resnet50:v1", 7), ("resnet50:v1.5", 4)])
def test_networks_of_the_house(name: str, joined: int) -> None:
    """In a v1 ResNet-50: shortcuts, the first convolution of each group, and the first of the network."""
    net = models.load(name) if ":trades" in name else models.build(f"resnet50:stride_on={name[9:]},width=8")
    net = net.double().eval()
    twin = channels_last(net)
    join_strides(twin)
    assert sum("_conv_forward" in vars(m) for m in twin.modules()) == joined
    assert sum(isinstance(m, nn.Conv2d) and is_stem(m) for m in twin.modules()) == ("resnet50" in name)
    x = torch.rand(2, 3, 64, 64, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(twin(x), net(x), rtol=1e-10, atol=1e-10)
    (g,), (h,) = (torch.autograd.grad(f(x).logsumexp(1).sum(), x) for f in (net, twin))
    torch.testing.assert_close(h, g, rtol=1e-10, atol=1e-10)
    assert twin.state_dict().keys() == net.state_dict().keys()


def test_weights_that_are_made_anew_at_every_call_keep_their_bits() -> None:
    class Centred(nn.Conv2d):
        def forward(self, input: Tensor) -> Tensor:
            s: Tensor = self._conv_forward(input, self.weight - self.weight.mean((1, 2, 3), keepdim=True), self.bias)
            return s

    net = nn.Sequential(nn.Conv2d(3, 4, 3), Centred(4, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    short = shortened(net, torch.float16)
    assert [p.dtype == torch.float16 for p in short.parameters()] == [True] * 2 + [False] * 6
    assert all(p.dtype == torch.float32 for p in net.parameters())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("precision", ["half", "mixed"])
def test_a_network_that_cannot_have_short_weights_keeps_its_own(precision: str) -> None:
    class Exact(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cuda", enabled=False):
                s: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
                return s

    net = Exact(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2)).cuda().eval()
    x = torch.rand(2, 3, 8, 8, device="cuda")

    def works(f: nn.Module) -> bool:
        try:
            f(x)
        except RuntimeError:
            return False
        return True

    with torch.autocast("cuda", torch.float16):
        torch.testing.assert_close(optimised(net, precision, False, works, x)(x), net(x), rtol=1e-4, atol=1e-4)
