"""Unpickle the batches of CIFAR's python distribution without running code from them.

unpickle(name, content)   →  dictionaries, lists, numbers, texts, bytes, and `Array`s of bytes

A pickle names the functions to call. Five names are allowed, and each is replaced by a function of this module. Any
other name is refused.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, ClassVar  # Any: values of a pickle

import numpy as np

from antiadv.core.errors import BadInput, reason
from antiadv.data.dataset import Bytes


class Array:
    """Replaces numpy's array while a batch is unpickled. It only keeps the state; numpy never sees the pickle."""

    def __init__(self, *_: object) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def pixels(self, where: str) -> Bytes:
        """Return uint8 [N, 3072]. numpy's state is (version, shape, dtype, fortran order, bytes)."""
        try:
            _, shape, dtype, fortran, raw = self.state
            if not isinstance(dtype, _DType) or dtype.text not in ("u1", b"u1") or not isinstance(raw, bytes):
                raise ValueError("not an array of bytes")
            return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C").reshape(-1, 3072)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadInput(
                f"{where} is a pickle, but its 'data' is not N rows of 3072 bytes: {reason(error)}"
            ) from error


class _DType:
    """Replaces numpy's dtype."""

    def __init__(self, text: object = "", *_: object) -> None:
        self.text = text

    def __setstate__(self, state: object) -> None:
        """Ignore the state (byte order and alignment): bytes have none."""


def _encode(text: str, _: str) -> bytes:
    """Replaces `_codecs.encode`, with which Python 3 pickles bytes as Latin-1 text."""
    return text.encode("latin-1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): Array,
    ("numpy._core.multiarray", "_reconstruct"): Array,
    ("numpy", "ndarray"): Array,
    ("numpy", "dtype"): _DType,
    ("_codecs", "encode"): _encode,
}


def _key(key: object) -> str | bytes:
    if not isinstance(key, str | bytes):
        raise pickle.UnpicklingError(f"a key is {type(key).__name__}, not a text")
    return key


class _Unpickler(pickle._Unpickler):
    """Python's unpickler written in Python: the C version allocates memory for any memo number in the pickle.

    Only texts and bytes may be keys: hashing nested tuples can take exponential time.
    """

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]
    append: Callable[[Any], None]
    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-1][_key(key)] = value

    def load_setitems(self) -> None:
        items = self.pop_mark()
        self.stack[-1] |= {_key(key): value for key, value in zip(items[::2], items[1::2], strict=True)}

    def load_dict(self) -> None:
        items = self.pop_mark()
        self.append({_key(key): value for key, value in zip(items[::2], items[1::2], strict=True)})

    dispatch |= {pickle.SETITEM[0]: load_setitem, pickle.SETITEMS[0]: load_setitems, pickle.DICT[0]: load_dict}
    for _code in (pickle.EMPTY_SET, pickle.ADDITEMS, pickle.FROZENSET):
        del dispatch[_code[0]]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed")
        return _ALLOWED[module, name]


def unpickle(name: str, content: bytes) -> Any:
    """Return dictionaries, lists, numbers, texts, bytes and `Array`s. Nothing else is called."""
    try:
        return _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except BadInput:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise BadInput(f"{name} is refused as a CIFAR batch: {reason(error)}") from error
