"""Group rows, levels and other parts of a report by a key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def grouped(parts: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The parts by key, both in the order in which they come.

    >>> grouped("abAB", str.lower)
    {'a': ['a', 'A'], 'b': ['b', 'B']}
    """
    found: dict[K, list[T]] = {}
    for part in parts:
        found.setdefault(key(part), []).append(part)
    return found
