"""Find jobs by name, and write results to JSON files.

pick("square-*,nes", JOBS)     the jobs with these names, in the order of JOBS
put(facts, path)               write a JSON file with one line per key
"""

from __future__ import annotations

import difflib
import fnmatch
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar  # Any: what a JSON file holds

from antiadv.core.errors import BadSpec
from antiadv.core.files import atomic_write

ROOT = Path(__file__).resolve().parents[1]  # of the repository

J = TypeVar("J")


def pick(patterns: str, jobs: Mapping[str, J]) -> list[J]:
    """Return the jobs that match any of the names or patterns, which are separated by commas."""
    wanted: set[str] = set()
    for pattern in filter(None, (part.strip() for part in patterns.split(","))):
        found = fnmatch.filter(jobs, pattern)
        if not found:
            near = ", ".join(difflib.get_close_matches(pattern, jobs, 3, 0.3))
            raise BadSpec(f"no job is called {pattern!r}; the nearest are {near or 'none'}. See --list.")
        wanted.update(found)
    return [job for name, job in jobs.items() if name in wanted]


def put(facts: Mapping[str, Any], path: Path) -> Path:
    """Write the facts to the path. The file is written under another name and renamed, so it is never incomplete."""
    lines = [f" {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in facts.items()]
    with atomic_write(path) as part:
        part.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return path
