"""Large weights in half precision, written short: of every float16 the byte that compresses is compressed.

    NAME:low       bits 0 to 7 of every entry, row by row: the end of the mantissa, which is noise and is left as it is
    NAME:high      bits 8 to 15, as one xz stream: sign, exponent and two bits of mantissa, where few values are common
    NAME:shape     the shape

Trained weights take about five sixths of the bytes, and come back to the bit. Reading makes no more bytes than the
shape says, and the shape may say no more than there are low ones: a small file cannot grow into a large tensor.
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
NETWORK = 1_000_000  # values in half precision: a network with fewer stays plain, for any reader of safetensors
TENSOR = 10_000  # values: below it three entries of the header cost what is saved
_MEMORY = 2**26  # bytes that reading a stream may take; those we write take 9 MB


def squeeze(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """
    >>> short = squeeze({"w": torch.full((1000, 1000), -1.5).half(), "b": torch.zeros(3)})
    >>> sorted(short), short["w:shape"].tolist(), len(short["w:low"]), len(short["w:high"]) < 1000
    (['b', 'w:high', 'w:low', 'w:shape'], [1000, 1000], 1000000, True)
    >>> expand(short)["w"][0, 0]
    tensor(-1.5000, dtype=torch.float16)
    """
    large = {name for name, t in state.items() if t.dtype == torch.float16 and t.numel() >= TENSOR}
    if sum(state[name].numel() for name in large) < NETWORK:
        return dict(state)
    short: dict[str, Tensor] = {}
    for name, t in state.items():
        if name not in large:
            short[name] = t
            continue
        bits = t.cpu().flatten().view(torch.int16)  # shifted, not viewed as bytes: the same on any machine
        high = (bits >> 8 & 255).to(torch.uint8).numpy().tobytes()
        short[name + LOW] = (bits & 255).to(torch.uint8)
        short[name + HIGH] = torch.frombuffer(bytearray(lzma.compress(high)), dtype=torch.uint8)
        short[name + SHAPE] = torch.tensor(t.shape)
    return short


def expand(short: Mapping[str, Tensor], where: str = "the file") -> dict[str, Tensor]:
    """The inverse. A file whose three parts do not fit together is refused."""
    names = dict.fromkeys(name.rpartition(":")[0] for name in short if name.endswith((LOW, HIGH)))
    parts = {name + part for name in names for part in (LOW, HIGH, SHAPE)}
    state = {name: t for name, t in short.items() if name not in parts}
    return state | {name: _joined(name, short, where) for name in names}


def _joined(name: str, short: Mapping[str, Tensor], where: str) -> Tensor:
    low, high, shape = (short.get(name + part) for part in (LOW, HIGH, SHAPE))
    if not _bytes(low) or not _bytes(high) or shape is None or shape.dtype != torch.int64 or shape.dim() != 1:
        raise BadInput(f"{where} holds a part of the tensor {name}, or one of the wrong kind; get the file again")
    if name in short:
        raise BadInput(f"{where} holds the tensor {name} twice, whole and in two halves; get the file again")
    size = [int(n) for n in shape]
    if min(size, default=1) < 1 or math.prod(size) != len(low):
        raise BadInput(f"{where} holds {len(low)} low bytes of {name}, whose shape is {size}; get the file again")
    bits = _unpacked(high, len(low), f"{where} holds high bytes of {name}").to(torch.int16) << 8 | low
    return bits.view(torch.float16).view(size)


def _bytes(part: Tensor | None) -> TypeGuard[Tensor]:
    return part is not None and part.dtype == torch.uint8 and part.dim() == 1


def _unpacked(packed: Tensor, count: int, said: str) -> Tensor:
    """The `count` bytes of exactly one stream; it is not read further than that."""
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MEMORY)
    try:
        raw = stream.decompress(packed.numpy().tobytes(), max_length=count)
        if not stream.eof:
            stream.decompress(b"", max_length=0)  # its end, should it not have been read with the last byte
    except lzma.LZMAError as error:
        raise BadInput(f"{said} that are damaged: {str(error).lower()}; get the file again") from error
    if len(raw) != count or not stream.eof or stream.unused_data:
        raise BadInput(f"{said} that are not one whole stream of {count}; get the file again")
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)
