"""What the server accepts, and how it refuses the rest: a status and one sentence.

Limits      sizes and times; the defaults suit pictures of a few hundred pixels on one machine
Refused     raised where a request is refused; app.py turns it into {"error": sentence}
Room        counts the bytes of bodies in memory, over all requests
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from antiadv.core.errors import BadInput

RETRY_AFTER = 1  # seconds: a full queue is served in less
LONGEST = 86_400  # seconds
MOST_ROWS = 2**20
MOST_VALUES = 2**28  # pixels of one batch: 1 GiB


class Refused(Exception):
    """A request that is not answered. `status` is the HTTP status, the text is one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": str(RETRY_AFTER)} if self.status == 503 else {}


@dataclass(frozen=True)
class Limits:
    """`batch` and `wait` shape batches. Everything beyond the others is refused."""

    batch: int = 32  # rows in one pass of the network
    wait: float = 0.002  # seconds that the first row of a batch waits for others
    rows: int = 256  # in one request
    queue: int = 512  # rows that wait
    body: int = 64 * 2**20  # bytes of one request
    bodies: int = 512 * 2**20  # bytes of all requests in memory
    read: float = 20.0  # seconds for a body to arrive
    answer: float = 60.0  # seconds from the queue to the answer
    drain: float = 0.5  # seconds between SIGTERM and the end of listening

    def __post_init__(self) -> None:
        for names, most in ((("batch", "rows", "queue"), MOST_ROWS), (("read", "answer"), LONGEST)):
            for name in names:
                if not 0 < getattr(self, name) <= most:
                    raise BadInput(f"the limit {name} must be above 0, at most {most:,}; found {getattr(self, name)}.")
        for name in ("body", "bodies"):
            if not getattr(self, name) > 0:
                raise BadInput(f"the limit {name} must be above 0; found {getattr(self, name)}.")
        for name in ("wait", "drain"):
            if not 0 <= getattr(self, name) < 3600:
                raise BadInput(f"{name} is in seconds, from 0 to 3600; found {getattr(self, name)}.")
        if self.rows > self.queue:
            raise BadInput(f"a request may have {self.rows} rows, but the queue holds {self.queue}. Raise the queue.")


def check_batch(batch: int, shape: tuple[int, ...]) -> None:
    """Refuse batches that need a GiB or more for their pixels alone, before any memory is taken."""
    if batch * math.prod(shape) > MOST_VALUES:
        raise BadInput(
            f"a batch of {batch} images of shape {','.join(map(str, shape))} has more than {MOST_VALUES:,} values. "
            "Lower --batch, or give the right --shape."
        )


class Room:
    """The bytes of all bodies in memory. They are counted as they arrive, before they are kept."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self.taken = limits, 0

    def check_length(self, text: str | None) -> None:
        """Refuse by the stated length, before anything is read."""
        if text is None:
            return
        if not (text.isascii() and text.isdigit()) or len(text) > 18:
            raise Refused(400, "Content-Length must be a whole number.")
        if int(text) > self._limits.body:
            raise self._too_large()

    @contextmanager
    def body(self) -> Iterator[_Body]:
        """A body to be filled; its bytes are given back at the end of the block."""
        body = _Body(self)
        try:
            yield body
        finally:
            self.taken -= body.size

    def take(self, size: int, total: int) -> None:
        if total > self._limits.body:
            raise self._too_large()
        if self.taken + size > self._limits.bodies:
            raise Refused(503, "the server holds as many requests as it has memory for; try again soon.")
        self.taken += size

    def _too_large(self) -> Refused:
        return Refused(413, f"a request may have {self._limits.body} bytes; send fewer rows, in several requests.")


class _Body:
    """One body: its parts, and how many bytes they are."""

    def __init__(self, room: Room) -> None:
        self._room, self._parts, self.size = room, list[bytes](), 0

    def add(self, part: bytes) -> None:
        self._room.take(len(part), self.size + len(part))
        self._parts.append(part)
        self.size += len(part)

    def joined(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
