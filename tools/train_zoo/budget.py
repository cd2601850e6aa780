"""Measure how many images per second can be trained, to plan the time of a call."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from dataclasses import replace

from tools.train_zoo.jobs import Job, Place, log, shrunk

Result = tuple[str, float, float]  # job, seconds until it was ready, images per second


def budget(jobs: list[Job], place: Place, processes: list[int], speeds: list[str]) -> None:
    """Print a table: every way of running in one process, then several processes of the first job."""
    context = multiprocessing.get_context("spawn")
    rows = []
    plan = [(job, speed, 1) for job in jobs for speed in speeds]
    plan += [(jobs[0], speeds[0], count) for count in processes if count > 1]
    for job, speed, count in plan:
        queue: multiprocessing.Queue[Result] = context.Queue()
        args = (shrunk(job, place), replace(place, speed=speed), 100 if not place.tiny else 5, queue)
        group = [context.Process(target=measure, args=args) for _ in range(count)]
        for process in group:
            process.start()
        found = [queue.get() for _ in group]
        for process in group:
            process.join()
        rate, prepared = sum(f[2] for f in found), max(f[1] for f in found)
        rows.append(
            f"{job.name:32} {speed:15} {count} process(es): ready in {prepared:5.1f} s, "
            f"{rate:10,.0f} img/s in all, {50_000 / max(rate, 1e-9):6.2f} s per epoch"
        )
        log(rows[-1])
    print("\n".join(rows), flush=True)


def measure(job: Job, place: Place, steps: int, queue: multiprocessing.Queue[Result]) -> None:
    """Put the speed of one process on the queue; 0 if it fails. Runs in a child process."""
    try:
        queue.put((job.name, *time_steps(job, place, steps)))
    except BaseException:
        log(f"[{job.name}] FAILED\n{traceback.format_exc()}")
        queue.put((job.name, 0.0, 0.0))


def time_steps(job: Job, place: Place, steps: int) -> tuple[float, float]:
    """Train for some steps on random images. Return the seconds of preparing, and images per second after it."""
    import torch

    from antiadv import models
    from antiadv.train import Settings, parse
    from antiadv.train.loop import placed, with_classes
    from antiadv.train.step import Step, accelerate, schedule

    torch.set_num_threads(1 if place.tiny else 2)
    n, classes = place.tiny or 50_000, 10 if job.data == "cifar10" else 100
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (n, 32, 32, 3), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, classes, (n,), generator=generator)
    at = torch.device(place.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    settings = Settings(epochs=1, batch=64 if place.tiny else 512)
    net = placed(models.build(with_classes(job.model, classes)), at)
    step = Step(net, parse(job.recipe).phases()[0].recipe, images.to(at), labels.to(at), settings)
    knobs, rows = schedule(step.steps, settings, 0.1).to(at), step.order(0, 0)
    step.draw(rows[: step.size], knobs[0], 0, 0, 0)
    torch.backends.cudnn.benchmark = True
    began = time.time()
    go = accelerate(step, place.speed, lambda text: log(f"[{job.name}] {text}"))  # type: ignore[arg-type]
    step.read_sums()
    prepared, began = time.time() - began, time.time()
    for k in range(steps):
        j = k % step.steps
        step.draw(rows[j * step.size : (j + 1) * step.size], knobs[j], 0, 0, k)
        go()
    step.read_sums()
    return prepared, steps * step.size / (time.time() - began)
