"""A process of its own that evaluates the exact toy, for tests that kill it.

    python -m tests.engine.driver STORE SHARD [--pause S] [--die-in-write N] [--wait FILE] [--keep-images]

--pause        seconds to rest after each stored shard, so that a killer can find it at work
--die-in-write SIGKILL itself inside the N-th file, when it is written beside and not yet renamed
--wait         say ready (FILE.PID), and start when this file appears
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

import torch

from antiadv.evaluate import Cell, Progress, evaluate
from tests.evaluate.probes import cell, world

SAMPLES = range(120)


def asked() -> list[Cell]:
    return [cell("pgd:steps=3", SAMPLES, threat="linf:4/255"), cell("square:steps=8", SAMPLES, threat="linf:4/255")]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    parser.add_argument("shard", type=int)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--die-in-write", type=int, default=0)
    parser.add_argument("--wait", type=Path)
    parser.add_argument("--keep-images", action="store_true")
    said = parser.parse_args()
    torch.set_num_threads(1)
    if said.die_in_write:
        die_in_write(said.die_in_write)
    cells = asked()
    if said.wait is not None:
        said.wait.with_suffix(f".{os.getpid()}").touch()
        while not said.wait.exists():
            time.sleep(0.002)

    def rest(p: Progress) -> None:
        time.sleep(said.pause)

    evaluate(cells, said.store, shard=said.shard, world=world(), keep_images=said.keep_images, progress=rest)


def die_in_write(count: int) -> None:
    """Replace the flush between writing and renaming by death, the count-th time it is reached."""
    flush, reached = os.fsync, iter(range(1, count))

    def fsync(fd: int) -> None:
        if next(reached, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        flush(fd)

    os.fsync = fsync  # type: ignore[assignment]


if __name__ == "__main__":
    main()
