"""How fast, beside other people's code: the same network, images and machine, in one run, in turn; one file per job.

    speed.py --list                                       every job, where it is meant to run, and what is stored
    speed.py --jobs 'autoattack-*' --device cuda --precision tf32 --repeats 3 --within 500 --out results/bench
             --samples 512 --queries 2000 --batch 512 --threads 2 --sides ours,compiled,mixed

    sides      theirs, as its authors call it; ours, through the engine as it stands, on a compiled network, or compiled
               and searching with 16-bit numbers inside (`half`, `mixed`: see evaluate/speed.py)
    time       on a GPU seconds of the wall, waited for; on a CPU only ratios are kept: on one thread those of the
               processor, since other work shares it; on several those of the wall, for a thread that waits spends the
               processor's too, and `others` says how much of the processors other programs took meanwhile
    ratio      theirs / ours in each repeat; its median, least and greatest
    setup      what ours needs once (graphs, compilation): two steps, on a GPU on all, ¾ and ½ of the images, less the
               same again, over its first run; in older files on all alone, and the first repeat captured the rest
    strength   both sides' images by one judge in float32, under parity's rules, on as many images as were timed; each
               repeat rolls dice of its own on both sides, and all of them count (in older files the first alone); an
               interval then resamples images, for the repeats of one are alike
    again      a sample that the search takes for fallen and the judge does not is searched in float32 too, in that
               time, unless the search heard it, as `evaluate/shard.py` has it; in older files that too
    budget     of attacks on labels, ours may send what theirs was seen to send for each sample; in `least` jobs the
               least share of it with which it comes as close, found by trying shares from the smallest on, untimed
    overhead   of one attack() of ours, the share of processor time outside the network's passes, on one thread
    ceiling    on a CPU, the share of the speed of a large matrix product at which the network runs in each way: what
               nobody's code can gain more than, pass for pass

`met` asks for both, of any side of ours: as fast as the target, and as strong as the rule. On a GPU what was compiled
before is found again, and `setup` is what it then takes. Passes count images through the bare network. Behind the layer
theirs attacks the authors' structure (authors.py), ours the layer of this project; the judge is the latter. A race is
stored after every repeat, beside and renamed; `verdict` is `verdict(facts)`. What is stored is not run again, but for
repeats that are missing where all else is as asked: each has both sides in one run, and `revisions` says of which code.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any  # what a json file holds

import latency
import numpy as np
import published_loops
import torch
from authors import Authors
from filing import pick, put
from peers import PEERS, Found, Peer, Task
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import parity
from antiadv import AntiAdversary, attack, attacks, data, models
from antiadv.attacks.autoattack import Autoattack
from antiadv.attacks.cascade import Cascade
from antiadv.attacks.score_based.nes import published_updates
from antiadv.core.attack import Attack
from antiadv.core.ball import L2, Linf
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager, Engine
from antiadv.core.errors import AntiadvError, BadInput, BadSpec
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.evaluate import speed
from antiadv.evaluate.judge import look, records, tidy
from antiadv.evaluate.meter import Meter, aside, revision, versions
from antiadv.evaluate.precision import PRECISIONS, switched
from antiadv.evaluate.speed import engine
from antiadv.evaluate.world import find_device
from antiadv.report.measures import standing
from parity import BATCH, DATA, ROOT, Clock, Job, Side, beginning_at, over_the_edge, seeded

STEPS = 2  # K, of the layer
OVERHEAD = 0.1  # of the processor time, outside the network's passes
OVERHEAD_QUERIES = 128  # a sample: enough for the dearest step of any attack, the 101 of one of NES
SHARES = tuple(k / 24 for k in (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16))  # of their queries, for the least enough
FEW = {  # of the options tried, with other dice, those that come closest within a few hundred queries
    "hop_skip_jump": "hop_skip_jump:probes=20,gamma=170",
    "boundary": "boundary:around=0.3,towards=0.05",
}
ROBUST = "benchmarks/weights/preact18-cifar10-trades.safetensors"  # too large to come with the project
SMALL_BATCH = 64  # images pass at once on a CPU, where more do not fit its cache
SIDES = ("ours", "compiled", "half", "mixed")  # the last two in that precision, whatever theirs runs in
JUDGED = ("standing", "distance")
FORMAT = 1

Facts = dict[str, Any]


@dataclass(frozen=True)
class Race:
    """One job. `pair`: what runs against what, and how strong ours must be; `cuda`, `cpu`: how many times as fast.

    `step` is that of the layer both stand behind; `queries`, in the authors' counting, of the published loops. With
    `least`, ours is given the least share of their queries with which it comes as close.
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
    """A job that measures ours alone, or brings its own comparison."""

    name: str
    device: str
    samples: int = 0

    def target(self, device: str) -> float | None:
        return 0.0 if device == self.device else None


