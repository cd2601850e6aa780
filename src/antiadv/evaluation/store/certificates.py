"""The folder of a certified run: `run.json`, `probe.json`, and files of certificates in JSON lines.

    run.json         everything that can change a certificate (`identity`), and the command
    000000.jsonl     line 1 is a header with a digest; then one certificate a line, in the order in which they were made

The folder is named by the hash of the identity. Each call of `antiadv certify` writes files of its own, named by their
first sample. A file is written again, complete, after every sample: a killed run loses the sample in progress. Calls
for different samples may write to the same folder at once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from antiadv.core.bounds import WHOLE
from antiadv.core.errors import StoreMismatch
from antiadv.evaluation.cell import FORMAT, Identity, key_of
from antiadv.evaluation.certify import Certificate
from antiadv.evaluation.store.files import describe, digest, json_line, list_folder, read_bytes, write_bytes

RUN = "run.json"
MOST = 1000  # certificates in a file
_NAME = re.compile(r"(\d{6,})\.jsonl")


def write_run(folder: Path, identity: Identity, command: str | None) -> None:
    """Describe the run in its folder. An existing description must be the same."""
    path = folder / RUN
    if not path.exists():
        content = {"format": FORMAT, "key": folder.name, "command": command, "identity": identity}
        write_bytes(path, json.dumps(content, indent=1).encode() + b"\n")
        return
    try:
        content = json.loads(read_bytes(path))
        same = content["identity"] == identity and content["key"] == folder.name
    except (ValueError, LookupError, TypeError, RecursionError):
        same = False
    if not same:
        raise StoreMismatch(f"{path} describes another run, or was edited. Move its folder away, and run again.")


def read_run(folder: Path) -> Identity | None:
    """Everything that can change the certificates of this folder; None if it describes no run."""
    if RUN not in list_folder(folder):
        return None
    try:
        content = json.loads(read_bytes(folder / RUN))
        identity = content["identity"]
        if content["key"] != folder.name or key_of(identity) != folder.name:
            raise ValueError("it was edited, or belongs to another folder")
        return {str(name): value for name, value in identity.items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise StoreMismatch(f"{folder / RUN} describes no run ({describe(error)}). Delete its folder.") from None


def read_certificates(folder: Path) -> dict[int, Certificate]:
    """All certificates of the folder, by sample."""
    paths = [folder / name for name in list_folder(folder) if _NAME.fullmatch(name)]
    return {record.sample: record for path in paths for record in _read(path)}


def write_certificates(folder: Path, records: Sequence[Certificate]) -> None:
    """Write one file, at most MOST certificates, named by the first."""
    body = b"\n".join(json_line(asdict(record)) for record in records)
    header = {"format": FORMAT, "key": folder.name, "records": len(records)}
    head = json_line({**header, "digest": digest(header, body)})
    write_bytes(folder / f"{records[0].sample:06d}.jsonl", head + b"\n" + body + b"\n")


def _read(path: Path) -> list[Certificate]:
    try:
        head, _, rest = read_bytes(path).partition(b"\n")
        header, body = json.loads(head), rest.removesuffix(b"\n")
        stored = header.pop("digest")
        if stored != digest(header, body) or header["key"] != path.parent.name or header["format"] != FORMAT:
            raise ValueError("it was edited, or belongs to another run")
        return [_certificate(json.loads(line)) for line in body.split(b"\n")]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise StoreMismatch(f"{path} holds no certificates ({describe(error)}). Delete it and run again.") from None


def _certificate(content: Any) -> Certificate:
    """A certificate with the right types: tables add its numbers."""
    record = Certificate(**content)
    counts = record.sample, record.label, record.guess, record.votes
    if not all(type(value) is int and 0 <= value < WHOLE for value in counts):
        raise ValueError("some of its counts are not whole numbers")
    if not all(type(value) in (int, float) and 0 <= value < math.inf for value in (record.lower, record.radius)):
        raise ValueError("some of its numbers are not numbers")
    return record
