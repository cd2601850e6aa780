"""How much a file may ask for before it is read: the limits for files that may come from anybody, in one place.

A packed file of a few kilobytes can ask for many gigabytes, and a header can claim any size. So what a file would take
is compared with these limits before it is unpacked. They are far above what real files need.

    PIXELS      of one picture, as it lies in the file and as it is resized
    UNPACKED    bytes that any archive may unpack to, however small it is; a larger archive may grow TIMES its own size
    TEXT        bytes of one json: a card, a description of a cell, an unpacked shard of records
    RECORDS     in one shard
    WHOLE       no count and no sample id is as large: every whole number below it is a float too
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import BinaryIO

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
    """What a zip says it holds; Python and torch read no more of a member than is said there. `file` is left at 0."""
    size = file.seek(0, 2)
    with zipfile.ZipFile(file) as archive:
        held = sum(member.file_size for member in archive.infolist())
    file.seek(0)
    if held > unpacked(size):
        raise too_large(path, size, held)


def too_large(path: Path, size: int, held: int) -> BadInput:
    return BadInput(
        f"{path} has {size:,} bytes and unpacks to {held:,} or more; at most {unpacked(size):,} are read. "
        "Use the file as it was published, or arrays as .npy files, which are not packed."
    )


def read_text(path: Path) -> str:
    """The text of a json file that may not be larger than TEXT; OSError and UnicodeDecodeError as ever."""
    with path.open("rb") as file:
        content = file.read(TEXT + 1)
    if len(content) > TEXT:
        raise BadInput(f"{path} is larger than {TEXT:,} bytes, which nothing of its kind needs; get the file again.")
    return content.decode()


class Limited:
    """A stream to read from, of which at most `most` bytes are given out; more is an error."""

    def __init__(self, inner: BinaryIO, most: int, error: BadInput) -> None:
        self.inner, self.left, self.error = inner, most, error

    def read(self, size: int) -> bytes:
        found = self.inner.read(min(size, self.left + 1))
        self.left -= len(found)
        if self.left < 0:
            raise self.error
        return found
