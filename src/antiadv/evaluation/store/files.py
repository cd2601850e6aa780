"""Reading and writing one file of a store: bounded size, atomic writes, digests, errors that name the file."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from antiadv.core.bounds import TEXT
from antiadv.core.errors import AntiadvError, StoreMismatch, reason
from antiadv.core.files import atomic_write
from antiadv.evaluation.cell import FORMAT


def list_folder(folder: Path) -> list[str]:
    """The sorted names in a folder. A missing folder is empty; an unreadable folder is an error."""
    try:
        return sorted(path.name for path in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unreadable(folder, error) from error


def read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(TEXT + 1)
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(content) > TEXT:
        raise StoreMismatch(f"{path} is larger than {TEXT:,} bytes; no file of a store is. Move it away.")
    return content


def _unreadable(path: Path, error: OSError) -> StoreMismatch:
    """Not called damaged: the user would delete a file that is intact."""
    return StoreMismatch(
        f"{path} cannot be read ({error.strerror or error}). Make it readable, or choose another folder with --store, "
        "and run again."
    )


def write_bytes(path: Path, content: bytes) -> None:
    """Write a temporary file, flush it to disk and rename it: a reader sees the complete file or none."""
    with atomic_write(path) as part, open(part, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def check_format(path: Path, number: object) -> None:
    if number != FORMAT:
        raise StoreMismatch(f"{path} has format {number}; this version reads {FORMAT}. Use another store folder.")


def json_line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def digest(header: dict[str, Any], body: bytes = b"") -> str:
    return hashlib.sha256(json_line(header) + b"\n" + body).hexdigest()[:32]


def describe(error: Exception) -> str:
    """An error in a few words; the text of a foreign file can have any length."""
    return str(error)[:500] if isinstance(error, AntiadvError) else f"{type(error).__name__}: {reason(error)}"
