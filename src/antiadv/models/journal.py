"""Answers of an endpoint on disk, so that a run that was killed does not ask again what was answered.

    journal = Journal(path, name)      reads what an earlier run left; a journal of another name begins anew
    journal.take(key)                  the next answer that is kept for this image, or None
    journal.add(keys, answers)         append answers, complete or not at all
    journal.settle()                   forget the answers that this run took or added; removes an empty file

A run that begins anew asks every question again in the same order, because samples and random numbers are fixed. So an
image that was sent three times has three answers, and they are given in their order. At most LARGEST bytes are kept.
One process writes a journal at a time; a second one works without.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
import warnings
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from antiadv.core.files import atomic_write

try:
    import fcntl
except ImportError:  # not on every system; then nothing stops a second process
    fcntl = None  # type: ignore[assignment]

LARGEST = 2**31  # bytes of a journal
KEY = 16  # bytes of the hash of an image
HEAD = struct.Struct("<4sIII")  # mark, checksum of what follows, rows, scores in a row
MARK = b"rows"
MOST = 2**28  # bytes of one entry

Answers = NDArray[np.float32]


def key_of(image: NDArray[np.float32]) -> bytes:
    return hashlib.blake2b(image.astype("<f4").tobytes(), digest_size=KEY).digest()


class Journal:
    """See the head of this file. Several threads may add."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self._title = path, f"antiadv answers 1 {name}\n".encode()
        self._lock, self._full = threading.Lock(), False
        self._kept: dict[bytes, deque[tuple[int, int]]] = {}  # image → places of its answers in the file, and sizes
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO | None = path.open("a+b")
        if not self._alone():
            self._file.close()
            self._file = None
            return
        self._read(self._file)

    def _alone(self) -> bool:
        if fcntl is None or self._file is None:
            return True
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _read(self, file: BinaryIO) -> None:
        """Find the answers. The file is cut after the last complete entry: a killed writer may leave half of one."""
        file.seek(0)
        end = 0
        if file.read(len(self._title)) == self._title:
            end = len(self._title)
            for place, keys, scores in _entries(file):
                for row, key in enumerate(keys):
                    at = place + HEAD.size + KEY * len(keys) + 4 * scores * row
                    self._kept.setdefault(key, deque()).append((at, scores))
                end = file.tell()
        file.truncate(end)
        if end == 0:
            file.write(self._title)
        file.flush()

    def take(self, key: bytes) -> Answers | None:
        with self._lock:
            places = self._kept.get(key)
            if not places or self._file is None:
                return None
            at, scores = places.popleft()
            if not places:
                del self._kept[key]
            return self._answer(at, scores)

    def _answer(self, at: int, scores: int) -> Answers:
        assert self._file is not None
        self._file.seek(at)
        return np.frombuffer(self._file.read(4 * scores), "<f4").astype(np.float32)

    def add(self, keys: Sequence[bytes], answers: Answers) -> None:
        with self._lock:
            if self._file is None or self._full:
                return
            entry = _entry(keys, answers)
            if self._file.seek(0, os.SEEK_END) + len(entry) > LARGEST:
                self._full = True
                warnings.warn(
                    f"{self.path} holds {LARGEST:,} bytes of answers; later ones are not kept, and are asked again if "
                    "this run is stopped. Use smaller shards (--shard).",
                    stacklevel=2,
                )
                return
            self._file.write(entry)
            self._file.flush()

    def settle(self) -> None:
        """Called when the results of this run are stored. What another shard left stays."""
        with self._lock:
            if self._file is None:
                return
            rest = [(key, self._answer(*place)) for key, places in self._kept.items() for place in places]
            if rest:
                with atomic_write(self.path) as part:
                    part.write_bytes(self._title + b"".join(_entry([key], row[None]) for key, row in rest))
            else:
                self.path.unlink(missing_ok=True)
            self._file.close()
            self._file = None

    def close(self) -> None:
        """End without settling: the next run continues."""
        with self._lock:
            if self._file is not None:
                empty = self._file.seek(0, os.SEEK_END) <= len(self._title)
                self._file.close()
                self._file = None
                if empty:
                    self.path.unlink(missing_ok=True)


def _entry(keys: Sequence[bytes], answers: Answers) -> bytes:
    body = b"".join(keys) + answers.astype("<f4").tobytes()
    return HEAD.pack(MARK, zlib.crc32(body), len(keys), answers.shape[1]) + body


def _entries(file: BinaryIO) -> Iterator[tuple[int, list[bytes], int]]:
    """The place, the images and the scores in a row of each complete entry, from here to the first damaged one."""
    while True:
        place, head = file.tell(), file.read(HEAD.size)
        if len(head) < HEAD.size:
            return
        mark, checksum, rows, scores = HEAD.unpack(head)
        size = rows * (KEY + 4 * scores)
        if mark != MARK or size > MOST:
            return
        body = file.read(size)
        if len(body) < size or zlib.crc32(body) != checksum:
            return
        yield place, [body[i : i + KEY] for i in range(0, KEY * rows, KEY)], scores
