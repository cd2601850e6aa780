"""How a command starts: it imports the library first, and Ctrl-C or SIGTERM ends the process at once meanwhile.

C code that is being imported can lose the exception of Ctrl-C or turn it into another error. No work has started then,
so there is nothing to clean up.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import ParamSpec, TypeVar

from antiadv.core.errors import AntiadvError, BadInput, first_line
from antiadv.core.signals import handling

P = ParamSpec("P")
T = TypeVar("T")

# A thread that waits for another one spins so many rounds, then sleeps. PyTorch's default is so long that a process
# next to another one can become many times slower (docs/benchmarks.md). The limit is read when torch is imported.
WAITS, SPINS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"), "3000"

STOPPED, ENDED = 130, 143  # exit codes after Ctrl-C and SIGTERM: 128 + signal number
LARGEST = 2**63  # integers of torch and numpy are below


@contextmanager
def stoppable_at_once() -> Iterator[None]:
    """Make Ctrl-C and SIGTERM print one line and end the process. Ignored signals stay ignored."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with handling({number: _quit for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}):
        yield


def share_processors() -> None:
    """Make the threads of torch wait briefly, unless the environment says how they wait."""
    if not any(name in os.environ for name in WAITS):
        os.environ[WAITS[0]] = SPINS


def _quit(number: int, _: object) -> None:
    os.write(2, b"antiadv: stopped before any work\n")
    os._exit(128 + number)


@contextmanager
def _own_code_explained() -> Iterator[None]:
    """Turn an error out of the user's own code, such as a network, into one sentence. Others are bugs, and stay."""
    try:
        yield
    except (AntiadvError, OSError):
        raise
    except Exception as error:
        ours = tuple(map(str, (Path(__file__).parents[1], sys.prefix, sys.base_prefix, "<")))
        places = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
        if all(place.startswith(ours) for place in places):
            raise
        what = f"{type(error).__name__}: {first_line(error)}"
        raise BadInput(f"the network or another part of your own code raised {what}. --debug shows where.") from error


def verb(command: Callable[P, T]) -> Callable[P, T]:
    """Wrap a command: import the library first, refuse integers beyond 64 bits, and keep stdout for results."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with stoppable_at_once():
            import_module("antiadv.reporting")  # imports torch and most of the library
            from antiadv.cli import show
        for name, value in kwargs.items():
            if isinstance(value, int) and not -LARGEST <= value < LARGEST:
                raise BadInput(f"--{name.replace('_', '-')} must be between -2^63 and 2^63; found {value}.")
        with show.stdout_for_results(), _own_code_explained():
            return command(*args, **kwargs)

    return run
