"""The command `python -m benchmarks.speed`."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

import benchmarks.speed
from antiadv.core.errors import AntiadvError, BadInput, BadSpec
from antiadv.evaluation.resources import find_device
from benchmarks import latency
from benchmarks.files import parser, pick, put, run_each
from benchmarks.parity.jobs import BATCH
from benchmarks.speed.ceiling import ceiling
from benchmarks.speed.files import job_of, read, stem
from benchmarks.speed.jobs import JOBS, LATENCY, SMALL_BATCH, STEPS, Lone, Race
from benchmarks.speed.overhead import overhead
from benchmarks.speed.race import compare
from benchmarks.speed.setting import SIDES, Facts, Setting, header, options_of
from benchmarks.speed.verdict import verdict

LATENCY_MODEL, LATENCY_REPEATS = "preact18:width=64", 30


def perform(job: Race | Lone, how: Setting, out: Path, log: Callable[[str], None] = lambda text: None) -> str:
    """Run and store one job unless it is stored. Return a line for the terminal."""
    path = out / f"{stem(job, how)}.json"
    if job == LATENCY:
        return perform_latency(how, path)
    before = read(path) if path.exists() else None
    if isinstance(job, Race):
        if before is None or unfinished(before, job, how):
            compare(job, how, log, lambda facts: put({**facts, "verdict": verdict(facts)}, path), before)
    elif before is None:
        facts = {"overhead": overhead, "ceiling": ceiling}[job.name](how, log)
        put({**facts, "verdict": verdict(facts)}, path)
    return summary(read(path))


def perform_latency(how: Setting, path: Path) -> str:
    if not path.exists():
        batches = list(latency.FASTER)
        put(
            latency.measure(LATENCY_MODEL, STEPS, batches, how.device, how.precision, LATENCY_REPEATS, how.compiled),
            path,
        )
    rows = json.loads(path.read_text())["batches"]
    each = (f"batch {b} {row['faster_than_authors']['median']:.2f} times faster" for b, row in rows.items())
    return f"latency: {', '.join(each)}"


def unfinished(before: Facts, race: Race, how: Setting) -> bool:
    """Return whether repeats are missing and everything that decides their times is as it was."""
    due = header(how.race(race), replace(how, repeats=before["repeats"]), how.samples_of(race))
    same = all(before[key] == due[key] for key in ("device", "model", "layer", "threat"))
    same = same and options_of(before["command"]) == options_of(due["command"])
    return same and before["repeats"] < how.repeats


def summary(facts: Facts) -> str:
    """Return one line for the terminal."""
    found, ending = facts["verdict"], "met" if facts["verdict"]["met"] else "NOT MET"
    if facts["kind"] == "overhead":
        most, target = 100 * found["worst"], 100 * facts["target"]
        return f"{facts['job']}: at most {most:.1f} %, target below {target:g} %; {ending}"
    if facts["kind"] == "ceiling":
        each = (f"{name} {row['median']:.2f}" for name, row in found["shares"].items())
        return f"{facts['job']}: {', '.join(each)} of a matrix product's speed; at most {found['most']:g} times faster"
    parts = []
    for side, row in found["sides"].items():
        t = row["times_faster"]
        parts.append(f"{side} {t['median']:.2f} times faster [{t['low']:.2f}, {t['high']:.2f}]")
        parts.append("as strong" if row["strong"] else "WEAKER")
    goal = "no target" if facts["target"] is None else f"target {facts['target']:g}"
    return f"{facts['job']} ({len(facts['ids'])} samples, {facts['device']}): {', '.join(parts)}; {goal}; {ending}"


def meant_for(device: str, jobs: Sequence[Race | Lone]) -> list[Race | Lone]:
    found = [job for job in jobs if job.target(device) is not None]
    if not found:
        raise BadSpec(f"{', '.join(job.name for job in jobs)} is not meant for {device}. Say another --device.")
    return found


def list_jobs(jobs: Sequence[Race | Lone], out: Path) -> None:
    for job in jobs:
        where = ", ".join(device for device in ("cuda", "cpu") if job.target(device) is not None)
        stems = (path.stem for path in sorted(out.glob(f"{job.name}*.json")))
        files = ", ".join(stem for stem in stems if job_of(stem) == job.name)
        print(f"{job.name:45}  {where:10}  {files}".rstrip())


def arguments() -> argparse.Namespace:
    p = parser(benchmarks.speed.__doc__, "bench")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--within", type=float, default=math.inf, help="seconds; no repeat of a job begins that ends later")
    p.add_argument("--queries", type=int, default=None, help="per sample, for NES, Bandits and overhead")
    p.add_argument("--batch", type=int, default=None, help=f"images at once: {BATCH} on a GPU, {SMALL_BATCH} on a CPU")
    p.add_argument("--threads", type=int, default=None, help="of the CPU: one is timed by processor, more by the wall")
    p.add_argument("--sides", default="ours", help=f"of {', '.join(SIDES)}, separated by commas")
    return p.parse_args()


def setting(a: argparse.Namespace) -> Setting:
    """Check the arguments and return how to run. Sets the number of threads of this process."""
    for name in ("repeats", "samples", "queries", "batch", "threads"):
        if getattr(a, name) is not None and getattr(a, name) < 1:
            raise BadInput(f"--{name} must be at least 1; found {getattr(a, name)}.")
    sides = tuple(a.sides.split(","))
    if unknown := set(sides) - set(SIDES):
        raise BadSpec(f"there is no side {', '.join(sorted(unknown))}; known are {', '.join(SIDES)}.")
    device = find_device(a.device)
    if a.threads is not None:
        torch.set_num_threads(a.threads)
    return Setting(device, a.precision, a.repeats, sides, a.samples, a.queries, a.batch, a.seed, a.within)


def main() -> int:
    a = arguments()
    try:
        chosen = pick(a.jobs, JOBS)
        if a.list:
            list_jobs(chosen, a.out)
            return 0
        how = setting(a)
        chosen = meant_for(how.device.type, chosen)
    except AntiadvError as error:
        print(f"speed: {error}", file=sys.stderr)
        return 2

    def log(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    return run_each("speed", chosen, lambda job: perform(job, how, a.out, log))


if __name__ == "__main__":
    sys.exit(main())
