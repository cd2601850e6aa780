"""How a verb starts: what it needs is imported first, and while that lasts a signal ends the process at once.

Imported code in C can swallow the exception of Ctrl-C and go on, or turn it into another error. Nothing has begun yet,
so there is nothing to tidy up.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import ParamSpec, TypeVar

from antiadv.core.errors import BadInput

P = ParamSpec("P")
T = TypeVar("T")

STOPPED, ENDED = 130, 143  # by Ctrl-C and by SIGTERM: 128 and the signal's number
LARGEST = 2**63  # what torch and numpy can count to


@contextmanager
def stoppable_at_once() -> Iterator[None]:
    """Ctrl-C or SIGTERM: one line, and the process ends. A signal that the caller ignores stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ours = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    for number in ours:
        signal.signal(number, _quit)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _quit(number: int, _: object) -> None:
    os.write(2, b"antiadv: stopped; nothing was begun\n")
    os._exit(128 + number)


def verb(command: Callable[P, T]) -> Callable[P, T]:
    """The same command: torch and the library are imported before it, its numbers fit into 64 bits, and its results
    are kept apart."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with stoppable_at_once():
            import_module("antiadv.reporting")  # which imports torch and most of the library
            from antiadv.cli import show
        for name, value in kwargs.items():
            if isinstance(value, int) and not -LARGEST <= value < LARGEST:
                raise BadInput(f"--{name.replace('_', '-')} must be less than 2^63 in size; found {value}.")
        with show.apart():
            return command(*args, **kwargs)

    return run
