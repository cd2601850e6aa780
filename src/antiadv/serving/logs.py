"""Structured logs: one JSON object per line, on stderr.

log("listening", url="http://127.0.0.1:8000")   →  {"time": "2026-01-01T12:00:00.000Z", "event": "listening", …}
with libraries(log): …                           what uvicorn and asyncio say becomes events too, called `library`
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TextIO

Log = Callable[..., None]


def to(stream: TextIO | None = None) -> Log:
    """A log that writes to this stream. Values are JSON values; text of clients is escaped, so a line stays a line."""

    def log(event: str, **facts: object) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        where = sys.stderr if stream is None else stream
        where.write(json.dumps({"time": now, "event": event, **facts}) + "\n")
        where.flush()

    return log


def silent(event: str, **facts: object) -> None:
    """No log."""


def without_requests(log: Log) -> Log:
    """The same log, of events only."""

    def quiet(event: str, **facts: object) -> None:
        if event != "request":
            log(event, **facts)

    return quiet


class _Events(logging.Handler):
    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        trace = {} if error is None else {"trace": "".join(traceback.format_exception(error))}
        self._log("library", name=record.name, level=record.levelname.lower(), text=record.getMessage(), **trace)


@contextlib.contextmanager
def libraries(log: Log) -> Iterator[None]:
    """See the head of this file."""
    handler, loggers = _Events(log), [logging.getLogger(name) for name in ("uvicorn", "asyncio")]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagate in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagate
