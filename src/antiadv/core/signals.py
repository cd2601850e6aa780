"""Handle signals for the length of a block, and put the handlers from before back.

    with handling({signal.SIGTERM: end}): …

Only the main thread may set handlers. In any other thread the block runs as it is.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

Handler = Callable[[int, object], object]


@contextmanager
def handling(handlers: Mapping[int, Handler]) -> Iterator[None]:
    """Set these handlers, by the number of the signal."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)
