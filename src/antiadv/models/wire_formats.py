"""How images and answers are written in HTTP: the Open Inference Protocol v2, and other JSON.

    format.encode(images)         →  body and headers of a request, for float32 images [n, C, H, W]
    format.decode(reply, n)       →  an array [n, K] of numbers, or [n] of labels; `BadAnswer` says what is wrong

    V2     POST …/infer with the binary extension: JSON first, then the raw numbers. Answers may be binary or JSON
    Json   any API that takes JSON: `request` names the field of the images, `answer` that of the scores

A path of fields is written with dots: `data.inputs`. In an answer a number picks from a list, and `*` means each:
`predictions.*.scores`.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal  # Any: what JSON holds

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from antiadv.core.errors import BadInput
from antiadv.models.connection import Reply

Images = Literal["binary", "lists", "png"]
Array = NDArray[Any]
Encoded = tuple[bytes, dict[str, str]]

LENGTH = "Inference-Header-Content-Length"
TYPES = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"} | {f"INT{b}": f"<i{b // 8}" for b in (8, 16, 32, 64)}
TYPES |= {f"UINT{b}": f"<u{b // 8}" for b in (8, 16, 32, 64)}


class BadAnswer(ValueError):
    """What is wrong with an answer, as the end of a sentence."""


@dataclass(frozen=True)
class V2:
    """`input` and `output` are the names of the tensors. With `images="lists"` requests are plain JSON."""

    input: str
    output: str
    images: Images = "binary"

    def encode(self, x: NDArray[np.float32]) -> Encoded:
        tensor: dict[str, Any] = {"name": self.input, "shape": list(x.shape), "datatype": "FP32"}
        asked: dict[str, Any] = {"name": self.output}
        if self.images == "lists":
            body = {"inputs": [tensor | {"data": x.ravel().tolist()}], "outputs": [asked]}
            return json.dumps(body).encode(), {"Content-Type": "application/json"}
        raw = x.astype("<f4").tobytes()
        tensor["parameters"], asked["parameters"] = {"binary_data_size": len(raw)}, {"binary_data": True}
        head = json.dumps({"inputs": [tensor], "outputs": [asked]}).encode()
        return head + raw, {"Content-Type": "application/octet-stream", LENGTH: str(len(head))}

    def decode(self, reply: Reply, n: int) -> Array:
        length = next((v for k, v in reply.headers.items() if k.lower() == LENGTH.lower()), None)
        head, raw = reply.body, b""
        if length is not None:
            if not length.isdecimal() or int(length) > len(reply.body):
                raise BadAnswer(f"a header of {length[:20]!r} bytes in {len(reply.body)} bytes")
            head, raw = reply.body[: int(length)], reply.body[int(length) :]
        elif reply.kind != "application/json":
            raise BadAnswer(f"the content type {reply.kind or 'nothing'!r}")
        outputs = _field(_json(head), ["outputs"])
        if not isinstance(outputs, list):
            raise BadAnswer("no list of outputs")
        for tensor in outputs:
            size = _size(tensor)
            mine, raw = raw[:size], raw[size:]
            if tensor.get("name") == self.output:
                return _tensor(tensor, mine if size else None, n)
        raise BadAnswer(f"no output named {self.output!r}")


def _size(tensor: Any) -> int:
    """How many bytes a tensor of an answer takes behind the JSON."""
    if not isinstance(tensor, dict):
        raise BadAnswer("an output that is no object")
    parameters = tensor.get("parameters", {})
    size = parameters.get("binary_data_size", 0) if isinstance(parameters, dict) else 0
    if type(size) is not int or size < 0:
        raise BadAnswer("a binary size that is no number of bytes")
    return size


def _tensor(tensor: Mapping[str, Any], raw: bytes | None, n: int) -> Array:
    shape, kind = tensor.get("shape"), tensor.get("datatype")
    if not isinstance(shape, list) or not all(type(d) is int and d >= 0 for d in shape) or kind not in TYPES:
        raise BadAnswer(f"an output of shape {str(shape)[:60]} and type {str(kind)[:20]}")
    dtype = np.dtype(TYPES[kind])
    if raw is not None and math.prod(shape) * dtype.itemsize != len(raw):
        raise BadAnswer(f"{len(raw)} bytes for {kind} of shape {shape}")
    values = np.frombuffer(raw, dtype) if raw is not None else _numbers(tensor.get("data")).ravel()
    if values.size != math.prod(shape):
        raise BadAnswer(f"{values.size} numbers for the shape {shape}")
    return rows(values.reshape(shape), n)


@dataclass(frozen=True)
class Json:
    """`single`: a request holds one image and not a list; then the answer is one row."""

    request: str = "instances"
    answer: str = "predictions"
    images: Images = "lists"
    single: bool = False

    def encode(self, x: NDArray[np.float32]) -> Encoded:
        values = [_png(image) for image in x] if self.images == "png" else x.tolist()
        body: Any = values[0] if self.single else values
        for name in reversed(_path(self.request)):
            body = {name: body}
        return json.dumps(body).encode(), {"Content-Type": "application/json"}

    def decode(self, reply: Reply, n: int) -> Array:
        if "json" not in reply.kind:
            raise BadAnswer(f"the content type {reply.kind or 'nothing'!r}")
        found = _numbers(_field(_json(reply.body), _path(self.answer)))
        return rows(found[None] if self.single and (found.ndim == 0 or len(found) != 1) else found, n)


def rows(values: Array, n: int) -> Array:
    """Scores [n, K], or labels [n]; anything else is refused."""
    if values.ndim not in (1, 2) or len(values) != n:
        raise BadAnswer(f"shape {list(values.shape)} for {n} images")
    return values


def _png(image: NDArray[np.float32]) -> str:
    """An image [C, H, W] as base64 of a PNG, rounded to 8 bits."""
    pixels = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    if len(pixels) not in (1, 3):
        raise BadInput(f"a PNG has 1 or 3 channels; found images with {len(pixels)}. Send them with images=lists.")
    content = io.BytesIO()
    Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))).save(
        content, "PNG"
    )
    return base64.b64encode(content.getvalue()).decode()


def _path(text: str) -> list[str]:
    return [name for name in text.split(".") if name]


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise BadAnswer("no JSON") from None


def _field(value: Any, path: Sequence[str]) -> Any:
    """The value at a path of fields."""
    for place, name in enumerate(path):
        if name == "*" and isinstance(value, list):
            return [_field(each, path[place + 1 :]) for each in value]
        try:
            value = value[int(name)] if isinstance(value, list) else value[name]
        except (LookupError, TypeError, ValueError):
            raise BadAnswer(f"no field {'.'.join(path[: place + 1])}") from None
    return value


def _numbers(value: Any) -> Array:
    """Nested lists of JSON as an array. Texts and ragged lists are refused."""
    try:
        found = np.asarray(value)
    except (ValueError, OverflowError, RecursionError):
        raise BadAnswer("lists of different lengths") from None
    if found.dtype.kind not in "iuf":
        raise BadAnswer("values that are not numbers")
    return found
