"""Convolution, sum and rectifier in one: the same numbers as one after the other, from compiled code."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv import models
from antiadv.evaluate.folded import fold_norms
from antiadv.evaluate.fused import conv_add_relu, conv_relu, fuse
from antiadv.evaluate.ready import channels_last
from antiadv.evaluate.speed import Fast

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about its own compiler


def compiled(net: nn.Module, counts: list[int]) -> Any:
    """The network as the compiler makes it with everything fused, whatever the device; `counts` says how much was."""
    from torch._inductor.custom_graph_pass import CustomGraphPass

    class Everywhere(CustomGraphPass):
        def __call__(self, graph: torch.fx.Graph) -> None:
            counts.append(fuse(graph, everywhere=True))

        def uuid(self) -> None:
            return None

    return torch.compile(net.forward, options={"post_grad_custom_pre_pass": Everywhere()})


class Residual(nn.Module):
    """All kinds of sums: with a shortcut of its own, with the input, none at all, and two that cannot be fused."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d, self.e = (nn.Conv2d(3 if i < 2 else 4, 4, 3, 1, 1, bias=bias) for i in range(5))
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.a(x) + self.b(x))
        h = F.relu(h + self.c(h))
        h = F.relu(self.d(h))
        y = self.e(h)
        h = F.relu(y) + y.sigmoid()  # two ask for it
        h = F.relu(h + h.mean((2, 3), keepdim=True))  # spread over the image, and no convolution
        return self.head(h.mean((2, 3)))


@pytest.mark.parametrize("bias", [True, False])
def test_fused_code_gives_the_numbers_and_gradients_of_the_network(bias: bool):
    torch.manual_seed(0)
    net, counts = channels_last(Residual(bias).double().eval()), list[int]()
    run = compiled(net, counts)
    x = torch.rand(3, 3, 6, 6, dtype=torch.float64).contiguous(memory_format=torch.channels_last).requires_grad_()
    torch.testing.assert_close(run(x), net(x), rtol=1e-12, atol=1e-12)
    (g,), (h,) = (torch.autograd.grad(f(x).logsumexp(1).sum(), x) for f in (net, run))
    torch.testing.assert_close(h, g, rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(run(x), net(x), rtol=1e-12, atol=1e-12)
    assert counts == [3, 0, 3], "forward, backward, and forward without gradients"


def test_every_rectifier_of_a_folded_resnet_is_part_of_a_convolution():
    net, counts = models.build("resnet18:width=8").eval(), list[int]()
    x = torch.rand(2, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    twin = channels_last(net)
    fold_norms(twin, x[:1])
    with torch.no_grad():
        torch.testing.assert_close(compiled(twin, counts)(x), net(x), rtol=1e-4, atol=1e-4)
    assert counts == [17]


def test_on_a_cpu_and_with_32_bits_nothing_is_fused():
    graph = torch.fx.Graph()
    y = graph.placeholder("y")
    relu = graph.call_function(torch.ops.aten.relu.default, (y,))
    graph.output(relu)
    for node in (y, relu):
        node.meta["val"] = torch.rand(1, 64, 32, 32)
    assert fuse(graph) == 0


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(("stride", "kernel"), [(1, 3), (2, 3), (2, 1), (1, 5)])
@pytest.mark.parametrize("bias", [True, False])
def test_the_operations_are_what_they_say(device: str, stride: int, kernel: int, bias: bool):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs CUDA")
    torch.manual_seed(0)
    dtype = torch.float16 if device == "cuda" else torch.float64
    last = {"memory_format": torch.channels_last}
    x = torch.randn(4, 16, 8, 8, device=device, dtype=dtype).contiguous(**last)
    w = torch.randn(32, 16, kernel, kernel, device=device, dtype=dtype).contiguous(**last) / 16
    b = torch.randn(32, device=device, dtype=dtype) if bias else None
    how = ([stride] * 2, [kernel // 2] * 2, [1, 1], 1)
    y = F.conv2d(x, w, b, *how)
    z = torch.randn_like(y)
    junk = torch.full_like(y, torch.nan)  # what lies where the answer will be must not matter
    del junk
    near = {"rtol": 1e-2, "atol": 1e-2} if device == "cuda" else {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(conv_relu(x, w, b, *how), y.relu(), **near)
    torch.testing.assert_close(conv_add_relu(x, w, b, z, *how), (y + z).relu(), **near)
    if device == "cpu":
        torch.library.opcheck(conv_relu, (x, w, b, *how))
        torch.library.opcheck(conv_add_relu, (x, w, b, z, *how))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("precision", ["half", "mixed"])
def test_a_gpu_answers_alike(precision: str):
    torch.manual_seed(0)
    net, x = models.build("resnet18").cuda().eval(), torch.rand(32, 3, 32, 32, device="cuda")
    want = Fast(32, plain=True).scores(net, x)
    found = Fast(32, precision, compiled=True).scores(net, x)
    assert (found - want).abs().max() < 0.05 * want.abs().max()
    assert F.cosine_similarity(found - found.mean(1, True), want - want.mean(1, True)).min() > 0.99