def _races() -> list[Race]:
    found, ball = list[Race](), Linf(8 / 255)
    for plain, model, samples in (
        ("preact18-trades", f"file:{ROBUST}", 512),
        ("compact-trades", "compact:trades", 512),
        ("wrn16-4-trades", "wrn16-4:trades", 256),
    ):
        ours = "autoattack"
        job = Job(f"autoattack-{plain}", "standing", model, ours, "pyautoattack standard", ball, 0.3, samples=samples)
        found.append(Race(job, cuda=4, cpu=1.5 if "compact" in model else None))
        found.append(Race(replace(job, name=f"autoattack-layer-{plain}", points=0.5), cuda=5, step=0.15))
    model = "resnet18:standard"  # 10/31 of the radius are the published steps of 0.01
    for name, text in (("nes", "nes:step_size=10/31"), ("bandits", "bandits:tile=16,step_size=10/31")):
        for title, step in ((name, None), (f"{name}-layer", 0.01)):
            plain = f"{title}-{model.replace(':', '-')}"
            job = Job(plain, "standing", model, text, f"published {name}", Linf(0.031), 2.0, samples=64)
            found.append(Race(job, cuda=5, step=step, queries=10_000))
    model = "compact:trades"
    for name, text, peer, equal, samples in (
        ("square-pyautoattack", "square", "pyautoattack square", False, 24),
        ("square-torchattacks", "square:rescale=true", "torchattacks square", True, 64),
    ):
        job = Job(f"{name}-compact-trades", "standing", model, text, peer, ball, 0.5, equal, samples)
        found.append(Race(job, cpu=1.5))
    for name, text, peer in (
        ("hop_skip_jump-art", "hop_skip_jump", "art hop_skip_jump"),
        ("boundary-art", "boundary", "art boundary"),
        ("hop_skip_jump-foolbox", "hop_skip_jump", "foolbox hop_skip_jump"),
        ("hop_skip_jump-foolbox-batch", "hop_skip_jump", "foolbox hop_skip_jump batch"),
        ("boundary-foolbox", "boundary", "foolbox boundary"),
    ):
        job = Job(f"{name}-compact-trades", "distance", model, text, peer, L2(math.inf), equal=True, samples=16)
        found.append(Race(job, cpu=1))
        if "art" in peer:  # at equal queries ours comes closer; five times are asked where it comes as close
            least = replace(job, name=f"{name}-least-compact-trades", ours=FEW[text], samples=96)
            found.append(Race(least, cpu=5, least=True))
    return found


RACES = {race.name: race for race in _races()}
ALONE = (Lone("overhead", "cpu", 32), Lone("ceiling", "cpu", SMALL_BATCH), Lone("latency", "cuda"))
JOBS: dict[str, Race | Lone] = {**RACES, **{job.name: job for job in ALONE}}
CPU_SAMPLES = {"autoattack-compact-trades": 16}  # where a GPU has time for more


# ---------------------------------------------------------------- how to run


def shortened(attack: Attack) -> Attack:
    """The same with two steps, to warm up."""
    if isinstance(attack, Autoattack):
        return shortened(attack.cascade)
    if isinstance(attack, Cascade):
        return Cascade(tuple(map(shortened, attack.stages)))
    return replace(attack, steps=2)  # type: ignore[type-var]


def clock(device: torch.device) -> Clock:
    return Clock(device, wall=torch.get_num_threads() > 1)


def spent(device: torch.device) -> float:
    """As `clock` counts, and the compilers that were called besides."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() if device.type == "cuda" or torch.get_num_threads() > 1 else worked()


def worked() -> float:
    """Processor seconds of this process and of those it called."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Company:
    """The share of this machine's processors that others took while the context was open, where the system says it."""

    def __enter__(self) -> Company:
        self.share: float | None = None
        self._begun = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        all_of_us, mine, seconds = (b - a for a, b in zip(self._begun, self._now(), strict=True))
        if self._begun[0]:
            self.share = round(max(0.0, all_of_us - mine) / (seconds * (os.cpu_count() or 1)), 4)

    @staticmethod
    def _now() -> tuple[float, float, float]:
        return _processors(), worked(), time.perf_counter()


def _processors(path: Path = Path("/proc/stat")) -> float:
    """Seconds that all processors have worked since the system began, time taken from it by its host included."""
    if not path.exists():
        return 0.0
    user, nice, system, _, _, hard, soft, stolen = map(int, path.read_text().split(maxsplit=9)[1:9])
    return (user + nice + system + hard + soft + stolen) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def compiling_afresh(compiled: bool) -> Iterator[None]:
    """Nothing that was compiled before is found again, and no compiler works where its time would not be seen."""
    if not compiled:
        yield
        return
    import torch._inductor.config as inductor  # here, for it takes as long to load as all of torch
    from torch._inductor.utils import fresh_inductor_cache

    before = inductor.compile_threads
    torch.compiler.reset()
    with fresh_inductor_cache():
        inductor.compile_threads = 1
        try:
            yield
        finally:
            inductor.compile_threads = before


