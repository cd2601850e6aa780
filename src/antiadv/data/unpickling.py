"""The batches of CIFAR's python distribution, unpickled without running any code of theirs.

unpickle(name, content)   →  dictionaries, lists, numbers, texts, bytes, and `Array`s of bytes

A pickle names what is to be called. Five names are allowed, each with a stand-in of ours; any other is refused.
"""

from __future__ import annotations

import io
import pickle
from typing import Any  # what a pickle holds

import numpy as np

from antiadv.core.errors import BadInput
from antiadv.data.dataset import Bytes


class Array:
    """Stands in for numpy's array while a batch is unpickled: only its state is kept, numpy never sees the pickle."""

    def __init__(self, *_: object) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def pixels(self, where: str) -> Bytes:
        """uint8 [N, 3072]; numpy's state is (version, shape, dtype, fortran order, bytes)."""
        try:
            _, shape, dtype, fortran, raw = self.state
            if not isinstance(dtype, _DType) or dtype.text not in ("u1", b"u1") or not isinstance(raw, bytes):
                raise ValueError("not an array of bytes")
            return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C").reshape(-1, 3072)
        except (TypeError, ValueError) as error:
            raise BadInput(f"{where} is a pickle, but its 'data' is not N rows of 3072 bytes: {error}") from error


class _DType:
    """Stands in for numpy's dtype."""

    def __init__(self, text: object = "", *_: object) -> None:
        self.text = text

    def __setstate__(self, state: object) -> None:
        """Byte order and the like: one byte has none."""


def _encode(text: str, _: str) -> bytes:
    """What `_codecs.encode` does in a batch pickled by Python 3: bytes, written as Latin-1 text."""
    return text.encode("latin-1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): Array,
    ("numpy._core.multiarray", "_reconstruct"): Array,
    ("numpy", "ndarray"): Array,
    ("numpy", "dtype"): _DType,
    ("_codecs", "encode"): _encode,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which images and labels do not need")
        return _ALLOWED[module, name]


def unpickle(name: str, content: bytes) -> Any:
    """Dictionaries, lists, numbers, texts, bytes, and stand-ins for arrays of bytes. Nothing else is ever called."""
    try:
        return _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except BadInput:
        raise
    except Exception as error:  # a damaged pickle can fail in any way at all
        raise BadInput(f"{name} is refused as a CIFAR batch: {error or type(error).__name__}") from error
