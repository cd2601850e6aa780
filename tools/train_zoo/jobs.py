"""The networks to train, and where a call finds and puts things."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """One network of the zoo.

    `start` is the job whose network is the first phase of this one. `speed` is a way of running that replaces the one
    on the command line.
    """

    name: str
    model: str
    recipe: str
    epochs: int
    data: str = "cifar10"
    learning_rate: float = 0.4
    start: str | None = None
    speed: str | None = None

    @property
    def needs(self) -> set[str]:
        """The data sets that it reads."""
        other = {"cifar10", "cifar100"} if self.recipe.startswith("pretraining") and not self.start else set()
        return {self.data} | other


COMPACT_10 = "preact18:width=16,normalise=cifar10"
SMALL_10 = "preact18:width=8,normalise=cifar10"
COMPACT_100 = "preact18:width=16,normalise=cifar100"
WIDE = "wrn:depth=16,widen=4,normalise=cifar10"
RSE = "preact18:width=16,normalise=cifar10,noise=0.1,first_noise=0.2"

# The most valuable first; CIFAR-100 last, since its data arrive last. HYDRA is not compiled: it sorts its scores in
# every pass, which takes long to compile and is used for a few epochs only.
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
    Job("compact-cifar10-gaussian", SMALL_10, "gaussian", 16, speed="mixed"),  # trained on a CPU; half the width
    Job("preact18-cifar10-trades", "preact18:normalise=cifar10", "trades", 12),  # for benchmarks/speed alone
)


@dataclass(frozen=True)
class Place:
    """Where things are, and how they are run.

    `tiny`, if it is not 0, is a number of images: networks and data are made small, to try the driver itself.
    """

    data: str
    work: Path
    device: str | None
    speed: str
    save_every: int
    tiny: int

    @property
    def results(self) -> Path:
        return self.work / "results"

    def result(self, name: str) -> Path:
        return self.results / f"{name}.safetensors"

    def done(self, name: str) -> bool:
        return self.result(name).with_suffix(".json").exists()


def shrunk(job: Job, place: Place) -> Job:
    """Return the job with a small network if the place is tiny."""
    if not place.tiny:
        return job
    model = job.model.replace("width=16", "width=4").replace("18:normalise", "18:width=4,normalise")
    return replace(job, model=model.replace("depth=16,widen=4", "depth=10,widen=1"), epochs=3)


def log(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
