"""Lossless packing of large float16 weights: a file takes about five sixths of the bytes.

    NAME:low       the low byte of every value (end of the mantissa), not compressed, since it is close to random
    NAME:high      the high byte of every value (sign, exponent, two bits of mantissa), as one xz stream
    NAME:shape     the shape

The repository keeps all its networks in under 50 MB this way. Unpacking never makes more bytes than NAME:low has, so a
small file cannot grow into a large tensor.
"""

from __future__ import annotations

import lzma
import math
from collections.abc import Mapping
from typing import TypeGuard

import torch
from torch import Tensor

from antiadv.core.errors import BadInput

LOW, HIGH, SHAPE = ":low", ":high", ":shape"
NETWORK = 100_000  # a network with fewer float16 values stays plain safetensors
TENSOR = 10_000  # a tensor with fewer values stays plain: the header would cost what packing saves
_MEMORY = 2**26  # bytes that decompressing a stream may use; streams written here need 9 MB


def pack(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Pack the large float16 tensors of a large network; return other tensors unchanged.

    >>> packed = pack({"w": torch.full((1000, 1000), -1.5).half(), "b": torch.zeros(3)})
    >>> sorted(packed), packed["w:shape"].tolist(), len(packed["w:low"]), len(packed["w:high"]) < 1000
    (['b', 'w:high', 'w:low', 'w:shape'], [1000, 1000], 1000000, True)
    >>> unpack(packed)["w"][0, 0]
    tensor(-1.5000, dtype=torch.float16)
    """
    large = {name for name, t in state.items() if t.dtype == torch.float16 and t.numel() >= TENSOR}
    if sum(state[name].numel() for name in large) < NETWORK:
        return dict(state)
    packed: dict[str, Tensor] = {}
    for name, t in state.items():
        if name not in large:
            packed[name] = t
            continue
        bits = t.cpu().flatten().view(torch.int16)  # shifts do not depend on the byte order of the machine
        high = (bits >> 8 & 255).to(torch.uint8).numpy().tobytes()
        packed[name + LOW] = (bits & 255).to(torch.uint8)
        packed[name + HIGH] = torch.frombuffer(bytearray(lzma.compress(high)), dtype=torch.uint8)
        packed[name + SHAPE] = torch.tensor(t.shape)
    return packed


def unpack(packed: Mapping[str, Tensor], where: str = "the file") -> dict[str, Tensor]:
    """Invert `pack`, bit for bit. `where` names the file in errors."""
    names = dict.fromkeys(name.rpartition(":")[0] for name in packed if name.endswith((LOW, HIGH)))
    parts = {name + part for name in names for part in (LOW, HIGH, SHAPE)}
    state = {name: t for name, t in packed.items() if name not in parts}
    return state | {name: _unpack_tensor(name, packed, where) for name in names}


def _unpack_tensor(name: str, packed: Mapping[str, Tensor], where: str) -> Tensor:
    low, high, shape = (packed.get(name + part) for part in (LOW, HIGH, SHAPE))
    if not _is_bytes(low) or not _is_bytes(high) or shape is None or shape.dtype != torch.int64 or shape.dim() != 1:
        raise BadInput(f"{where} lacks a part of the packed tensor {name}, or a part has a wrong type; get it again")
    if name in packed:
        raise BadInput(f"{where} holds the tensor {name} twice, plain and packed; get the file again")
    size = [int(n) for n in shape]
    if min(size, default=1) < 1 or math.prod(size) != len(low):
        raise BadInput(f"{where} holds {len(low)} low bytes for {name} of shape {size}; get the file again")
    bits = _decompress(high, len(low), f"{where}: the high bytes of {name}").to(torch.int16) << 8 | low
    return bits.view(torch.float16).view(size)


def _is_bytes(part: Tensor | None) -> TypeGuard[Tensor]:
    return part is not None and part.dtype == torch.uint8 and part.dim() == 1


def _decompress(packed: Tensor, count: int, where: str) -> Tensor:
    """Decompress one xz stream of exactly `count` bytes; stop reading after that many."""
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MEMORY)
    try:
        raw = stream.decompress(packed.numpy().tobytes(), max_length=count)
        if not stream.eof:
            stream.decompress(b"", max_length=0)  # the end mark may come after the last byte
    except lzma.LZMAError as error:
        raise BadInput(f"{where} are damaged: {str(error).lower()}; get the file again") from error
    if len(raw) != count or not stream.eof or stream.unused_data:
        raise BadInput(f"{where} are not one stream of {count} bytes; get the file again")
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)
