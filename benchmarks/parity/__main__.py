"""The command `python -m benchmarks.parity`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import benchmarks.parity
from antiadv.core.errors import AntiadvError, BadInput
from antiadv.evaluation.resources import find_device
from benchmarks.files import parser, pick, run_each
from benchmarks.parity.compare import Facts, Setting, compare, worst
from benchmarks.parity.files import read, write
from benchmarks.parity.jobs import JOBS, Job


def perform(job: Job, out: Path, samples: int | None, how: Setting) -> Facts:
    """Run one job, store it, and return what is stored."""
    if job.kind != "worst":
        return read(write(compare(job, samples or job.samples, how), out))
    missing = [part for part in job.parts if not (out / f"{part}.json").exists()]
    if missing:
        raise BadInput(f"{job.name} is made of stored jobs; {', '.join(missing)} not found in {out}. Run them first.")
    return read(write(worst(job, [read(out / f"{part}.json") for part in job.parts]), out))


def summary(facts: Facts) -> str:
    """Return one line for the terminal."""
    parts = []
    for check in facts["verdict"]["checks"]:
        if "ratio" in check:
            parts.append(f"{check['what']}: ours {check['ours']}, theirs {check['theirs']}")
        else:
            ours, theirs = 100 * check["ours"]["value"], 100 * check["theirs"]["value"]
            parts.append(f"{check['what']}: ours {ours:.1f}, theirs {theirs:.1f}")
    ratio = "" if facts["seconds_ratio"] is None else f"; seconds, ours over theirs {facts['seconds_ratio']:.2f}"
    ending = "holds" if facts["verdict"]["holds"] else "DOES NOT HOLD"
    return f"{facts['job']}: {'; '.join(parts)} ({len(facts['ids'])} samples){ratio}; {ending}"


def list_jobs(jobs: Sequence[Job], out: Path) -> None:
    for job in jobs:
        stored = "stored" if (out / f"{job.name}.json").exists() else ""
        print(f"{job.name:45}  {job.model:18}  {job.samples:4}  {job.ours:45}  {stored}".rstrip())


def arguments() -> argparse.Namespace:
    p = parser(benchmarks.parity.__doc__, "parity")
    p.add_argument("--engine", choices=("eager", "fast"), default="eager", help="how our passes are made")
    return p.parse_args()


def main() -> int:
    a = arguments()
    try:
        chosen = pick(a.jobs, JOBS)
        if a.list:
            list_jobs(chosen, a.out)
            return 0
        if a.samples is not None and a.samples < 1:
            raise BadInput(f"--samples must be at least 1; found {a.samples}.")
        how = Setting(find_device(a.device), a.engine, a.seed, a.precision)
    except AntiadvError as error:
        print(f"parity: {error}", file=sys.stderr)
        return 2

    def run(job: Job) -> str:
        path = a.out / f"{job.name}.json"
        return summary(read(path) if path.exists() else perform(job, a.out, a.samples, how))

    return run_each("parity", chosen, run)


if __name__ == "__main__":
    sys.exit(main())
