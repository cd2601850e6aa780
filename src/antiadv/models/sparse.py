"""Pruned weights, written short: a tensor that is mostly zeros is kept as its other values and where they stand.

    NAME:kept      bits, eight to a byte, the first in the lowest: which entries are not zero, row by row
    NAME:values    those entries, in order
    NAME:shape     the shape

A network with nine weights in ten pruned takes a sixth of the bytes, and loads as the dense one it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from antiadv.core.errors import BadInput

KEPT, VALUES, SHAPE = ":kept", ":values", ":shape"
ZEROS = 0.5  # a tensor with more zeros than that is written short
_BITS = 2 ** torch.arange(8, dtype=torch.uint8)


def squeeze(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """
    >>> short = squeeze({"w": torch.tensor([[0.0, 3.0, 0.0], [0.0, 0.0, 0.0]])})
    >>> {name: t.tolist() for name, t in short.items()}
    {'w:kept': [2], 'w:values': [3.0], 'w:shape': [2, 3]}
    """
    short: dict[str, Tensor] = {}
    for name, t in state.items():
        kept = (t != 0).flatten()
        if t.dim() < 2 or kept.sum() > (1 - ZEROS) * t.numel():
            short[name] = t
            continue
        bits = torch.nn.functional.pad(kept.to(torch.uint8), (0, -t.numel() % 8)).view(-1, 8)
        short[name + KEPT] = (bits * _BITS.to(t.device)).sum(1, dtype=torch.uint8)
        short[name + VALUES] = t.flatten()[kept]
        short[name + SHAPE] = torch.tensor(t.shape)
    return short


def expand(short: Mapping[str, Tensor], where: str = "the file") -> dict[str, Tensor]:
    """The inverse. A file whose three parts do not fit together is refused."""
    names = [name.removesuffix(KEPT) for name in short if name.endswith(KEPT)]
    parts = {name + part for name in names for part in (KEPT, VALUES, SHAPE)}
    state = {name: t for name, t in short.items() if name not in parts}
    return state | {name: _dense(name, short, where) for name in names}


def _dense(name: str, short: Mapping[str, Tensor], where: str) -> Tensor:
    kept, values, shape = (short.get(name + part) for part in (KEPT, VALUES, SHAPE))
    if kept is None or values is None or shape is None or kept.dtype != torch.uint8 or shape.dtype != torch.int64:
        raise BadInput(f"{where} holds a part of the pruned tensor {name}; get the file again")
    if not kept.dim() == values.dim() == shape.dim() == 1 or (shape < 0).any():
        raise BadInput(f"{where} holds parts of the pruned tensor {name} that are no lists; get the file again")
    size, count = [int(n) for n in shape], math.prod(int(n) for n in shape)
    places = ((kept[:, None] & _BITS) != 0).flatten()
    if len(places) - count not in range(8) or places[count:].any() or int(places.sum()) != len(values):
        raise BadInput(f"{where} holds {len(values)} values of {name}, and marks {int(places.sum())}; get it again")
    dense = values.new_zeros(count)
    dense[places[:count]] = values
    return dense.view(size)
