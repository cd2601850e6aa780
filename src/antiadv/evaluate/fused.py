"""A convolution, its bias, the sum of a residual block and the rectifier: one kernel in place of two.

    relu(conv(x) + b)          →  antiadv::conv_relu
    relu(conv(x) + b + z)      →  antiadv::conv_add_relu

The compiler writes everything between two convolutions as one kernel, and that reads and writes every activation once
more; the GPU's library does it while the convolution's sums are still at hand, at no cost that can be seen. `fuse`
changes the compiler's graph of ATen's operations, forward or backward, where derivatives are written out already:
nothing here has a gradient of its own. With 16 bits on a GPU; the sum is rounded once instead of three times.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import sys
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.fx.node import Argument
from torch.nn import functional as F

from antiadv.evaluate.precision import SHORT

# entries of an image's activations: fewer stay in the cache, and the library takes long to find its kernel
LARGE = 16384
RELU, ADD = torch.ops.aten.relu.default, torch.ops.aten.add.Tensor
_GEOMETRY = "SymInt[] stride, SymInt[] padding, SymInt[] dilation, SymInt groups"
_refused = set[tuple[Any, ...]]()  # shapes for which the library has no such kernel


def _conv_relu(x: Tensor, w: Tensor, b: Tensor | None, *geometry: Any) -> Tensor:
    return _conv_add_relu(x, w, b, None, *geometry)


def _conv_add_relu(x: Tensor, w: Tensor, b: Tensor | None, z: Tensor | None, *geometry: Any) -> Tensor:
    kind = (x.dtype, x.shape, w.shape, z is None, str(geometry))
    if x.is_cuda and kind not in _refused:
        try:
            if z is None:
                return torch.cudnn_convolution_relu(x, w, b, *geometry)
            return torch.cudnn_convolution_add_relu(x, w, z, 1.0, b, *geometry)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            _refused.add(kind)
    y = F.conv2d(x, w, b, *geometry)
    return (y if z is None else y + z).relu_().contiguous(memory_format=torch.channels_last)


def _shape(x: Tensor, w: Tensor, b: Tensor | None, *geometry: Any) -> Tensor:
    """What comes out, for a compiler that asks before there are numbers."""
    return torch.empty_like(F.conv2d(x, w, b, *geometry), memory_format=torch.channels_last)


# the compiler lays a tensor as it likes unless told, and the library would copy it
LAID = (torch.Tag.needs_fixed_stride_order,)
conv_relu = torch.library.custom_op(
    "antiadv::conv_relu",
    _conv_relu,
    mutates_args=(),
    schema=f"(Tensor x, Tensor w, Tensor? b, {_GEOMETRY}) -> Tensor",
    tags=LAID,
)
conv_add_relu = torch.library.custom_op(
    "antiadv::conv_add_relu",
    _conv_add_relu,
    mutates_args=(),
    schema=f"(Tensor x, Tensor w, Tensor? b, Tensor z, {_GEOMETRY}) -> Tensor",
    tags=LAID,
)
conv_relu.register_fake(_shape)
conv_add_relu.register_fake(lambda x, w, b, z, *geometry: _shape(x, w, b, *geometry))


def fuse(graph: Graph, *, everywhere: bool = False) -> int:
    """Change this graph; → how many rectifiers went into a convolution. `everywhere`: on any device, with any bits."""
    relus = [n for n in graph.nodes if n.target is RELU and (everywhere or _gains(n))]
    return sum(_fuse(graph, relu) for relu in relus)


def _fuse(graph: Graph, relu: Node) -> bool:
    inside = relu.all_input_nodes[0]
    conv, z = _summed(inside)
    if not _is_plain(conv):
        return False
    x, w, b, stride, padding, dilation, _, _, groups = conv.args
    geometry = (stride, padding, dilation, groups)
    with graph.inserting_before(relu):
        if z is None:
            fused = graph.call_function(torch.ops.antiadv.conv_relu.default, (x, w, b, *geometry))
        else:
            b = _both(graph, b, z) if _is_plain(z) else b
            fused = graph.call_function(torch.ops.antiadv.conv_add_relu.default, (x, w, b, z, *geometry))
    fused.meta.update(relu.meta)
    relu.replace_all_uses_with(fused)
    for gone in dict.fromkeys((relu, inside, conv)):
        graph.erase_node(gone)
    return True


def _summed(inside: Node) -> tuple[Node, Node | None]:
    """What is rectified: a convolution, if it is one, and what is added to it."""
    if inside.target is not ADD or len(inside.users) > 1 or inside.kwargs or len(inside.all_input_nodes) < 2:
        return inside, None
    one, other = inside.all_input_nodes
    if _like(one) != _like(other):  # one is spread over the other
        return inside, None
    return (one, other) if _is_plain(one) else (other, one)


def _both(graph: Graph, b: Argument, z: Node) -> Argument:
    """The bias of two convolutions that are summed, taken from z: there it would be a kernel of its own."""
    bias = z.args[2]
    if not isinstance(bias, Node):
        return b
    z.update_arg(2, None)
    if not isinstance(b, Node):
        return bias
    both = graph.call_function(ADD, (b, bias))
    both.meta["val"] = b.meta["val"] + bias.meta["val"]
    return both


def _is_plain(n: Node) -> bool:
    """A convolution of images, not transposed, that nobody else asks, with its channels last."""
    if n.target is not torch.ops.aten.convolution.default or len(n.users) != 1 or n.args[6]:
        return False
    y: Tensor = n.meta["val"]
    return y.ndim == 4 and y.is_contiguous(memory_format=torch.channels_last)


def _gains(n: Node) -> bool:
    y: Tensor = n.meta["val"]
    return y.device.type == "cuda" and y.dtype in SHORT.values() and math.prod(y.shape[1:]) >= LARGE


def _like(n: Node) -> tuple[Any, ...]:
    y: Tensor = n.meta["val"]
    return (*y.shape, y.dtype, y.ndim == 4 and y.is_contiguous(memory_format=torch.channels_last))


def graph_pass() -> Any:
    """`fuse`, as the compiler wants it: what it has compiled is found again as long as this file stays as it is."""
    from torch._inductor.custom_graph_pass import CustomGraphPass  # here, for it takes as long to load as all of torch

    class Fuse(CustomGraphPass):
        def __call__(self, graph: Graph) -> None:
            fuse(graph)

        def uuid(self) -> str:
            return hashlib.sha256(inspect.getsource(sys.modules[__name__]).encode()).hexdigest()

    return Fuse()
