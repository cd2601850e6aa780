"""The files of the speed benchmark: their names, and how they are read."""

from __future__ import annotations

import json
from pathlib import Path

from antiadv.core.errors import BadInput
from benchmarks.speed.jobs import JOBS, LATENCY, Lone, Race
from benchmarks.speed.setting import FORMAT, Facts, Setting


def stem(job: Race | Lone, how: Setting) -> str:
    """Return a file name for each way of running, such as `autoattack-compact-trades-cuda-tf32-compiled`.

    A number of queries that is not the job's own ends the name.
    """
    if job == LATENCY:
        return job.name
    parts = [job.name, how.device.type]
    if how.precision != "float32":
        parts.append(how.precision)
    if isinstance(job, Race):
        parts += [how.sides[-1]] * how.compiled
        if job.queries is not None and how.queries not in (None, job.queries):
            parts.append(str(how.queries))
    return "-".join(parts)


def job_of(stem: str) -> str | None:
    """Return the job of a file name; None if the file is not of this benchmark."""
    return next((name for name in JOBS if stem == name or stem.startswith((f"{name}-cpu", f"{name}-cuda"))), None)


def read(path: Path) -> Facts:
    try:
        facts: Facts = json.loads(path.read_text())
        if facts["format"] != FORMAT or facts["job"] not in JOBS or not path.stem.startswith(facts["job"]):
            raise ValueError(f"format {facts['format']}, job {facts['job']}")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise BadInput(f"{path} is not a stored benchmark ({error}). Delete it and run the job again.") from error
    return facts


def stored(folder: Path) -> list[Facts]:
    """Return every stored job of the folder in the order of JOBS, except latency, which has another format."""
    order = list(JOBS)
    paths = [path for path in sorted(folder.glob("*.json")) if path.stem != LATENCY.name and job_of(path.stem)]
    return sorted(map(read, paths), key=lambda facts: order.index(facts["job"]))
