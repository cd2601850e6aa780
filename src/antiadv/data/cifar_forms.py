"""The published forms of CIFAR: the files of a split become pixels and labels.

python_batches(key)      pickled batches; `key` names the labels
binary_rows(n)           rows of n label bytes and 3072 pixel bytes; the last label byte counts
png_sheets               PNG sheets, one image per row of pixels, and a JSON list of labels
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import numpy as np

from antiadv.core.errors import BadInput, reason
from antiadv.data import pairs, unpickling
from antiadv.data.dataset import Bytes, Ints
from antiadv.data.pictures import open_picture

Decode = Callable[[Mapping[str, bytes]], tuple[Bytes, Ints]]


def _planes(rows: Bytes) -> Bytes:
    """Convert [N, 3072], the red, green and blue planes, to [N, 32, 32, 3]."""
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def python_batches(key: bytes) -> Decode:
    def decode(files: Mapping[str, bytes]) -> tuple[Bytes, Ints]:
        batches = [_batch(name, content, key) for name, content in files.items()]
        return np.concatenate([_planes(x) for x, _ in batches]), np.concatenate([y for _, y in batches])

    return decode


def _batch(name: str, content: bytes, key: bytes) -> tuple[Bytes, Ints]:
    batch = unpickling.unpickle(name, content)
    if not isinstance(batch, dict) or not {b"data", key} <= set(batch):
        raise BadInput(f"{name} is a pickle, but not a CIFAR batch: it needs 'data' and {key.decode()!r}")
    x, y = batch[b"data"], batch[key]
    if not isinstance(x, unpickling.Array) or not isinstance(y, list) or not all(_is_label(label) for label in y):
        raise BadInput(f"{name} is a pickle, but its 'data' is no array or its {key.decode()!r} is no list of numbers")
    return x.pixels(name), np.array(y, np.int64)


def _is_label(value: object) -> bool:
    return type(value) is int and 0 <= value < 256


def binary_rows(label_bytes: int) -> Decode:
    def decode(files: Mapping[str, bytes]) -> tuple[Bytes, Ints]:
        row = label_bytes + 3072
        for name, content in files.items():
            if len(content) % row:
                raise BadInput(f"{name} is truncated: {len(content)} bytes are not a whole number of rows of {row}")
        rows = np.frombuffer(b"".join(files.values()), np.uint8).reshape(-1, row)
        return _planes(rows[:, label_bytes:]), rows[:, label_bytes - 1].astype(np.int64)  # the fine label is last

    return decode


def png_sheets(files: Mapping[str, bytes]) -> tuple[Bytes, Ints]:
    images = [_sheet(name, content) for name, content in files.items() if name.endswith(".png")]
    (labels,) = (name for name in files if name.endswith(".json"))
    try:
        y = np.array(json.loads(files[labels]))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{labels} is not a list of labels: {reason(error)}; get the package again") from error
    x = np.concatenate(images)
    return x, pairs.as_labels(y, len(x), labels)


def _sheet(name: str, content: bytes) -> Bytes:
    image = open_picture(content, name)
    if image.mode != "RGB" or image.width != 1024:
        raise BadInput(f"{name} is {image.mode}, {image.width} wide; a sheet is RGB with one image per row, 1024 wide")
    return np.asarray(image).reshape(-1, 32, 32, 3)
