"""Narrow convolutions on pairs of columns give the same numbers, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from antiadv import models
from antiadv.engine.optimise import _Compiled, channels_last, optimised
from antiadv.engine.rewrites.pair_columns import double, halve, is_narrow, pair_narrow


def conv(inner: int = 16, outer: int = 16, kernel: int | tuple[int, int] = 3, **options: object) -> nn.Conv2d:
    torch.manual_seed(0)
    options = {"padding": 1} | options
    return nn.Conv2d(inner, outer, kernel, **options).double().requires_grad_(False)  # type: ignore[arg-type]


@pytest.mark.parametrize("stride", [1, 2, (2, 1), (1, 2)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("size", [(8, 8), (7, 6), (6, 7), (5, 2), (4, 1)], ids=str)
def test_pairs_of_columns_give_the_numbers_of_columns(
    stride: int | tuple[int, int], bias: bool, size: tuple[int, int]
) -> None:
    m = conv(16, 32, stride=stride, bias=bias)
    x = torch.rand(3, 16, *size, dtype=torch.float64, requires_grad=True)
    want = m(x)
    pair_narrow(m)
    for given in (x, x.contiguous(memory_format=torch.channels_last)):
        found = m(given)
        torch.testing.assert_close(found, want, rtol=1e-12, atol=1e-12)
        up = torch.rand_like(want)
        (g,), (h,) = (torch.autograd.grad(y, x, up, retain_graph=True) for y in (want, found))
        torch.testing.assert_close(h, g, rtol=1e-12, atol=1e-12)


def test_an_image_with_channels_last_is_read_in_pairs_where_it_lies() -> None:
    x = torch.rand(2, 16, 4, 6).contiguous(memory_format=torch.channels_last)
    pairs = halve(x)
    assert pairs.shape == (2, 32, 4, 3)
    assert pairs.data_ptr() == x.data_ptr()
    assert pairs.is_contiguous(memory_format=torch.channels_last)
    assert pairs[1, 16 + 5, 2, 1] == x[1, 5, 2, 3]
    assert torch.equal(double(pairs), x)
    assert double(pairs).data_ptr() == x.data_ptr()


@pytest.mark.parametrize(
    "other",
    [
        conv(4),
        conv(32),
        conv(16, 64),
        conv(padding=0),
        conv(stride=3),
        conv(kernel=5, padding=2),
        conv(kernel=1, padding=0),
        conv(groups=2),
        conv(dilation=2, padding=1),
        conv(padding_mode="reflect"),
        torch.nn.utils.parametrizations.weight_norm(conv()),
        prune.identity(conv(), "weight"),
    ],
    ids=str,
)
def test_other_convolutions_are_left_alone(other: nn.Conv2d) -> None:
    assert not is_narrow(other)
    pair_narrow(other)
    assert "_conv_forward" not in vars(other)
    assert is_narrow(conv())
    assert is_narrow(conv(kernel=(5, 3), padding=(2, 1)))


def test_somebody_elses_idea_of_a_convolution_is_left_alone() -> None:
    class Doubled(nn.Conv2d):
        def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            s: Tensor = 2 * super()._conv_forward(input, weight, bias)
            return s

    assert not is_narrow(Doubled(16, 16, 3, padding=1))


def test_weights_made_anew_at_every_call_are_the_ones_used() -> None:
    class Centred(nn.Conv2d):
        """For example, standardised weights."""

        def forward(self, input: Tensor) -> Tensor:
            s: Tensor = self._conv_forward(input, self.weight - self.weight.mean((1, 2, 3), keepdim=True), self.bias)
            return s

    m, x = Centred(16, 16, 3, padding=1).double().requires_grad_(False), torch.rand(2, 16, 4, 4, dtype=torch.float64)
    want = m(x)
    pair_narrow(m)
    torch.testing.assert_close(m(x), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["compact:trades", "compact:self_ensemble"])
def test_the_compact_network_is_the_same_function_in_pairs(name: str) -> None:
    """Five of its convolutions are rewritten. A self-ensemble keeps its noise, and hooks still count."""
    net = models.load(name).double()
    if name == "compact:self_ensemble":
        for m in net.modules():
            if hasattr(m, "noise"):
                m.noise = nn.Identity() if isinstance(m.noise, nn.Identity) else Shift()
    twin = channels_last(net)
    pair_narrow(twin)
    assert sum("_conv_forward" in vars(m) for m in twin.modules()) == 5
    x, seen = torch.rand(4, 3, 32, 32, dtype=torch.float64), list[int]()
    want = net(x)
    net.get_submodule("layer1.0.conv1").register_forward_hook(lambda *_: seen.append(1))
    torch.testing.assert_close(twin(x), want, rtol=1e-10, atol=1e-10)
    assert seen == [1]
    assert twin.state_dict().keys() == net.state_dict().keys()


class Shift(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 0.25


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about its own compiler
def test_pairs_are_compiled() -> None:
    net = nn.Sequential(conv(16, 16), nn.ReLU(), conv(16, 32, stride=2), nn.Flatten(), nn.Linear(32 * 16, 3).double())
    x = torch.rand(3, 16, 8, 8, dtype=torch.float64)
    want = net(x)
    twin = channels_last(net)
    pair_narrow(twin)
    run = _Compiled(twin, frozen=False, last=True)
    with torch.no_grad():
        torch.testing.assert_close(run(x), want, rtol=1e-10, atol=1e-10)
    assert run._run is not twin.forward, "it was compiled"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize(("precision", "pairs"), [("float32", 0), ("tf32", 0), ("half", 5), ("mixed", 5)])
def test_pairs_are_for_sixteen_bits_on_a_gpu(precision: str, pairs: int) -> None:
    x = torch.rand(1, 3, 32, 32, device="cuda")
    net = optimised(models.load("compact:trades").cuda(), precision, False, lambda net: True, x)
    assert sum(hasattr(m, "paired") for m in net.modules()) == pairs
