"""The jobs of the speed benchmark: races against other people's attacks, and measurements of ours alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from antiadv import attacks
from antiadv.attacks.score_based.nes import published_updates
from antiadv.core.attack import Attack
from antiadv.core.ball import L2, Linf
from benchmarks import published_loops
from benchmarks.parity.jobs import Job
from benchmarks.peers import PEERS, Found, Peer, Task

STEPS = 2  # K of the layer
ROBUST = "benchmarks/weights/preact18-cifar10-trades.safetensors"  # too large to come with the project
SMALL_BATCH = 64  # images through the network at once on a CPU; more do not fit its cache
CPU_SAMPLES = {"autoattack-compact-trades": 16}  # by job, where a CPU has less time than a GPU
FEW_QUERIES = {  # options that come closest within a few hundred queries, chosen with other random numbers
    "hop_skip_jump": "hop_skip_jump:probes=20,gamma=170",
    "boundary": "boundary:around=0.3,towards=0.05",
}


@dataclass(frozen=True)
class Race:
    """A job that runs ours against theirs.

    `pair` says what runs against what, and how strong ours must be. `cuda` and `cpu` are the targets: how many times as
    fast ours must be there. `step` is the step size of the layer that both sides attack. `queries` is the budget
    of the published loops, in the authors' counting. With `least`, ours gets the smallest share of their queries with
    which it comes as close.
    """

    pair: Job
    cuda: float | None = None
    cpu: float | None = None
    step: float | None = None
    queries: int | None = None
    least: bool = False

    @property
    def name(self) -> str:
        return self.pair.name

    @property
    def layer(self) -> str | None:
        return None if self.step is None else f"anti_adversary:steps={STEPS},step_size={self.step:g}"

    def target(self, device: str) -> float | None:
        """Return the target on this kind of device; None if the job is not meant for it."""
        return self.cuda if device == "cuda" else self.cpu

    def peer(self) -> Peer:
        if self.queries is None:
            return PEERS[self.pair.peer]
        loop, count = self.pair.peer.removeprefix("published "), self.queries

        def run(task: Task, short: bool) -> Found:
            climb, few = getattr(published_loops, loop), 300 if loop == "nes" else 10
            return Found(*climb(task.net, task.x, task.y, task.ball.eps, min(few, count) if short else count))

        return Peer("torch", f"{PEERS[self.pair.peer].said}, {count:,} queries", run)

    def attack(self) -> Attack:
        made = attacks.parse(self.pair.ours)
        if self.queries is None:
            return made
        steps = published_updates(self.queries, getattr(made, "probes", 1))
        return replace(made, steps=steps)  # type: ignore[type-var]


@dataclass(frozen=True)
class Lone:
    """A job that measures ours alone, or that brings its own comparison. It runs on one kind of device."""

    name: str
    device: str
    samples: int = 0

    def target(self, device: str) -> float | None:
        return 0.0 if device == self.device else None


def autoattack_races() -> Iterator[Race]:
    for name, model, samples in (
        ("preact18-trades", f"file:{ROBUST}", 512),
        ("compact-trades", "compact:trades", 512),
        ("wrn16-4-trades", "wrn16-4:trades", 256),
    ):
        peer, ball = "pyautoattack standard", Linf(8 / 255)
        job = Job(f"autoattack-{name}", "standing", model, "autoattack", peer, ball, 0.3, samples=samples)
        yield Race(job, cuda=4, cpu=1.5 if "compact" in model else None)
        yield Race(replace(job, name=f"autoattack-layer-{name}", points=0.5), cuda=5, step=0.15)


def published_races() -> Iterator[Race]:
    """NES and Bandits; a step of 10/31 of the radius is the published 0.01."""
    model = "resnet18:standard"
    for name, text in (("nes", "nes:step_size=10/31"), ("bandits", "bandits:tile=16,step_size=10/31")):
        for title, step in ((name, None), (f"{name}-layer", 0.01)):
            full = f"{title}-{model.replace(':', '-')}"
            job = Job(full, "standing", model, text, f"published {name}", Linf(0.031), 2.0, samples=64)
            yield Race(job, cuda=5, step=step, queries=10_000)


def square_races() -> Iterator[Race]:
    for name, text, peer, equal, samples in (
        ("square-pyautoattack", "square", "pyautoattack square", False, 24),
        ("square-torchattacks", "square:rescale=true", "torchattacks square", True, 64),
    ):
        title, ball = f"{name}-compact-trades", Linf(8 / 255)
        yield Race(Job(title, "standing", "compact:trades", text, peer, ball, 0.5, equal, samples), cpu=1.5)


def label_races() -> Iterator[Race]:
    """Attacks on labels. At equal queries ours comes closer than ART's, so five times the speed is asked in a second
    job, in which ours gets only the queries that it needs to come as close."""
    for name, text, peer in (
        ("hop_skip_jump-art", "hop_skip_jump", "art hop_skip_jump"),
        ("boundary-art", "boundary", "art boundary"),
        ("hop_skip_jump-foolbox", "hop_skip_jump", "foolbox hop_skip_jump"),
        ("hop_skip_jump-foolbox-batch", "hop_skip_jump", "foolbox hop_skip_jump batch"),
        ("boundary-foolbox", "boundary", "foolbox boundary"),
    ):
        title, ball = f"{name}-compact-trades", L2(math.inf)
        job = Job(title, "distance", "compact:trades", text, peer, ball, equal=True, samples=16)
        yield Race(job, cpu=1)
        if "art" in peer:
            least = replace(job, name=f"{name}-least-compact-trades", ours=FEW_QUERIES[text], samples=96)
            yield Race(least, cpu=5, least=True)


RACES = {
    race.name: race for races in (autoattack_races, published_races, square_races, label_races) for race in races()
}
OVERHEAD, CEILING, LATENCY = Lone("overhead", "cpu", 32), Lone("ceiling", "cpu", SMALL_BATCH), Lone("latency", "cuda")
JOBS: dict[str, Race | Lone] = {**RACES, **{job.name: job for job in (OVERHEAD, CEILING, LATENCY)}}