# ---------------------------------------------------------------- one race


@dataclass(frozen=True)
class Setting:
    """What the command line says of how to run."""

    device: torch.device
    precision: str = "float32"
    repeats: int = 3
    sides: tuple[str, ...] = ("ours",)
    samples: int | None = None
    queries: int | None = None
    batch: int | None = None
    seed: int = 0
    within: float = math.inf  # seconds on the wall: no repeat is begun that would end later

    @property
    def at_once(self) -> int:
        return self.batch or (BATCH if self.device.type == "cuda" else SMALL_BATCH)

    @property
    def compiled(self) -> bool:
        return self.sides != ("ours",)

    def engine(self, side: str) -> Engine:
        precision = side if side in PRECISIONS else self.precision
        return engine(self.device, self.at_once, precision, compiled=side != "ours")


def network(text: str) -> nn.Module:
    """That of a race, its path read from the root of the repository; one that has to be trained first says how."""
    path = ROOT / text.removeprefix("file:")
    if not text.startswith("file:"):
        return models.load(text)
    if not path.is_file():
        raise BadInput(
            f"{text} is too large to come with the project, and is not here. "
            f"Train it: scripts/train_zoo.py --jobs {path.stem}, and put the file there."
        )
    return models.load(f"file:{path}")


class Course:
    """What a race is run on: the network bare and behind both structures of the layer, and the images it gets right."""

    def __init__(self, race: Race, samples: int, device: torch.device, seed: int) -> None:
        self.race, self.pair, self.peer, self.attack = race, race.pair, race.peer(), race.attack()
        self.net, self.dataset = network(race.pair.model).to(device), data.load(DATA)
        if samples > len(self.dataset):
            raise BadInput(f"{samples} samples were asked for; {DATA} has {len(self.dataset)} here. Ask for fewer.")
        self.layer = self.net if race.step is None else AntiAdversary(self.net, STEPS, race.step)
        authors = self.net if race.step is None else Authors(self.net, STEPS, race.step)
        with switched("float32", device):
            self.ids, self.start = parity.choose_samples(race.pair, self.net, self.dataset, samples, seed, device)
            self.x, self.y = self.dataset.images(self.ids).to(device), self.dataset.labels(self.ids).to(device)
            self.dice = Draws.of(seed, torch.tensor(self.ids, device=device))
            self.clean = look(self.layer, self.x, Eager(BATCH), self.dice)
        self.right = self.clean.majority(self.y)
        self.rows = self.right.nonzero().squeeze(1)
        if not len(self.rows):
            raise BadInput(
                f"{self.pair.model} gets none of the {len(self.ids)} samples right, so none can be attacked. "
                "Ask for more."
            )
        x, y, classes = self.x[self.rows], self.y[self.rows], self.clean.scores.shape[2]
        self.theirs_task = Task(authors, x, y, classes, self.pair.ball, seed, self.start)
        self.task = replace(self.theirs_task, net=self.layer)

    def theirs(self, repeat: int = 0, short: bool = False) -> Side:
        task, size = self.theirs_task, 1 if self.peer.alone else len(self.rows)
        task = replace(task, seed=task.seed + repeat)
        parts = torch.arange(len(self.rows)).split(size)[: 1 if short else None]
        with seeded(task.seed), Meter(self.net) as meter, clock(task.x.device) as timed:
            z = torch.cat([self.peer.run(task[rows], short).z for rows in parts])
        return Side(z, meter.forwards, meter.backwards, timed.seconds)

    def ours(self, engine: Engine, budget: int | None, repeat: int = 0) -> Side:
        dice = Draws.of(self.task.seed + repeat, torch.tensor(self.ids, device=self.x.device))
        return self._ours(self.attack, self.task, dice[self.rows], engine, budget)

    def _ours(self, attack: Attack, task: Task, dice: Draws, engine: Engine, budget: int | None) -> Side:
        with Meter(self.net) as meter, clock(task.x.device) as timed:
            z, unheard = self._searched(attack, task, dice, engine, budget)
            if (judge := engine.judge(task.net)) is not engine:
                with aside():
                    believed, judged = (passes.scores(task.net, z).argmax(1) != task.y for passes in (engine, judge))
                again = (believed & ~judged & unheard).nonzero().squeeze(1)
                if len(again):
                    z[again], _ = self._searched(attack, task[again], dice[again], judge, budget)
        return Side(z, meter.forwards, meter.backwards, timed.seconds)

    def _searched(
        self, attack: Attack, task: Task, dice: Draws, engine: Engine, budget: int | None
    ) -> tuple[Tensor, Tensor]:
        """The images, and of which the judge's word would change the search, as in `evaluate/shard.py`."""
        threat, ledger = Threat(task.ball, attack.access, budget), Ledger(len(task.x), budget)
        oracle = Oracle(task.net, threat, ledger, engine)
        with beginning_at(task.start):
            z = attack(oracle, task.x, task.y, task.ball, dice)
        return z, attack.minimal | ~oracle.refused(z).to(z.device)

    def warm_up(self, engine: Engine) -> float:
        """Seconds of a short run on all images, on a GPU on fewer, which have graphs of their own, and on one, which
        may be compiled for itself."""
        short, before, n = shortened(self.attack), spent(self.x.device), len(self.rows)
        for count in (n, n * 3 // 4, n // 2, 1) if self.x.is_cuda else (n, 1):
            some = torch.arange(max(1, count))
            self._ours(short, self.task[some], self.dice[self.rows[some]], engine, None)
        return spent(self.x.device) - before

    def budget(self, theirs: Side, engine: Engine) -> int | None:
        """What ours may send for a sample, where that is bounded."""
        if not self.pair.equal:
            return None
        if self.pair.kind == "standing":
            return parity.most_of_theirs(self.pair, self.theirs_task)
        most = theirs.forwards // len(self.rows)
        if not self.race.least:
            return most
        mark = {"kind": self.pair.kind, "theirs": self.judged(theirs, self.peer.said)}
        for share in SHARES:
            side = self.judged(self.ours(engine, math.ceil(share * most)), self.pair.ours)
            (check,) = parity.verdict({**mark, "ours": side})["checks"]
            if check["ours"] <= check["theirs"]:  # not what the rule allows: slow walks gain little more than that
                return math.ceil(share * most)
        return most

    def judged(self, side: Side, said: str) -> Facts:
        """What is kept of a side: of each sample whether it stands, and how far the image is that fools."""
        x, y, ball, z = self.x, self.y, self.pair.ball, self.x.clone()
        with switched("float32", x.device):
            z[self.rows] = tidy(x[self.rows], side.z.detach().to(x))
            if self.start is not None:
                z = over_the_edge(self.layer, x, y, z)
            attacked = look(self.layer, z, Eager(BATCH), self.dice)
        every = records(self.ids, y, x, z, self.clean, attacked, ball, Ledger(len(x)))
        stands = [standing(record, ball) for record in every]
        found: Facts = {"attack": said, "standing": [int(s) for s in stands]}
        if self.start is not None:  # whoever returns what does not fool is as far as the noise it began at
            far = ball.distance(x, self.start).tolist()
            found["distance"] = [f if s else r.distance for s, r, f in zip(stands, every, far, strict=True)]
        return found | {"forwards": side.forwards, "backwards": side.backwards}

    def alike(self, side: Side) -> float:
        """Of these images, the share to which both structures of the layer give one label."""
        with switched("float32", self.x.device), torch.no_grad():
            z = side.z.to(self.x)
            same = self.layer(z).argmax(1) == self.theirs_task.net(z).argmax(1)
        return round(float(same.double().mean()), 4)


def compare(
    race: Race,
    how: Setting,
    told: Callable[[str], None] = lambda text: None,
    keep: Callable[[Facts], object] = lambda facts: None,
    before: Facts | None = None,
) -> Facts:
    """Run all sides in turn, judge them, and say everything that is known, to `keep` after every repeat.

    What is known `before` is gone on with.
    """
    race, device = asked(race, how), how.device
    course = Course(race, samples_of(race, how), device, how.seed)
    if before is not None and before["weights"] != models.digest(course.net):
        raise BadInput(
            f"the stored {race.name} is of weights {before['weights']}; those here are {models.digest(course.net)}. "
            "Delete the file, or get the weights it was run on."
        )
    engines = {side: how.engine(side) for side in how.sides}
    setup, facts = dict[str, float](), before
    done, budget = (0, None) if before is None else (before["repeats"], before["budget"])
    with switched(how.precision, device), compiling_afresh(how.compiled and device.type == "cpu"):
        course.theirs(short=True)
        for side, passes in engines.items():
            first, again = course.warm_up(passes), course.warm_up(passes)
            setup[side] = max(0.0, first - again)
        begun = time.perf_counter()
        for k in range(done, how.repeats):
            if k > done and (time.perf_counter() - begun) * (k + 1 - done) / (k - done) > how.within:
                break
            with Company() as others:
                runs = {"theirs": course.theirs(k)}
                if facts is None:
                    budget = course.budget(runs["theirs"], engines[how.sides[0]])
                runs |= {side: course.ours(passes, budget, k) for side, passes in engines.items()}
            if facts is None:
                facts = _described(course, how, runs, budget, setup)
            else:
                facts = {**facts, "again": [*facts.get("again", []), _again(course, runs)]}
            facts = _with_repeat(facts, replace(how, repeats=k + 1), race, runs, others.share)
            keep(facts)
            told(f"{race.name}: repeat {k + 1} of {how.repeats}: " + _ratios(runs))
    assert facts is not None
    return facts


def asked(race: Race, how: Setting) -> Race:
    return race if how.queries is None or race.queries is None else replace(race, queries=how.queries)


def samples_of(race: Race, how: Setting) -> int:
    most = race.pair.samples
    return how.samples or (CPU_SAMPLES.get(race.name, most) if how.device.type == "cpu" else most)


def _described(
    course: Course, how: Setting, runs: dict[str, Side], budget: int | None, setup: dict[str, float]
) -> Facts:
    """What the first repeat tells of all of them."""
    said, seconds = course.pair.ours, {side: run.seconds for side, run in runs.items()}
    return {
        **_head(course.race, how, len(course.ids)),
        "revisions": [],
        "weights": models.digest(course.net),
        "images": course.dataset.digest,
        "ids": course.ids,
        "right": course.right.int().tolist(),
        "budget": budget,
        **{side: course.judged(run, course.peer.said if side == "theirs" else said) for side, run in runs.items()},
        "alike": course.alike(runs["theirs"]),
        "others": None,
        "times_faster": {side: [] for side in how.sides},
        "setup": {side: round(setup[side] / seconds[side], 4) for side in how.sides},
        "seconds": {side: [] for side in runs} if how.device.type == "cuda" else None,
    }


def _again(course: Course, runs: dict[str, Side]) -> Facts:
    """What another repeat came to: of each side what it is judged by, and its passes, which tell why it took longer."""
    judged = {side: course.judged(run, "") for side, run in runs.items()}
    return {side: {key: fact for key, fact in found.items() if key != "attack"} for side, found in judged.items()}


def revisions(facts: Facts) -> list[str]:
    """Of each repeat; older files have one for all."""
    found: list[str] = facts.get("revisions", facts["repeats"] * [facts["revision"]])
    return found


def _with_repeat(facts: Facts, how: Setting, race: Race, runs: dict[str, Side], others: float | None) -> Facts:
    """The facts, and one repeat more."""
    theirs, head = runs["theirs"].seconds, _head(race, how, facts["samples"])
    taken = [share for share in (facts.get("others"), others) if share is not None]
    return {
        **facts,
        **{key: head[key] for key in ("command", "repeats", "revision")},
        "revisions": [*revisions(facts), head["revision"]],
        "others": max(taken, default=None),
        "times_faster": {
            side: [*before, round(theirs / runs[side].seconds, 4)] for side, before in facts["times_faster"].items()
        },
        "seconds": facts["seconds"]
        and {side: [*before, round(runs[side].seconds, 3)] for side, before in facts["seconds"].items()},
    }


def _ratios(runs: dict[str, Side]) -> str:
    theirs = runs["theirs"].seconds
    return ", ".join(
        f"{side} {theirs / run.seconds:.2f} times faster" for side, run in runs.items() if side != "theirs"
    )


def _head(job: Race | Lone, how: Setting, samples: int) -> Facts:
    known = {**versions(), "numpy": np.__version__}
    said = f"--jobs {job.name} --device {how.device.type} --precision {how.precision} --samples {samples}"
    said += f" --repeats {how.repeats} --batch {how.at_once} --seed {how.seed}"
    found: Facts = {}
    if isinstance(job, Lone):
        overhead = job.name == "overhead"
        said += f" --queries {how.queries or OVERHEAD_QUERIES}" if overhead else f" --sides {','.join(how.sides)}"
    else:
        package = PEERS[job.pair.peer].package
        with contextlib.suppress(PackageNotFoundError):
            known[package] = version(package)
        said += f" --queries {job.queries}" * (job.queries is not None) + f" --sides {','.join(how.sides)}"
        found = {
            "kind": job.pair.kind,
            "model": job.pair.model,
            "layer": job.layer,
            "peer": job.pair.peer,
            "threat": str(job.pair.ball),
            "queries": job.queries,
            "points": job.pair.points,
            "rule": job.pair.rule,
        }
    cpu = how.device.type == "cpu"
    return {
        "format": FORMAT,
        "job": job.name,
        "command": f"python benchmarks/speed.py {said}" + f" --threads {torch.get_num_threads()}" * cpu,
        **found,
        "target": job.target(how.device.type),
        "data": DATA,
        "samples": samples,
        "seed": how.seed,
        "precision": how.precision,
        "batch": how.at_once,
        "repeats": how.repeats,
        "device": "cpu" if cpu else torch.cuda.get_device_name(how.device),
        "threads": torch.get_num_threads(),
        "versions": known,
        "revision": revision(),
    }


# ---------------------------------------------------------------- the engine's own overhead


@contextlib.contextmanager
def timing_passes() -> Iterator[list[float]]:
    """Processor seconds of every pass that the engine makes: what it makes passes of is timed where it finds it."""
    found: list[float] = []
    names = ("answer", "slope", "slopes")
    own = {name: getattr(speed, name) for name in names}

    def timed(run: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            start = time.process_time()
            answers = run(*args)
            found.append(time.process_time() - start)
            return answers

        return call

    for name in names:
        setattr(speed, name, timed(own[name]))
    try:
        yield found
    finally:
        for name in names:
            setattr(speed, name, own[name])


def overhead(how: Setting, told: Callable[[str], None] = lambda text: None, names: Sequence[str] = ()) -> Facts:
    """For every attack, with its defaults and so many queries a sample: the share of attack() outside the passes."""
    if how.device.type != "cpu":
        raise BadInput("overhead is a share of processor time; found a GPU, which works beside it. Say --device cpu.")
    with one_thread():
        return _overhead(how, told, names)


def _overhead(how: Setting, told: Callable[[str], None], names: Sequence[str]) -> Facts:
    job, queries = JOBS["overhead"], how.queries or OVERHEAD_QUERIES
    assert isinstance(job, Lone)
    samples = how.samples or job.samples
    net, dataset = models.load("compact:trades"), data.load(DATA)
    x, y = dataset.images(range(samples)), dataset.labels(range(samples))
    rows: dict[str, list[float]] = {name: [] for name in names or attacks.ATTACKS}
    attack(net, x[:2], y[:2], "pgd:steps=1", Linf(8 / 255))  # what is loaded at first use is
    for k in range(how.repeats):
        for name, shares in rows.items():
            chosen = attacks.parse(name)
            model = AntiAdversary(net, STEPS) if chosen.access == Access.INTERNALS else net
            ball = L2(math.inf) if chosen.minimal and 2 in chosen.norms else Linf(8 / 255)
            start = time.process_time()
            with timing_passes() as passes:
                attack(model, x, y, chosen, ball, queries=queries, seed=how.seed, batch=how.at_once)
            shares.append(1 - sum(passes) / (time.process_time() - start))
            told(f"overhead: repeat {k + 1} of {how.repeats}: {name} {100 * shares[-1]:.1f} %")
    return {
        **_head(job, how, samples),
        "kind": "overhead",
        "model": "compact:trades",
        "layer": f"anti_adversary:steps={STEPS}",
        "queries": queries,
        "target": OVERHEAD,
        "weights": models.digest(net),
        "images": dataset.digest,
        "shares": {name: [round(share, 4) for share in shares] for name, shares in rows.items()},
    }


# ---------------------------------------------------------------- how fast a network could be on this CPU


SIDE = 1024  # of the matrices whose product says how fast the processor multiplies


def ceiling(how: Setting, told: Callable[[str], None] = lambda text: None) -> Facts:
    """Multiplications a second of the network's forward pass, in each way of asking it, over those of a product."""
    if how.device.type != "cpu":
        raise BadInput("the ceiling is that of a processor; found a GPU. Say --device cpu.")
    job = JOBS["ceiling"]
    assert isinstance(job, Lone)
    samples = how.samples or job.samples
    net, dataset = models.load("compact:trades"), data.load(DATA)
    x, a = dataset.images(range(samples)), torch.rand(SIDE, SIDE)
    each = multiplications(net, x[:1])
    engines = {"as it stands": engine(how.device, samples).judge(net)}
    engines |= {side: replace(how, batch=samples).engine(side) for side in how.sides}
    shares: dict[str, list[float]] = {name: [] for name in engines}
    with compiling_afresh(how.compiled), contextlib.ExitStack() as stack:
        for passes in engines.values():
            passes.scores(net, x)
        stack.enter_context(others := Company())
        for k in range(how.repeats):
            top = SIDE**3 / _least(lambda: a @ a)
            for name, passes in engines.items():
                shares[name].append(samples * each / _least(lambda passes=passes: passes.scores(net, x)) / top)
            told(
                f"ceiling: repeat {k + 1} of {how.repeats}: " + ", ".join(f"{n} {s[-1]:.2f}" for n, s in shares.items())
            )
    return {
        **_head(job, how, samples),
        "kind": "ceiling",
        "model": "compact:trades",
        "layer": None,
        "target": None,
        "weights": models.digest(net),
        "images": dataset.digest,
        "others": others.share,
        "multiplications": each,
        "shares": {name: [round(share, 4) for share in each] for name, each in shares.items()},
    }


def multiplications(net: nn.Module, x: Tensor) -> int:
    """Of convolutions and linear layers, for one image."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(x)
    return int(counter.get_total_flops()) // 2  # it counts additions too


def _least(run: Callable[[], object], times: int = 20) -> float:
    """Seconds of the fastest of many calls: whatever disturbs one makes it slower."""
    found = list[float]()
    for _ in range(times):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


# ---------------------------------------------------------------- the verdict: a function of the facts


def verdict(facts: Facts) -> Facts:
    """Ratios with their spread, comparisons of strength, and whether both are what was asked."""
    if facts["kind"] == "overhead":
        rows = {name: spread(shares) for name, shares in facts["shares"].items()}
        worst = max(row["median"] for row in rows.values())
        return {"shares": rows, "worst": worst, "met": worst < facts["target"]}
    if facts["kind"] == "ceiling":
        rows = {name: spread(shares) for name, shares in facts["shares"].items()}
        return {"shares": rows, "most": round(1 / rows["as it stands"]["median"], 2), "met": True}
    sides: Facts = {}
    for side, ratios in facts["times_faster"].items():
        times, strength = spread(ratios), parity.verdict(pooled(facts, side))
        checks = [_by_images(facts, side, c) if facts.get("again") else c for c in strength["checks"]]
        fast = facts["target"] is None or times["median"] >= facts["target"]
        sides[side] = {
            "times_faster": times,
            "fast": fast,
            "checks": checks,
            "strong": strength["holds"],
            "met": fast and strength["holds"],
        }
    return {"sides": sides, "met": met(sides)}


def pooled(facts: Facts, side: str) -> Facts:
    """What parity judges: this side and theirs, a sample once for each repeat of which it is known what came of it."""
    again = facts.get("again", [])

    def together(who: str) -> Facts:
        return {key: sum((one[who][key] for one in again), facts[who][key]) for key in JUDGED if key in facts[who]}

    ids = facts["ids"] + [f"{i}, again {k}" for k in range(len(again)) for i in facts["ids"]]
    return {**facts, "ids": ids, "ours": together(side), "theirs": together("theirs")}


def _by_images(facts: Facts, side: str, check: Facts) -> Facts:
    """A check on pooled repeats, with intervals of images resampled, each with all its repeats, and so without p."""
    distances = facts["kind"] == "distance"
    key, middle = ("distance", np.median) if distances else ("standing", np.mean)
    both = np.array([[one[who][key] for one in (facts, *facts["again"])] for who in (side, "theirs")], dtype=float)
    rows = np.random.default_rng(0).integers(0, both.shape[2], (2000, both.shape[2]))
    ours, theirs = middle(both[:, :, rows], axis=(1, 3))
    found = {"ratio": ours / theirs} if distances else {"ours": ours, "theirs": theirs, "difference": ours - theirs}
    intervals = {name: np.quantile(values, [0.025, 0.975]).round(6).tolist() for name, values in found.items()}
    kept = {name: {key: value for key, value in check[name].items() if key != "p"} for name in intervals}
    return check | {name: kept[name] | {"low": low, "high": high} for name, (low, high) in intervals.items()}


def met(sides: Facts) -> bool:
    """Whether any side is fast and strong enough: which ones are is said beside it."""
    return any(side["met"] for side in sides.values())


def spread(values: Sequence[float]) -> Facts:
    return {"median": round(statistics.median(values), 4), "low": min(values), "high": max(values)}


# ---------------------------------------------------------------- files


def stem(job: Race | Lone, how: Setting) -> str:
    """A file for each way of running: `autoattack-compact-trades-cuda-tf32-compiled`; fewer queries end its name."""
    if job.name == "latency":
        return "latency"
    parts = [job.name, how.device.type]
    parts += [how.precision] * (how.precision != "float32") + [how.sides[-1]] * (how.compiled and isinstance(job, Race))
    if isinstance(job, Race) and job.queries is not None and how.queries not in (None, job.queries):
        parts.append(str(how.queries))
    return "-".join(parts)


def read(path: Path) -> Facts:
    try:
        facts: Facts = json.loads(path.read_text())
        if facts["format"] != FORMAT or facts["job"] not in JOBS or not path.stem.startswith(facts["job"]):
            raise ValueError(f"format {facts['format']}, job {facts['job']}")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise BadInput(f"{path} is not a stored benchmark ({error}). Delete it and run the job again.") from error
    return facts


def stored(folder: Path) -> list[Facts]:
    """Every benchmark in the folder, in the order of the jobs; other files there are not ours."""
    order = list(JOBS)
    paths = [path for path in sorted(folder.glob("*.json")) if path.stem != "latency" and _job_of(path.stem)]
    return sorted(map(read, paths), key=lambda facts: order.index(facts["job"]))


def _job_of(stem: str) -> str | None:
    return next((name for name in JOBS if stem == name or stem.startswith((f"{name}-cpu", f"{name}-cuda"))), None)


# ---------------------------------------------------------------- command line


def meant_for(device: str, jobs: Sequence[Race | Lone]) -> list[Race | Lone]:
    found = [job for job in jobs if job.target(device) is not None]
    if not found:
        raise BadSpec(f"{', '.join(job.name for job in jobs)} is not meant for {device}. Say another --device.")
    return found


def perform(job: Race | Lone, how: Setting, out: Path, told: Callable[[str], None] = lambda text: None) -> str:
    """One job, stored unless it is; → a line for the terminal."""
    path = out / f"{stem(job, how)}.json"
    if job.name == "latency":
        if not path.exists():
            found = latency.measure(
                "preact18:width=64", STEPS, list(latency.FASTER), how.device, how.precision, 30, how.compiled
            )
            put(found, path)
        rows = json.loads(path.read_text())["batches"]
        each = (f"batch {b} {row['faster_than_authors']['median']:.2f} times faster" for b, row in rows.items())
        return f"latency: {', '.join(each)}"
    before = read(path) if path.exists() else None
    if isinstance(job, Race):
        if before is None or unfinished(before, job, how):
            compare(job, how, told, lambda facts: put({**facts, "verdict": verdict(facts)}, path), before)
    elif before is None:
        facts = {"overhead": overhead, "ceiling": ceiling}[job.name](how, told)
        put({**facts, "verdict": verdict(facts)}, path)
    return line(read(path))


def unfinished(before: Facts, race: Race, how: Setting) -> bool:
    """Whether repeats are missing and all that decides their times is as it was."""
    due = _head(asked(race, how), replace(how, repeats=before["repeats"]), samples_of(race, how))
    alike = all(before[key] == due[key] for key in ("command", "device", "model", "layer", "threat"))
    return alike and before["repeats"] < how.repeats


def line(facts: Facts) -> str:
    """One line for the terminal."""
    found, met = facts["verdict"], "met" if facts["verdict"]["met"] else "NOT MET"
    if facts["kind"] == "overhead":
        return f"{facts['job']}: at most {100 * found['worst']:.1f} %, target below {100 * facts['target']:g} %; {met}"
    if facts["kind"] == "ceiling":
        each = (f"{name} {row['median']:.2f}" for name, row in found["shares"].items())
        return f"{facts['job']}: {', '.join(each)} of a matrix product's speed; at most {found['most']:g} times faster"
    said = []
    for side, row in found["sides"].items():
        t = row["times_faster"]
        said.append(f"{side} {t['median']:.2f} times faster [{t['low']:.2f}, {t['high']:.2f}]")
        said.append("as strong" if row["strong"] else "WEAKER")
    goal = "no target" if facts["target"] is None else f"target {facts['target']:g}"
    return f"{facts['job']} ({len(facts['ids'])} samples, {facts['device']}): {', '.join(said)}; {goal}; {met}"


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--list", action="store_true", help="every job, and what is stored of it")
    p.add_argument("--jobs", default="*", help="names or patterns, separated by commas; those meant for the device")
    p.add_argument("--device", default=None, help="cuda where there is a GPU, else cpu")
    p.add_argument("--precision", choices=PRECISIONS, default="float32", help="what all sides run in")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--within", type=float, default=math.inf, help="seconds after which no repeat of a job would end")
    p.add_argument("--samples", type=int, default=None, help="how many images; by default what the job says")
    p.add_argument("--queries", type=int, default=None, help="of NES, Bandits and overhead, for each sample")
    p.add_argument("--batch", type=int, default=None, help=f"images at once: {BATCH} on a GPU, {SMALL_BATCH} on a CPU")
    p.add_argument(
        "--threads", type=int, default=None, help="of the CPU: one by the processor's time, more by the wall's"
    )
    p.add_argument("--sides", default="ours", help=f"of {', '.join(SIDES)}, separated by commas")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--out", type=Path, default=ROOT / "results" / "bench")
    a = p.parse_args()
    try:
        chosen = pick(a.jobs, JOBS)
        if a.list:
            for job in chosen:
                where = ", ".join(device for device in ("cuda", "cpu") if job.target(device) is not None)
                files = ", ".join(
                    path.stem for path in sorted(a.out.glob(f"{job.name}*.json")) if _job_of(path.stem) == job.name
                )
                print(f"{job.name:45}  {where:10}  {files}".rstrip())
            return 0
        for name in ("repeats", "samples", "queries", "batch", "threads"):
            if getattr(a, name) is not None and getattr(a, name) < 1:
                raise BadInput(f"--{name} must be at least 1; found {getattr(a, name)}.")
        if unknown := set(sides := tuple(a.sides.split(","))) - set(SIDES):
            raise BadSpec(f"there is no side {', '.join(sorted(unknown))}; known are {', '.join(SIDES)}.")
        device = find_device(a.device)
        chosen = meant_for(device.type, chosen)
        if a.threads is not None:
            torch.set_num_threads(a.threads)
    except AntiadvError as error:
        print(f"speed: {error}", file=sys.stderr)
        return 2
    how = Setting(device, a.precision, a.repeats, sides, a.samples, a.queries, a.batch, a.seed, a.within)
    failed = 0
    for job in chosen:
        try:
            print(perform(job, how, a.out, lambda text: print(text, file=sys.stderr, flush=True)), flush=True)
        except AntiadvError as error:  # the other jobs do not depend on it
            print(f"speed: {error}", file=sys.stderr, flush=True)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
