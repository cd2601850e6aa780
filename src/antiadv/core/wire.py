"""Who pays for images that are sent twice: a classifier behind an address may have to repeat a request.

    with sending(again): …        the oracle's side: `again(places)` charges these images of the request once more
    request = current()           the classifier's side: the request that it is answering, or None
    request.take(n)               the places of its next n images in the request

The oracle charges every image before it is sent. Only the classifier knows that a connection broke and that it sends
some images again, so it asks here first. If a sample cannot pay, `BudgetSpent` is raised and nothing is sent.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar

Again = Callable[[Sequence[int]], None]


class Request:
    """One request of the oracle. The engine may pass it on in parts, in order; several threads may charge."""

    def __init__(self, again: Again, images: int) -> None:
        self._again, self._images, self._at, self._lock = again, images, 0, threading.Lock()

    def take(self, n: int) -> list[int]:
        """The places of the next n images. A defence that asks its base several times begins again."""
        places = [(self._at + i) % self._images for i in range(n)]
        self._at += n
        return places

    def charge(self, places: Sequence[int]) -> None:
        with self._lock:
            self._again(places)


_CURRENT: ContextVar[Request | None] = ContextVar("request of an oracle", default=None)


@contextlib.contextmanager
def sending(again: Again, images: int) -> Iterator[None]:
    """Let a classifier charge the images of this request again."""
    before = _CURRENT.set(Request(again, images))
    try:
        yield
    finally:
        _CURRENT.reset(before)


def current() -> Request | None:
    return _CURRENT.get()
