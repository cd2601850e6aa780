"""What the benchmarks share: jobs found by name, and facts put on file.

pick("square-*,nes", JOBS)     the jobs so called, in the order of the list
put(facts, path)               a line for each thing said, written beside and renamed: a file is whole or absent
"""

from __future__ import annotations

import difflib
import fnmatch
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar  # Any: what a json file holds

from antiadv.core.errors import BadSpec
from antiadv.core.files import beside

J = TypeVar("J")


def pick(said: str, jobs: Mapping[str, J]) -> list[J]:
    """Names or patterns, with commas between."""
    wanted: set[str] = set()
    for text in filter(None, (part.strip() for part in said.split(","))):
        found = fnmatch.filter(jobs, text)
        if not found:
            near = ", ".join(difflib.get_close_matches(text, jobs, 3, 0.3))
            raise BadSpec(f"no job is called {text!r}; the nearest are {near or 'none'}. See --list.")
        wanted.update(found)
    return [job for name, job in jobs.items() if name in wanted]


def put(facts: Mapping[str, Any], path: Path) -> Path:
    lines = [f" {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in facts.items()]
    with beside(path) as part:
        part.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return path
