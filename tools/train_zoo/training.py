"""Train the jobs, each in a process of its own, several at a time."""

from __future__ import annotations

import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING

from tools.train_zoo.jobs import Job, Place, log, shrunk

if TYPE_CHECKING:  # torch is imported in the child processes only
    from antiadv.train import Progress, Sets

SIMPLER = {"auto": "graph", "compiled graph": "graph", "compiled": "eager", "graph": "eager"}  # ways of running
REFUSED = 4  # exit status of a job that would fail again: a spec that cannot be read, a loss that is not a number


def command_of(job: Job, start: Path | None) -> str:
    """Return the command that a user would type. Of the ways of running only `mixed` changes the numbers."""
    first = f" --start {start.name}" if start else ""
    speed = " --speed mixed" if job.speed == "mixed" else ""
    return (
        f"antiadv train {job.recipe} --model {job.model} --data {job.data} --epochs {job.epochs} "
        f"--learning-rate {job.learning_rate}{first}{speed} --out {job.name}.safetensors"
    )


# ---------------------------------------------------------------- one job, in a child process


def train_job(job: Job, place: Place) -> None:
    """Train one network. Runs in a child process, and ends it with a status."""
    import torch

    from antiadv.core.errors import AntiadvError
    from antiadv.train import Settings, parse, train

    torch.set_num_threads(1 if place.tiny else 2)
    began = time.time()
    start = place.result(job.start) if job.start and place.done(job.start) else None
    log(f"[{job.name}] {command_of(job, start)}  ({place.speed})")
    try:
        card = train(
            parse(job.recipe),
            job.model,
            f"{job.data}:dir={place.data}",
            place.result(job.name),
            Settings(epochs=job.epochs, learning_rate=job.learning_rate, batch=64 if place.tiny else 512),
            start=start,
            partial=place.work / f"{job.name}.partial",
            save_every=place.save_every,
            device=place.device,
            speed=place.speed,  # type: ignore[arg-type]
            progress=progress_of(job),
            say=lambda text: log(f"[{job.name}] {text}"),
            command=command_of(job, start),
            load=loader_of(place),
        )
    except AntiadvError as error:
        log(f"[{job.name}] REFUSED: {error}")
        sys.exit(REFUSED)
    except BaseException:
        log(f"[{job.name}] FAILED\n{traceback.format_exc()}")
        sys.exit(1)
    accuracies = f"clean {100 * card.clean.share:.2f}, PGD-20 {100 * card.pgd20.share:.2f} of {card.pgd20.total}"
    log(f"[{job.name}] DONE in {time.time() - began:.0f} s: {accuracies}")


def progress_of(job: Job) -> Callable[[Progress], None]:
    def progress(p: Progress) -> None:
        log(
            f"[{job.name}] {p.phase} {p.epoch}/{p.epochs}  loss {p.loss:.3f}  acc {100 * p.accuracy:.1f}  "
            f"{p.images_per_second:,.0f} img/s  eta {p.left:.0f} s"
        )

    return progress


def loader_of(place: Place) -> Callable[[str], Sets]:
    """Return a loader of data sets, which are cut if the place is tiny."""
    from antiadv.train import read_sets

    def load(text: str) -> Sets:
        whole = read_sets(text)
        if not place.tiny:
            return whole
        n, m = place.tiny, place.tiny // 4
        return replace(whole, x=whole.x[:n], y=whole.y[:n], test_x=whole.test_x[:m], test_y=whole.test_y[:m])

    return load


# ---------------------------------------------------------------- all jobs


def ready(job: Job, asked: list[Job], failed: set[str], place: Place) -> bool:
    """Return whether the data of a job are there, and its first phase is trained or will never be."""
    has_data = all(
        (Path(place.data).expanduser() / f"{name}-{split}.json").exists()
        for name in job.needs
        for split in ("train", "test")
    )
    awaited = job.start in {j.name for j in asked} - failed and not place.done(job.start or "")
    return has_data and not awaited


@dataclass
class Queue:
    """The jobs that wait, run and failed, and the way of running of each."""

    jobs: list[Job]
    place: Place
    waiting: list[Job] = field(init=False)
    speeds: dict[str, str] = field(init=False)
    running: dict[str, tuple[Job, BaseProcess]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.waiting = [job for job in self.jobs if not self.place.done(job.name)]
        self.speeds = {job.name: job.speed or self.place.speed for job in self.jobs}

    def collect(self) -> None:
        """Remove the processes that ended. A job that failed waits again in a simpler way of running, if any."""
        for name, (job, process) in list(self.running.items()):
            if process.is_alive():
                continue
            process.join()
            del self.running[name]
            if process.exitcode != 0:
                self._retry(job, process.exitcode)

    def _retry(self, job: Job, status: int | None) -> None:
        simpler = SIMPLER.get(self.speeds[job.name])
        if status == REFUSED or simpler is None:
            self.failed.add(job.name)
            log(f"[{job.name}] given up (status {status})")
        else:
            self.speeds[job.name] = simpler
            self.waiting.insert(0, job)
            log(f"[{job.name}] status {status}; tries again, {simpler}")

    def start(self, parallel: int, make: Callable[..., BaseProcess]) -> None:
        """Start jobs that are ready, up to `parallel` processes. `make` makes a process."""
        able = [job for job in self.waiting if ready(job, self.jobs, self.failed, self.place)]
        for job in able[: parallel - len(self.running)]:
            self.waiting.remove(job)
            place = replace(self.place, speed=self.speeds[job.name])
            process = make(target=train_job, args=(shrunk(job, place), place))
            process.start()
            self.running[job.name] = (job, process)

    def stop(self) -> None:
        for name, (_, process) in self.running.items():
            process.terminate()
            process.join()
            log(f"[{name}] stopped; the next call goes on from its checkpoint")


def train_all(jobs: list[Job], place: Place, parallel: int, minutes: float) -> int:
    """Keep `parallel` processes busy until all is done or the time is up. Return how many jobs are not done."""
    context = multiprocessing.get_context("spawn")
    place.results.mkdir(parents=True, exist_ok=True)
    until, queue = time.time() + 60 * minutes, Queue(jobs, place)
    log(f"{len(queue.waiting)} of {len(jobs)} to train, {parallel} at a time, {minutes:g} minutes")
    while (queue.waiting or queue.running) and time.time() < until:
        queue.collect()
        queue.start(parallel, context.Process)
        time.sleep(0.5)
    queue.stop()
    left = [job.name for job in jobs if not place.done(job.name)]
    log(f"not done: {', '.join(left) or 'nothing'}; failed: {', '.join(queue.failed) or 'none'}")
    return len(left)
