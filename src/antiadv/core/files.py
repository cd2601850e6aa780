"""Atomic writes: a file is complete or absent. It is written under another name and then renamed.

    with atomic_write(path) as part:    write to `part`; at the end it becomes `path`. After a failure nothing is left
    write_text(path, text)              the same for a text
    write_json(path, content)           the same for a JSON value
    write_entries(path, content)        the same for a JSON object, with a line for each entry
    sweep(folder)                       remove the parts that killed writers left

The name of a part says which process writes it. So the next writer in the same folder can see that the process is gone,
and removes the part.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_PART = re.compile(r"\..+\.(?:([0-9a-f]{8})-(\d+)-)?[0-9a-f]{32}\.tmp")
ABANDONED_AFTER_SECONDS = 3600.0  # no writer needs that long


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Write to the yielded path; at the end it is renamed to `path`. Makes missing folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)
    part = path.with_name(f".{path.name}.{_machine()}-{os.getpid()}-{uuid.uuid4().hex}.tmp")
    try:
        yield part
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):  # keep the first error
            part.unlink()


def write_text(path: Path, text: str) -> None:
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_entries(path: Path, content: Mapping[str, Any]) -> None:
    lines = [f" {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in content.items()]
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def sweep(folder: Path) -> None:
    """Remove the parts of writers that ended on this machine, or that began more than an hour ago."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            match = _PART.fullmatch(path.name)
            if match is not None and _abandoned(path, match[1], match[2]):
                path.unlink(missing_ok=True)


def _abandoned(part: Path, machine: str | None, pid: str | None) -> bool:
    if machine == _machine() and pid is not None and not _runs(int(pid)):
        return True
    with contextlib.suppress(OSError):
        return time.time() - part.stat().st_mtime > ABANDONED_AFTER_SECONDS
    return False


def _runs(pid: int) -> bool:
    if os.name != "posix":
        return True  # signal 0 is a real signal there
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it runs, as another user
        return True
    return True


@functools.cache
def _machine() -> str:
    """Eight digits for the place where process ids are unique: this boot of this machine, and this container."""
    facts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
    with contextlib.suppress(OSError):
        facts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:8]
