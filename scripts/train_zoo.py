"""Train the networks of the zoo on one GPU, several at a time; every call goes on where the last one stopped.

    train_zoo.py --sheets DIR --data DATA                   unpack and check image sheets, as far as they are there
    train_zoo.py --data DATA --jobs all --parallel 3        train; results land in --work/results
    train_zoo.py --budget-check                             images a second, by way of running and by processes
    train_zoo.py --pack --out OUT                           what is finished, as tar parts of 15 MiB under OUT/parts

Each network is one process (start method spawn) that runs antiadv.train with a checkpoint under --work; a job that
fails is tried again in a plainer way and then given up, and the others go on. A job whose data or whose first phase is
still to come waits. `OUT/parts` is put together with `cat zoo.tar.* | tar x`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tarfile
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))  # the package need not be installed here
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "4")  # per process, and several compile at once

SHEETS = {  # of each set and split; a list of 100 x 100 tiles, row by row
    (name, split): [f"{name}_train_{i}.webp" for i in range(5)] if split == "train" else [f"{name}_test.webp"]
    for name in ("cifar10", "cifar100")
    for split in ("train", "test")
}
PLAINER = {"auto": "graph", "compiled graph": "graph", "compiled": "eager", "graph": "eager"}
PART = 15 * 2**20
REFUSED = 4  # exit status of a job that would fail again: a spec that cannot be read, a loss that is not a number


@dataclass(frozen=True)
class Job:
    """One network of the zoo."""

    name: str
    model: str
    recipe: str
    epochs: int
    data: str = "cifar10"
    learning_rate: float = 0.4
    start: str | None = None  # the job whose network is this one's first phase
    speed: str | None = None  # another way of running than the one asked for

    @property
    def needs(self) -> set[str]:
        """The data sets it reads."""
        other = {"cifar10", "cifar100"} if self.recipe.startswith("pretraining") and not self.start else set()
        return {self.data} | other


COMPACT_10 = "preact18:width=16,normalise=cifar10"
COMPACT_100 = "preact18:width=16,normalise=cifar100"
WIDE = "wrn:depth=16,widen=4,normalise=cifar10"
RSE = "preact18:width=16,normalise=cifar10,noise=0.1,first_noise=0.2"

# The most valuable first; those of CIFAR-100 last, since their data arrive last. HYDRA sorts its scores in every pass,
# which is long to compile and used for a few epochs only.
JOBS = (
    Job("compact-cifar10-trades", COMPACT_10, "trades", 60),
    Job("wrn16-4-cifar10-trades", WIDE, "trades", 45),
    Job("compact-cifar10-standard", COMPACT_10, "standard", 60),
    Job("resnet18-cifar10-standard", "resnet18:normalise=cifar10", "standard", 40),
    Job("compact-cifar10-mart", COMPACT_10, "mart", 55, learning_rate=0.2),
    Job("compact-cifar10-awp", COMPACT_10, "awp", 60),
    Job("compact-cifar10-self_ensemble", RSE, "self_ensemble", 60),
    Job("compact-cifar10-hydra", COMPACT_10, "hydra", 85, start="compact-cifar10-trades", speed="graph"),
    Job("compact-cifar10-pretraining", COMPACT_10, "pretraining", 60),
    Job("wrn16-4-cifar10-awp", WIDE, "awp", 45),
    Job("compact-cifar100-awp", COMPACT_100, "awp", 60, "cifar100"),
    Job("compact-cifar100-pretraining", COMPACT_100, "pretraining:source=cifar10", 60, "cifar100"),
    Job("preact18-cifar10-trades", "preact18:normalise=cifar10", "trades", 12),  # for benchmarks/speed.py alone
)


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


# ---------------------------------------------------------------- data


def unpack(sheets: Path, data: Path) -> None:
    """Every split whose sheets and labels are all there, to the form `antiadv.data.load` reads; digests are checked."""
    from PIL import Image

    from antiadv.data.cifar import find
    from antiadv.data.imported import place, write_arrays

    Image.MAX_IMAGE_PIXELS = None
    for (name, split), files in SHEETS.items():
        paths = [sheets / f for f in files]
        labels = sheets / f"{name}_labels.npz"
        if place(data, name, split).exists():
            log(f"{name} {split} is in {data}")
        elif missing := [p.name for p in (*paths, labels) if not p.exists()]:
            log(f"{name} {split} waits for {', '.join(missing)}")
        else:
            pair = data / f"pair-{name}-{split}"
            pair.mkdir(parents=True, exist_ok=True)
            x = np.concatenate([tiles(np.asarray(Image.open(p).convert("RGB"))) for p in paths])
            np.save(pair / f"{name}_{split}_x.npy", x)
            np.save(pair / f"{name}_{split}_y.npy", np.load(labels)[split].astype(np.int64))
            for found in find(pair, name):
                log(f"{name} {split}: {len(found.y)} images, {found.digest} -> {write_arrays(found, data)}")


def tiles(sheet: NDArray[np.uint8], side: int = 32) -> NDArray[np.uint8]:
    rows, cols = sheet.shape[0] // side, sheet.shape[1] // side
    return sheet.reshape(rows, side, cols, side, 3).swapaxes(1, 2).reshape(-1, side, side, 3)


# ---------------------------------------------------------------- one job, in a process of its own


@dataclass(frozen=True)
class Place:
    """Where things are, and how they are run."""

    data: str
    work: Path
    device: str | None
    speed: str
    save_every: int
    tiny: int  # 0, or so many images of a much smaller problem: to try the driver itself

    @property
    def results(self) -> Path:
        return self.work / "results"

    def result(self, name: str) -> Path:
        return self.results / f"{name}.safetensors"

    def done(self, name: str) -> bool:
        return self.result(name).with_suffix(".json").exists()


def shrunk(job: Job, place: Place) -> Job:
    if not place.tiny:
        return job
    model = job.model.replace("width=16", "width=4").replace("18:normalise", "18:width=4,normalise")
    return replace(job, model=model.replace("depth=16,widen=4", "depth=10,widen=1"), epochs=3)


def sets_of(place: Place):  # type: ignore[no-untyped-def]  # a loader for antiadv.train
    from antiadv.train import read_sets

    def load(text: str):  # type: ignore[no-untyped-def]
        whole = read_sets(text)
        if not place.tiny:
            return whole
        n, m = place.tiny, place.tiny // 4
        return replace(whole, x=whole.x[:n], y=whole.y[:n], test_x=whole.test_x[:m], test_y=whole.test_y[:m])

    return load


def command_of(job: Job, start: Path | None) -> str:
    """What a user would type."""
    first = f" --start {start.name}" if start else ""
    return (
        f"antiadv train {job.recipe} --model {job.model} --data {job.data} --epochs {job.epochs} "
        f"--learning-rate {job.learning_rate}{first} --out {job.name}.safetensors"
    )


def work(job: Job, place: Place) -> None:
    """Train one network; runs in a child process and ends it with a status."""
    import torch

    from antiadv.core.errors import AntiadvError
    from antiadv.train import Progress, Settings, parse, train

    torch.set_num_threads(1 if place.tiny else 2)

    def progress(p: Progress) -> None:
        log(
            f"[{job.name}] {p.phase} {p.epoch}/{p.epochs}  loss {p.loss:.3f}  acc {100 * p.accuracy:.1f}  "
            f"{p.images_per_second:,.0f} img/s  eta {p.left:.0f} s"
        )

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
            progress=progress,
            say=lambda text: log(f"[{job.name}] {text}"),
            command=command_of(job, start),
            load=sets_of(place),
        )
    except AntiadvError as error:
        log(f"[{job.name}] REFUSED: {error}")
        sys.exit(REFUSED)
    except BaseException:
        log(f"[{job.name}] FAILED\n{traceback.format_exc()}")
        sys.exit(1)
    log(
        f"[{job.name}] DONE in {time.time() - began:.0f} s: clean {100 * card.clean.share:.2f}, "
        f"PGD-20 {100 * card.pgd20.share:.2f} of {card.pgd20.total}"
    )


# ---------------------------------------------------------------- all jobs


def ready(job: Job, asked: list[Job], failed: set[str], place: Place) -> bool:
    """Its data are there, and its first phase is trained or nobody is going to train it."""
    has_data = all(
        (Path(place.data).expanduser() / f"{name}-{split}.json").exists()
        for name in job.needs
        for split in ("train", "test")
    )
    awaited = job.start in {j.name for j in asked} - failed and not place.done(job.start or "")
    return has_data and not awaited


def train_all(jobs: list[Job], place: Place, parallel: int, minutes: float) -> int:
    """Keep `parallel` processes busy until nothing is left or the time is up; returns how many are not done."""
    context = multiprocessing.get_context("spawn")
    place.results.mkdir(parents=True, exist_ok=True)
    until = time.time() + 60 * minutes
    speeds = {job.name: job.speed or place.speed for job in jobs}
    waiting = [job for job in jobs if not place.done(job.name)]
    running: dict[str, tuple[Job, multiprocessing.process.BaseProcess]] = {}
    failed: set[str] = set()
    log(f"{len(waiting)} of {len(jobs)} to train, {parallel} at a time, {minutes:g} minutes")
    while (waiting or running) and time.time() < until:
        for name, (job, process) in list(running.items()):
            if process.is_alive():
                continue
            process.join()
            del running[name]
            if process.exitcode == 0:
                continue
            plainer = PLAINER.get(speeds[name])
            if process.exitcode == REFUSED or plainer is None:
                failed.add(name)
                log(f"[{name}] given up (status {process.exitcode})")
            else:
                speeds[name] = plainer
                waiting.insert(0, job)
                log(f"[{name}] status {process.exitcode}; tries again, {plainer}")
        for job in [j for j in waiting if ready(j, jobs, failed, place)][: parallel - len(running)]:
            waiting.remove(job)
            process = context.Process(target=work, args=(shrunk(job, place), replace(place, speed=speeds[job.name])))
            process.start()
            running[job.name] = (job, process)
        time.sleep(0.5)
    for name, (_, process) in running.items():
        process.terminate()
        process.join()
        log(f"[{name}] stopped; the next call goes on from its checkpoint")
    left = [job.name for job in jobs if not place.done(job.name)]
    log(f"not done: {', '.join(left) or 'nothing'}; failed: {', '.join(failed) or 'none'}")
    return len(left)


# ---------------------------------------------------------------- budget, packing


def measure(job: Job, place: Place, steps: int, queue: multiprocessing.Queue[tuple[str, float, float]]) -> None:
    """Images a second of one process, after `accelerate` has done its part."""
    import torch

    from antiadv import models
    from antiadv.train import Settings, parse
    from antiadv.train.loop import placed, with_classes
    from antiadv.train.step import Step, accelerate, schedule

    try:
        torch.set_num_threads(1 if place.tiny else 2)
        n, classes = place.tiny or 50_000, 10 if job.data == "cifar10" else 100
        dice = torch.Generator().manual_seed(0)
        images = torch.randint(0, 256, (n, 32, 32, 3), dtype=torch.uint8, generator=dice)  # speed needs no real ones
        labels = torch.randint(0, classes, (n,), generator=dice)
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
        prepared = time.time() - began
        began = time.time()
        for k in range(steps):
            j = k % step.steps
            step.draw(rows[j * step.size : (j + 1) * step.size], knobs[j], 0, 0, k)
            go()
        step.read_sums()
        queue.put((job.name, prepared, steps * step.size / (time.time() - began)))
    except BaseException:
        log(f"[{job.name}] FAILED\n{traceback.format_exc()}")
        queue.put((job.name, 0.0, 0.0))


def budget(jobs: list[Job], place: Place, processes: list[int], speeds: list[str]) -> None:
    """The table to plan with: every way of running alone, then several processes of the first job."""
    context = multiprocessing.get_context("spawn")
    rows = []
    plan = [(job, speed, 1) for job in jobs for speed in speeds]
    plan += [(jobs[0], speeds[0], count) for count in processes if count > 1]
    for job, speed, count in plan:
        queue = context.Queue()
        args = (shrunk(job, place), replace(place, speed=speed), 100 if not place.tiny else 5, queue)
        group = [context.Process(target=measure, args=args) for _ in range(count)]
        for process in group:
            process.start()
        found = [queue.get() for _ in group]
        for process in group:
            process.join()
        rate = sum(f[2] for f in found)
        rows.append(f"{job.name:32} {speed:15} {count} process(es): ready in {max(f[1] for f in found):5.1f} s, "
                    f"{rate:10,.0f} img/s in all, {50_000 / max(rate, 1e-9):6.2f} s per epoch")  # fmt: skip
        log(rows[-1])
    print("\n".join(rows), flush=True)


def pack(place: Place, out: Path) -> None:
    """All finished networks and their cards as one tar, cut into parts small enough to be brought back."""
    parts = out / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    done = [job.name for job in JOBS if place.done(job.name)]
    whole = place.work / "zoo.tar"
    with tarfile.open(whole, "w") as tar:
        for name in done:
            for path in (place.result(name), place.result(name).with_suffix(".json")):
                tar.add(path, path.name)
    for old in parts.glob("zoo.tar.*"):
        old.unlink()
    with whole.open("rb") as file:
        for i, chunk in enumerate(iter(lambda: file.read(PART), b"")):
            (parts / f"zoo.tar.{i}").write_bytes(chunk)
    log(f"packed {len(done)} networks, {whole.stat().st_size:,} bytes, into {parts}")


def main() -> int:
    known = {job.name: job for job in JOBS}
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sheets", type=Path, help="folder of WebP sheets and labels to unpack into --data")
    p.add_argument("--data", default="/tmp/zoo/data", help="folder that antiadv.data reads")
    p.add_argument("--jobs", help=f"all, or some of: {', '.join(known)}")
    p.add_argument("--parallel", type=int, default=3)
    p.add_argument("--minutes", type=float, default=60.0)
    p.add_argument("--work", type=Path, default=Path("/tmp/zoo"), help="checkpoints and results; outlives a call")
    p.add_argument("--out", type=Path, help="where --pack puts its parts")
    p.add_argument("--pack", action="store_true")
    p.add_argument("--budget-check", action="store_true")
    p.add_argument("--processes", default="1,3,6", help="for --budget-check")
    p.add_argument("--speeds", default="graph,compiled graph,eager", help="for --budget-check")
    p.add_argument("--speed", default="auto")
    p.add_argument("--scale", type=float, default=1.0, help="of every job's epochs; the same in every call")
    p.add_argument("--save-every", type=int, default=5)
    p.add_argument("--device")
    p.add_argument("--tiny", type=int, default=0, help="so many images, tiny networks: to try this script")
    a = p.parse_args()

    place = Place(a.data, a.work, a.device, a.speed, a.save_every, a.tiny)
    names = list(known) if a.jobs in (None, "all") else a.jobs.split(",")
    if unknown := [name for name in names if name not in known]:
        p.error(f"no job is called {', '.join(unknown)}; known: {', '.join(known)}")
    jobs = [replace(known[name], epochs=max(1, round(a.scale * known[name].epochs))) for name in names]
    if a.sheets:
        unpack(a.sheets, Path(a.data))
    if a.budget_check:
        chosen = jobs if a.jobs else [known["compact-cifar10-trades"], known["wrn16-4-cifar10-trades"]]
        budget(chosen, place, [int(n) for n in a.processes.split(",")], a.speeds.split(","))
    left = train_all(jobs, place, a.parallel, a.minutes) if a.jobs and not a.budget_check else 0
    if a.pack:
        if not a.out:
            p.error("--pack needs --out")
        pack(place, a.out)
    return 3 if left else 0


if __name__ == "__main__":
    sys.exit(main())
