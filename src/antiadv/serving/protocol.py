"""The Open Inference Protocol v2 over HTTP: requests to arrays, arrays to answers; JSON and the binary extension.

    read(body, header_length, shape, rows)   →  Asked(images [n, …] float32, id, outputs)   Refused if it is wrong
    write(asked, answer, …)                  →  body, headers

Input   `images`, FP32, [n, *shape], finite and in [0, 1].
Outputs `scores`, FP32, [n, K], and `label`, INT64, [n], the class with the highest score.

In the binary extension the body is JSON followed by the raw little-endian bytes of the tensors. The header
Inference-Header-Content-Length says how long the JSON is, and `binary_data_size` how long each tensor is.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn  # Any: what a JSON text holds

import numpy as np
from numpy.typing import NDArray

from antiadv.serving.backend import Answer, Images, wrong_pixels
from antiadv.serving.limits import Refused

HEADER_LENGTH = "Inference-Header-Content-Length"
INPUT = "images"
OUTPUTS = {"scores": "FP32", "label": "INT64"}
LONGEST_ID = 1024
DEEPEST = 32
MOST_LISTS = 2**20
MOST_IN_JSON = 2**20  # numbers and strings, if one row has no more: no other request is answered meanwhile
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
SLACK = 4096  # commas, quotes and backslashes around the numbers
STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)  # possessive, or its time and memory have no bound


@dataclass(frozen=True)
class Asked:
    """A valid request. `outputs` maps the name of each wanted output to whether it is wanted in binary."""

    images: Images
    id: str | None
    outputs: dict[str, bool]


def read(body: bytes, header_length: str | None, shape: tuple[int, ...], rows: int) -> Asked:
    """Check a request and return its images. `shape` is that of one image, `rows` the limit of a request."""
    head, tail = _split(body, header_length)
    pixels = math.prod(shape)
    request = _object(_parse(head, min(rows * pixels, max(pixels, MOST_IN_JSON))), "the request")
    name = request.get("id")
    if name is not None and not (isinstance(name, str) and len(name) <= LONGEST_ID):
        raise Refused(400, f"id must be a text of at most {LONGEST_ID} characters.")
    match request.get("inputs"):
        case [entry]:
            entry = _object(entry, "an input")
        case _:
            raise Refused(400, f"a request needs a list inputs with one entry, called {INPUT}.")
    if entry.get("name") != INPUT or entry.get("datatype") != "FP32":
        raise Refused(400, f"the input must have the name {INPUT} and the datatype FP32.")
    count = _count(entry.get("shape"), shape, rows)
    images = _images(entry, tail, count * pixels).reshape(count, *shape)
    if (wrong := wrong_pixels(images)) is not None:
        raise Refused(400, wrong)
    return Asked(images, name, _outputs(request))


def write(asked: Asked, answer: Answer, model: str, version: str) -> tuple[bytes, dict[str, str]]:
    """The body of the answer and its headers."""
    head: dict[str, Any] = {"model_name": model, "model_version": version}
    if asked.id is not None:
        head["id"] = asked.id
    outputs: list[dict[str, Any]] = []
    tail: list[bytes] = []
    for name, binary in asked.outputs.items():
        values: NDArray[Any] = answer.scores if name == "scores" else answer.scores.argmax(1)
        entry: dict[str, Any] = {"name": name, "datatype": OUTPUTS[name], "shape": list(values.shape)}
        if binary:
            raw = values.astype("<f4" if name == "scores" else "<i8", copy=False).tobytes()
            entry["parameters"] = {"binary_data_size": len(raw)}
            tail.append(raw)
        else:
            entry["data"] = values.ravel().tolist()
        outputs.append(entry)
    text = json.dumps({**head, "outputs": outputs}).encode()
    if not tail:
        return text, {"Content-Type": "application/json"}
    return b"".join([text, *tail]), {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(text))}


def metadata(model: str, version: str, platform: str, shape: tuple[int, ...], classes: int) -> dict[str, Any]:
    """What `v2/models/NAME` answers."""
    return {
        "name": model,
        "versions": [version],
        "platform": platform,
        "inputs": [{"name": INPUT, "datatype": "FP32", "shape": [-1, *shape]}],
        "outputs": [
            {"name": "scores", "datatype": "FP32", "shape": [-1, classes]},
            {"name": "label", "datatype": "INT64", "shape": [-1]},
        ],
    }


def _split(body: bytes, header_length: str | None) -> tuple[bytes, bytes]:
    if header_length is None:
        return body, b""
    if not (header_length.isascii() and header_length.isdigit()) or len(header_length) > 18:
        raise Refused(400, f"{HEADER_LENGTH} must be a whole number.")
    length = int(header_length)
    if length > len(body):
        raise Refused(400, f"{HEADER_LENGTH} says {length} bytes of JSON; the body has {len(body)} bytes in all.")
    return body[:length], body[length:]


def _parse(text: bytes, numbers: int) -> object:
    """The JSON value of a text with at most this many numbers; what would take long to read is refused first."""
    lists = max(text.count(b"[") + text.count(b"{"), text.count(b"]") + text.count(b"}"))
    if lists > MOST_LISTS:  # an empty list takes 22 times its bytes in memory
        raise Refused(400, f"the JSON has more than {MOST_LISTS:,} lists; send numbers as one flat list, or in binary.")
    if sum(map(text.count, (b",", b'"', b"\\"))) > numbers + SLACK:
        raise Refused(413, f"a request may have {numbers:,} numbers in JSON; send fewer rows, or send them in binary.")
    if lists > DEEPEST and _depth(text) > DEEPEST:
        raise Refused(400, f"the JSON is nested more than {DEEPEST} times.")
    try:
        return json.loads(text.decode("utf-8"), parse_constant=_no_constant)
    except ValueError:  # not UTF-8, not JSON, or an integer of thousands of digits
        raise Refused(400, "the request is not valid JSON.") from None


def _depth(text: bytes) -> int:
    """How deep a JSON text is nested, found without recursion.

    A parser that recurses to the limit of Python leaves no stack for what the garbage collector may call meanwhile.
    """
    brackets = STRING.sub(b"", text).translate(None, NO_BRACKETS)
    codes = np.frombuffer(brackets, np.uint8)
    opened = (codes == ord("[")) | (codes == ord("{"))
    return int(np.where(opened, 1, -1).cumsum().max(initial=0))


def _no_constant(name: str) -> NoReturn:
    raise Refused(400, f"{name} is not a number of JSON; pixels must be finite and in [0, 1].")


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(400, f"{what} must be a JSON object.")
    return value


def _parameters(entry: dict[str, Any]) -> dict[str, Any]:
    return _object(entry.get("parameters", {}), "parameters")


def _count(asked: object, shape: tuple[int, ...], rows: int) -> int:
    """The number of rows of the shape that a request states."""
    whole = isinstance(asked, list) and all(type(n) is int for n in asked)
    if not whole or not isinstance(asked, list) or tuple(asked[1:]) != shape or not asked:
        raise Refused(400, f"the shape must be {['n', *shape]} as a list of integers.".replace("'", ""))
    count: int = asked[0]
    if count < 1:
        raise Refused(400, "a request needs at least one row.")
    if count > rows:
        raise Refused(413, f"a request may have {rows} rows; send more in several requests.")
    return count


def _images(entry: dict[str, Any], tail: bytes, numbers: int) -> Images:
    """The numbers of the input, flat: from the bytes behind the JSON, or from the list in it."""
    size = _parameters(entry).get("binary_data_size")
    if size is None:
        if tail:
            raise Refused(400, "there are bytes behind the JSON, but the input has no binary_data_size.")
        return _listed(entry.get("data"), numbers)
    if "data" in entry:
        raise Refused(400, "the input has both data and binary_data_size; send one of them.")
    if type(size) is not int or size != 4 * numbers:
        raise Refused(400, f"binary_data_size must be {4 * numbers} bytes for this shape.")
    if len(tail) != size:
        raise Refused(400, f"binary_data_size says {size} bytes behind the JSON; {len(tail)} came.")
    return np.frombuffer(tail, "<f4").astype(np.float32, copy=False)


def _listed(data: object, numbers: int) -> Images:
    """Numbers of a flat or nested JSON list."""
    if not isinstance(data, list):
        raise Refused(400, "the input needs data, a list of numbers, or binary_data_size.")
    try:
        values = np.asarray(data)
    except (ValueError, OverflowError, RecursionError):  # ragged, or nested deeper than arrays may be
        raise Refused(400, "data must be a list of numbers, flat or with the shape of the input.") from None
    if values.dtype.kind not in "fiu":
        raise Refused(400, "data must be a list of numbers, flat or with the shape of the input.")
    if values.size != numbers:
        raise Refused(400, f"the shape needs {numbers} numbers; data has {values.size}.")
    with np.errstate(over="ignore"):  # becomes infinite, which is refused
        return values.astype(np.float32).ravel()


def _outputs(request: dict[str, Any]) -> dict[str, bool]:
    """The outputs that are wanted, and whether in binary. By default all of them."""
    usual = _flag(_parameters(request), "binary_data_output", False)
    listed = request.get("outputs")
    if listed is None or listed == []:
        return dict.fromkeys(OUTPUTS, usual)
    if not isinstance(listed, list) or len(listed) > len(OUTPUTS):
        raise Refused(400, f"outputs must be a list of at most {len(OUTPUTS)} entries.")
    wanted = {}
    for entry in listed:
        entry = _object(entry, "an output")
        name, parameters = entry.get("name"), _parameters(entry)
        if not isinstance(name, str) or name not in OUTPUTS:
            raise Refused(400, f"the outputs are {' and '.join(OUTPUTS)}; another name was asked for.")
        if "classification" in parameters or "shared_memory_region" in parameters:
            raise Refused(400, "classification and shared memory are not supported; ask for scores or label.")
        wanted[name] = _flag(parameters, "binary_data", usual)
    return wanted


def _flag(parameters: dict[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise Refused(400, f"{name} must be true or false.")
    return value
