"""Find jobs by name, run them, and write results to JSON files.

pick("square-*,nes", JOBS)     the jobs with these names, in the order of JOBS
parser(text)                   the command line options that all benchmarks have
run_each("speed", jobs, run)   run each job and print its line; an error ends only its own job
put(facts, path)               write a JSON file with one line per key
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar  # Any: what a JSON file holds

from antiadv.core.errors import AntiadvError, BadSpec
from antiadv.core.files import atomic_write
from antiadv.engine.precision import PRECISIONS

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


def parser(text: str | None, folder: str) -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--list", action="store_true", help="list the jobs, and what is stored of each")
    p.add_argument("--jobs", default="*", help="names or patterns, separated by commas")
    p.add_argument("--device", default=None, help="cuda where there is a GPU, else cpu")
    p.add_argument("--precision", choices=PRECISIONS, default="float32", help="what all sides run in")
    p.add_argument("--samples", type=int, default=None, help="number of images; by default that of the job")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--out", type=Path, default=ROOT / "results" / folder)
    return p


def run_each(name: str, jobs: Iterable[J], run: Callable[[J], str]) -> int:
    """Run each job and print the line that it returns. → 1 if any failed: the others do not depend on it."""
    failed = 0
    for job in jobs:
        try:
            print(run(job), flush=True)
        except AntiadvError as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            failed = 1
    return failed


def put(facts: Mapping[str, Any], path: Path) -> Path:
    """Write the facts to the path. The file is written under another name and renamed, so it is never incomplete."""
    lines = [f" {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in facts.items()]
    with atomic_write(path) as part:
        part.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return path
