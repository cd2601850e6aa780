"""Read and write the file of a comparison."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any  # what a JSON file holds

from antiadv.core.errors import BadInput
from benchmarks.files import put
from benchmarks.parity.compare import FORMAT
from benchmarks.parity.verdict import verdict

Facts = dict[str, Any]


def write(facts: Facts, folder: Path) -> Path:
    """Write facts and verdict. Consecutive sample ids are written as "START:STOP"."""
    ids = facts["ids"]
    consecutive = ids == list(range(ids[0], ids[-1] + 1))
    content = {**facts, "ids": f"{ids[0]}:{ids[-1] + 1}" if consecutive else ids, "verdict": verdict(facts)}
    return put(content, folder / f"{facts['job']}.json")


def read(path: Path) -> Facts:
    try:
        facts: Facts = json.loads(path.read_text())
        if facts["format"] != FORMAT or facts["job"] != path.stem:
            raise ValueError(f"format {facts['format']}, job {facts['job']}")
        if isinstance(facts["ids"], str):
            facts["ids"] = list(range(*map(int, facts["ids"].split(":"))))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise BadInput(f"{path} is not a stored comparison ({error}). Delete it and run the job again.") from error
    return facts
