"""A file is whole or absent: it is written beside its place and renamed into it.

with beside(path) as part:      write to `part`; at the end it is `path`, and where that fails nothing is left of it
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Folders on the way are made; no two writers have one `part`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield part
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):  # it is the first that is told
            part.unlink()


def first_line(error: BaseException) -> str:
    """What a reader of files says is wrong, short enough for a sentence."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")[:300]
