"""What a notebook shows: a bar while a long call runs, and small tables.

`bar` gives None anywhere but in a notebook, and inside another bar: then only the outer one is shown.
"""

from __future__ import annotations

import contextlib
import html
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from antiadv.core.printable import printable

EVERY = 0.2  # seconds between two changes of a bar

Show = Callable[[str, int | None, int | None], None]  # what is done, in words, and how many of how many
Pairs = Sequence[tuple[str, str]]

_SHOWN: ContextVar[bool] = ContextVar("shown", default=False)


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this program. IPython is not imported for it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


@contextlib.contextmanager
def bar() -> Iterator[Show | None]:
    """Show a bar below the cell: `show("8 of 64 samples", 8, 64)` changes it, at most a few times a second."""
    if _SHOWN.get() or not in_notebook():
        yield None
        return
    ipython = import_module("IPython.display")
    before, last = _SHOWN.set(True), 0.0
    handle: Any = ipython.display(ipython.HTML(_drawn("starting", None, None)), display_id=True)

    def show(text: str, done: int | None = None, total: int | None = None) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            handle.update(ipython.HTML(_drawn(text, done, total)))

    try:
        yield show
    finally:
        _SHOWN.reset(before)
        handle.update(ipython.HTML(""))


def _drawn(text: str, done: int | None, total: int | None) -> str:
    known = f' value="{done}" max="{total}"' if done is not None and total else ""
    return f"<progress{known}></progress> {html.escape(printable(text))}"


def lines(pairs: Pairs) -> str:
    """
    >>> print(lines([("robust", "7"), ("broken by the attack", "5")]))
    robust                7
    broken by the attack  5
    """
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name:{width}}  {value}" for name, value in pairs)


def html_lines(pairs: Pairs) -> str:
    """
    >>> html_lines([("attack", "<b>")])
    '<table><tr><th>attack</th><td>&lt;b&gt;</td></tr></table>'
    """
    cells = ((html.escape(printable(text)) for text in pair) for pair in pairs)
    return "<table>" + "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in cells) + "</table>"
