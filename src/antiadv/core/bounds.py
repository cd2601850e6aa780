"""Limits for files from strangers: how much a file may hold before it is read.

A packed file of a few kilobytes can unpack to many gigabytes, and a header can announce any size. So sizes are compared
with these limits before anything is unpacked. Real files stay far below them.

    PIXELS      of one picture, as stored and as resized
    UNPACKED    bytes that any archive may unpack to; a larger archive may unpack to TIMES its own size
    TEXT        bytes of one JSON text: a card, a description of a cell, an unpacked shard of records
    RECORDS     in one shard
    WHOLE       counts and sample ids are smaller: below it every integer is exact as a float
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from antiadv.core.errors import BadInput

PIXELS = 2**26
UNPACKED, TIMES = 2**28, 20
TEXT = 2**25
RECORDS = 2**16
WHOLE = 2**53


def unpacked(size: int) -> int:
    """How many bytes an archive of this size may unpack to."""
    return max(UNPACKED, TIMES * size)


def check_zip(file: BinaryIO, path: Path) -> None:
    """Refuse a zip whose header announces too much. Python and torch read no more than announced. Rewinds `file`."""
    size = file.seek(0, 2)
    with zipfile.ZipFile(file) as archive:
        unpacked_size = sum(member.file_size for member in archive.infolist())
    file.seek(0)
    if unpacked_size > unpacked(size):
        raise too_large(path, size, unpacked_size)


def too_large(path: Path, size: int, unpacked_size: int) -> BadInput:
    return BadInput(
        f"{path} has {size:,} bytes and unpacks to {unpacked_size:,} or more; at most {unpacked(size):,} are read. "
        "Use the file as it was published, or arrays as .npy files, which are not packed."
    )


def read_text(path: Path, most: int = TEXT) -> str:
    """The text of a file of at most so many bytes. May raise OSError and UnicodeDecodeError."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise BadInput(f"{path} is larger than {most:,} bytes, which nothing of its kind needs; get the file again.")
    return content.decode()


def read_json(path: Path, most: int = TEXT) -> Any:
    """The content of a JSON file of at most so many bytes. May raise OSError, ValueError and RecursionError."""
    return json.loads(read_text(path, most), parse_constant=_no_number)


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number of JSON")


class Limited:
    """A stream that returns at most `most` bytes, and raises `error` if there are more."""

    def __init__(self, inner: BinaryIO, most: int, error: BadInput) -> None:
        self.inner, self.left, self.error = inner, most, error

    def read(self, size: int) -> bytes:
        content = self.inner.read(min(size, self.left + 1))
        self.left -= len(content)
        if self.left < 0:
            raise self.error
        return content
