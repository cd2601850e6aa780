"""A file is whole or absent: it is written beside its place and renamed into it.

with beside(path) as part:      write to `part`; at the end it is `path`, and where that fails nothing is left of it
sweep(folder)                   remove the parts that killed writers left

A writer that is killed leaves its part. The name of a part says which process writes it, so that the next writer in the
same folder can tell that this process is gone, and removes it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

_PART = re.compile(r"\..+\.(?:([0-9a-f]{8})-(\d+)-)?[0-9a-f]{32}\.tmp")
OLD = 3600.0  # seconds: nobody takes so long between opening and renaming


@contextlib.contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Folders on the way are made; no two writers have one `part`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)
    part = path.with_name(f".{path.name}.{_here()}-{os.getpid()}-{uuid.uuid4().hex}.tmp")
    try:
        yield part
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):  # it is the first that is told
            part.unlink()


def sweep(folder: Path) -> None:
    """Remove the parts whose writer is gone: its process has ended here, or it began more than an hour ago."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            match = _PART.fullmatch(path.name)
            if match is not None and _left(path, match[1], match[2]):
                path.unlink(missing_ok=True)


def _left(part: Path, where: str | None, pid: str | None) -> bool:
    if where == _here() and pid is not None and not _runs(int(pid)):
        return True
    with contextlib.suppress(OSError):
        return time.time() - part.stat().st_mtime > OLD
    return False


def _runs(pid: int) -> bool:
    if os.name != "posix":
        return True  # there a signal 0 is no question
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it runs, and is somebody else's
        return True
    return True


@functools.cache
def _here() -> str:
    """Eight digits for where process ids mean the same: this machine since it was started, and this container."""
    said = [socket.gethostname()]
    with contextlib.suppress(OSError):
        said.append(Path("/proc/sys/kernel/random/boot_id").read_text())
    with contextlib.suppress(OSError):
        said.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:8]
