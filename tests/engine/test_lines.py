"""Norms and biases as lines per channel: the same numbers as torch, scores and gradients, and twice differentiable."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from antiadv import models
from antiadv.engine.optimise import channels_last, optimised, shortened
from antiadv.engine.rewrites import lines
from antiadv.engine.rewrites.lines import draw_lines, is_plain_norm, on_line, plain

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


def norm(channels: int, **options: bool) -> nn.BatchNorm2d:
    """A norm as after training."""
    made = nn.BatchNorm2d(channels, **options).eval()
    for t in (made.weight, made.bias, made.running_mean, made.running_var):
        if t is not None:
            t.data.copy_(0.5 + torch.rand(channels))
    return made


def drawn(net: nn.Module) -> nn.Module:
    twin = copy.deepcopy(net).requires_grad_(False)
    draw_lines(twin, biases=True)
    return twin


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_scores_gradients_and_their_gradients_stay(affine: bool, bias: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, bias=bias), nn.Tanh(), norm(8, affine=affine), nn.Conv2d(8, 2, 1))
    net = net.double().eval()
    twin, x = drawn(net), torch.rand(2, 3, 6, 6, dtype=torch.float64, requires_grad=True)
    found = []
    for m in (net, twin):
        s = m(x)
        (g,) = torch.autograd.grad(s.square().sum(), x, create_graph=True)
        found.append((s, g, *torch.autograd.grad(g.square().sum(), x)))
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)  # a and b are kept in float32
    assert ("_conv_forward" in vars(twin[0])) == bias  # type: ignore[index]
    twin[2].slope.zero_(), twin[2].offset.zero_()  # type: ignore[index]
    assert not torch.allclose(twin(x), net(x))  # the line is used


def test_a_norm_in_training_and_classes_of_their_own_are_left_alone() -> None:
    class Own(nn.BatchNorm2d):
        def forward(self, x: Tensor) -> Tensor:
            return x

    folded = norm(4)
    folded.forward = nn.Identity().forward  # type: ignore[method-assign]
    others = [nn.BatchNorm2d(4).train(), nn.BatchNorm2d(4, track_running_stats=False).eval(), Own(4).eval(), folded]
    assert not any(map(is_plain_norm, others))
    assert is_plain_norm(norm(4))


def test_one_image_without_a_batch_is_left_to_torch() -> None:
    conv = nn.Conv2d(3, 8, 3)
    x = torch.rand(3, 5, 5)
    torch.testing.assert_close(drawn(conv)(x), conv(x))


@pytest.mark.parametrize("name", ["compact:trades", "wrn16-4:trades"])
def test_networks_of_the_zoo_answer_the_same(name: str) -> None:
    net, x = models.load(name), torch.rand(2, 3, 32, 32, requires_grad=True)
    drew = shortened(channels_last(net), torch.float32, lines=True)
    assert any("slope" in dict(m.named_buffers(recurse=False)) for m in drew.modules())
    (g,), (h,) = (torch.autograd.grad(m(x).square().sum(), x) for m in (net, drew))
    torch.testing.assert_close(drew(x), net(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(h, g, rtol=1e-3, atol=1e-4 * float(g.abs().max()))


def test_mixed_precision_on_a_cpu_draws_norms_and_leaves_biases_to_convolutions() -> None:
    net, x = models.load("compact:trades"), torch.rand(1, 3, 32, 32)
    made = optimised(net, "mixed", compiled=False, works=lambda m: True, x=x)
    assert any("slope" in dict(m.named_buffers(recurse=False)) for m in made.modules())
    assert not any("_conv_forward" in vars(m) for m in made.modules())


def test_layouts_of_gradients_are_those_of_images() -> None:
    """A pass back through a strided shortcut stays channels last: sums of two layouts are slow on a GPU."""
    conv = nn.Conv2d(8, 8, 1, 2, bias=False).requires_grad_(False)
    short, x = shortened(conv, torch.float32), torch.rand(2, 8, 6, 6).contiguous(memory_format=torch.channels_last)
    seen: list[bool] = []
    h = x.requires_grad_() * 1
    h.register_hook(lambda g: seen.append(g.is_contiguous(memory_format=torch.channels_last)))
    short(h).sum().backward()
    assert seen == [True]


@gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", [(3, 16, 5, 7), (2, 24, 1, 1), (1, 64, 32, 32), (2, 12, 3, 3), (0, 8, 2, 2)], ids=str)
@pytest.mark.parametrize("kind", ["line", "slope", "offset"])
def test_the_kernel_computes_the_line(dtype: torch.dtype, shape: tuple[int, ...], kind: str) -> None:
    assert lines.has_kernel()
    torch.manual_seed(0)
    x = torch.randn(shape, device="cuda").to(dtype)
    a = None if kind == "offset" else torch.randn(shape[1], device="cuda")
    b = None if kind == "slope" else torch.randn(shape[1], device="cuda")
    for given in (x, x.contiguous(memory_format=torch.channels_last)):
        torch.testing.assert_close(on_line(given, a, b), plain(x, a, b))


@gpu
def test_half_precision_on_a_gpu_uses_it() -> None:
    net, x = models.load("wrn16-4:trades").cuda(), torch.rand(4, 3, 32, 32, device="cuda")
    with_lines, without = (shortened(channels_last(net), torch.float16, lines=on) for on in (True, False))
    with torch.autocast("cuda", torch.float16):
        torch.testing.assert_close(with_lines(x), without(x), rtol=2e-2, atol=2e-2)
