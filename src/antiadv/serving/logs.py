"""Structured logs: one JSON object per line, on stderr.

log("listening", url="http://127.0.0.1:8000")   →  {"time": "2026-01-01T12:00:00.000Z", "event": "listening", …}
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
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
