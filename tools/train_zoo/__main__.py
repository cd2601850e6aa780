"""The command `python -m tools.train_zoo`."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

import tools.train_zoo
from tools.train_zoo.budget import budget
from tools.train_zoo.jobs import JOBS, Place
from tools.train_zoo.packing import pack
from tools.train_zoo.sheets import unpack
from tools.train_zoo.training import train_all

KNOWN = {job.name: job for job in JOBS}


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        description=tools.train_zoo.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--sheets", type=Path, help="folder of WebP sheets and labels to unpack into --data")
    p.add_argument("--data", default="/tmp/zoo/data", help="folder that antiadv.data reads")
    p.add_argument("--jobs", help=f"all, or some of: {', '.join(KNOWN)}")
    p.add_argument("--parallel", type=int, default=3)
    p.add_argument("--minutes", type=float, default=60.0)
    p.add_argument("--work", type=Path, default=Path("/tmp/zoo"), help="checkpoints and results; outlives a call")
    p.add_argument("--out", type=Path, help="where --pack puts its parts")
    p.add_argument("--pack", action="store_true")
    p.add_argument("--budget-check", action="store_true")
    p.add_argument("--processes", default="1,3,6", help="for --budget-check")
    p.add_argument("--speeds", default="graph,compiled graph,eager", help="for --budget-check")
    p.add_argument("--speed", default="auto")
    p.add_argument("--scale", type=float, default=1.0, help="factor of every job's epochs; the same in every call")
    p.add_argument("--save-every", type=int, default=5)
    p.add_argument("--device")
    p.add_argument("--tiny", type=int, default=0, help="use so many images and tiny networks: to try this program")
    return p


def main() -> int:
    p = parser()
    a = p.parse_args()
    place = Place(a.data, a.work, a.device, a.speed, a.save_every, a.tiny)
    names = list(KNOWN) if a.jobs in (None, "all") else a.jobs.split(",")
    if unknown := [name for name in names if name not in KNOWN]:
        p.error(f"no job is called {', '.join(unknown)}; known: {', '.join(KNOWN)}")
    if a.pack and not a.out:
        p.error("--pack needs --out")
    jobs = [replace(KNOWN[name], epochs=max(1, round(a.scale * KNOWN[name].epochs))) for name in names]
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")  # of each child process, since several compile at once
    if a.sheets:
        unpack(a.sheets, Path(a.data))
    left = 0
    if a.budget_check:
        chosen = jobs if a.jobs else [KNOWN["compact-cifar10-trades"], KNOWN["wrn16-4-cifar10-trades"]]
        budget(chosen, place, [int(n) for n in a.processes.split(",")], a.speeds.split(","))
    elif a.jobs:
        left = train_all(jobs, place, a.parallel, a.minutes)
    if a.pack:
        pack(place, a.out)
    return 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
