"""Ours beside theirs: the same network, images, ball and seed, in one process; what came of it as one file per job.

    parity.py --list                                     every job, and whether it is stored
    parity.py --jobs 'pyautoattack-*-compact-trades'     those not stored yet, one after the other
              --device cuda --samples 512 --engine fast --out results/parity

    judge     both sides' images by the judge of the house: put into the box, labelled in float32, measured; the
              precision in which both sides search is stated
    count     images through the network, forward and backward, by hooks on it
    budget    `equal` jobs: ours may spend on a sample what theirs sends for one that nothing fools (scores), or what
              theirs was seen to send for each on average (labels)
    rule      standing   accuracy under ours − under theirs ≤ so many points, on the same samples
              falls      the same after 5,000 and 10,000 queries in the authors' counting
              distance   median distance of ours ≤ 1.05 · of theirs; what rounding puts back over the boundary is
                         judged a hundredth further out
              worst      standing in every one of the stored parts; no attack is run again

Theirs runs first; each side warms up before it is timed. Seconds are kept on a GPU; on a CPU only the ratio of both
sides' processor time. A file is written beside and renamed, and holds facts by sample; its `verdict` is
`verdict(facts)`, as a test repeats. Networks that come with the project; images of the embedded slice of CIFAR-10, from
the first on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal  # Any: what a json file holds

import numpy as np
import torch
from filing import pick, put
from peers import PEERS, Task
from torch import Tensor, nn

from antiadv import attacks, data, models
from antiadv.attacks.decision_based.nearest import Nearest
from antiadv.attacks.score_based.nes import published_queries
from antiadv.core.attack import Attack
from antiadv.core.ball import L2, Ball, Linf
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager, Engine
from antiadv.core.errors import AntiadvError, BadInput
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Threat
from antiadv.evaluate.cell import Record
from antiadv.evaluate.judge import look, records, tidy
from antiadv.evaluate.meter import Meter, revision, versions
from antiadv.evaluate.precision import PRECISIONS, switched
from antiadv.evaluate.speed import engine as fast_engine
from antiadv.evaluate.world import find_device
from antiadv.report.measures import difference, share, standing

ROOT = Path(__file__).resolve().parents[1]
DATA = "cifar10:test"
BATCH = 512
AFTER = (5_000, 10_000)  # queries in the authors' counting at which NES and Bandits are compared
LONGER = 1.05  # how much longer our median distance may be
FORMAT = 1

Kind = Literal["standing", "falls", "distance", "worst"]
Facts = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One comparison. `points`: what the rule allows, in per cent of accuracy; `parts`: the jobs of a worst case."""

    name: str
    kind: Kind
    model: str
    ours: str
    peer: str
    ball: Ball
    points: float = 0.5
    equal: bool = False
    samples: int = 512
    parts: tuple[str, ...] = ()

    @property
    def rule(self) -> str:
        if self.kind == "distance":
            return f"median distance at most {LONGER:g} times theirs"
        after = " after 5,000 and 10,000 queries" * (self.kind == "falls")
        return f"accuracy{after} not higher by more than {self.points:g} points"


def _jobs() -> list[Job]:
    found: list[Job] = []
    for model in ("compact:trades", "compact:standard", "wrn16-4:trades"):
        four = {
            "apgd-ce": "apgd:loss=ce",
            "apgd-t": "apgd:loss=dlr,targets=9",
            "fab-t": "fab:targets=9",
            "square": "square",
        }
        own = [
            Job(f"pyautoattack-{name}-{_plain(model)}", "standing", model, text, f"pyautoattack {name}", Linf(8 / 255))
            for name, text in four.items()
        ]
        worst = Job(
            f"pyautoattack-worst-{_plain(model)}",
            "worst",
            model,
            "autoattack:version=standard",
            "pyautoattack",
            Linf(8 / 255),
            points=0.3,
            parts=tuple(job.name for job in own),
        )
        found += [*own, worst]
    model = "resnet18:standard"  # 10/31 of the radius are the published steps of 0.01
    for name, text in (("nes", "nes:step_size=10/31"), ("bandits", "bandits:tile=16,step_size=10/31")):
        found.append(
            Job(
                f"published-{name}-{_plain(model)}",
                "falls",
                model,
                text,
                f"published {name}",
                Linf(0.031),
                points=2.0,
            )
        )
    for model in ("compact:trades", "compact:standard"):
        for peer, text, ball, samples in (
            ("torchattacks apgd", "apgd:loss=ce", Linf(8 / 255), 100),
            ("torchattacks square", "square:rescale=true", Linf(8 / 255), 100),
            ("art square", "square:rescale=true", Linf(8 / 255), 100),
            ("art simba", "simba:step_size=0.05", L2(4), 32),
            ("art simba-dct", "simba:basis=dct,step_size=0.05,frequencies=8", L2(4), 32),
        ):
            name, equal = f"{peer.replace(' ', '-')}-{_plain(model)}", "apgd" not in peer
            found.append(Job(name, "standing", model, text, peer, ball, equal=equal, samples=samples))
        for peer, text in (
            ("foolbox hop_skip_jump", "hop_skip_jump"),
            ("foolbox boundary", "boundary"),
            ("art hop_skip_jump", "hop_skip_jump"),
            ("art boundary", "boundary"),
        ):
            name = f"{peer.replace(' ', '-')}-{_plain(model)}"
            found.append(Job(name, "distance", model, text, peer, L2(math.inf), equal=True, samples=24))
    return found


def _plain(model: str) -> str:
    return model.replace(":", "-")


JOBS = {job.name: job for job in _jobs()}


# ---------------------------------------------------------------- the two sides


@dataclass(frozen=True)
class Side:
    """What one side came to: images, passes, seconds; `fell`: the published count at which each sample did."""

    z: Tensor
    forwards: int
    backwards: int
    seconds: float
    fell: Tensor | None = None


def choose_engine(name: str, device: torch.device, precision: str) -> Engine:
    """How our passes are made. Theirs go through the module as it stands."""
    return fast_engine(device, BATCH, precision) if name == "fast" else Eager(BATCH)


def run_theirs(job: Job, task: Task) -> Side:
    peer = PEERS[job.peer]
    with seeded(task.seed):
        peer.run(task[torch.arange(1 if peer.alone else len(task.x))], True)
    clock, size = Clock(task.x.device), 1 if peer.alone else len(task.x)
    with seeded(task.seed), Meter(task.net) as meter, clock:
        found = [peer.run(task[rows], False) for rows in torch.arange(len(task.x)).split(size)]
    fell = [part.fell for part in found if part.fell is not None]
    z = torch.cat([part.z for part in found])
    return Side(z, meter.forwards, meter.backwards, clock.seconds, torch.cat(fell) if fell else None)


class Rock(nn.Module):
    """A network that nothing fools: it answers y to whatever it is shown."""

    def __init__(self, y: int, classes: int) -> None:
        super().__init__()
        self.answer = nn.Parameter(torch.eye(classes)[y], requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.answer.repeat(len(x), 1)


def most_of_theirs(job: Job, task: Task) -> int:
    """What theirs sends for a sample that stands to the end."""
    rock = Rock(int(task.y[0]), task.classes).to(task.x.device)
    with seeded(task.seed), Meter(rock) as meter:
        PEERS[job.peer].run(replace(task[torch.arange(1)], net=rock), False)
    return meter.forwards


def run_ours(job: Job, task: Task, ids: Tensor, engine: Engine, budget: int | None) -> Side:
    attack = attacks.parse(job.ours)
    threat, dice = Threat(task.ball, attack.access, budget), Draws.of(task.seed, ids.to(task.x.device))

    def run(attack: Attack, threat: Threat) -> tuple[Tensor, Ledger]:
        ledger = Ledger(len(task.x), threat.queries)
        oracle = Oracle(task.net, threat, ledger, engine)
        with beginning_at(task.start):
            return attack(oracle, task.x, task.y, task.ball, dice), ledger

    clock = Clock(task.x.device)
    with Meter(task.net):  # open while graphs are captured, so that they know what to bill
        run(replace(attack, steps=2), replace(threat, queries=None))  # type: ignore[type-var]
    with Meter(task.net) as meter, clock:
        z, ledger = run(attack, threat)
    fell = None
    if job.kind == "falls":
        probes = getattr(attack, "probes", 1)
        fell = torch.tensor([published_queries(q, probes) for q in ledger.queries.tolist()])
    return Side(z, meter.forwards, meter.backwards, clock.seconds, fell)


class Clock:
    """Seconds of what runs inside: on a GPU those of the wall, the device waited for at both ends; on a CPU those of
    the processor, since other work shares it, unless the wall's are asked."""

    def __init__(self, device: torch.device, wall: bool = False) -> None:
        self._device, self._wall, self.seconds = device, wall, 0.0

    def __enter__(self) -> Clock:
        self._start = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = self._now() - self._start

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            return time.perf_counter()
        return time.perf_counter() if self._wall else time.process_time()


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Every global generator that the peers draw from starts at the seed, and is put back."""
    state, other = np.random.get_state(), random.getstate()  # noqa: NPY002 - see below
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - it is the one ART draws from
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002
            random.setstate(other)


@contextlib.contextmanager
def beginning_at(start: Tensor | None) -> Iterator[None]:
    """Our attacks on labels begin at this noise instead of their own, so that both sides walk from one place."""
    own = Nearest.start

    def given(self: Nearest, draws: Draws, tries: int) -> Tensor:
        assert start is not None
        every = torch.arange(len(self.x), device=self.x.device)
        self.ask(every, start)
        return every[self.distance < math.inf]

    if start is not None:
        Nearest.start = given  # type: ignore[method-assign]
    try:
        yield
    finally:
        Nearest.start = own  # type: ignore[method-assign]


# ---------------------------------------------------------------- one job


def compare(job: Job, device: torch.device, samples: int, engine: str, seed: int, precision: str = "float32") -> Facts:
    """Run both sides, judge them, and say everything that is known."""
    net, dataset = models.load(job.model).to(device), data.load(DATA)
    if samples > len(dataset):
        raise BadInput(f"{samples} samples were asked for; {DATA} has {len(dataset)} here. Ask for fewer.")
    passes = choose_engine(engine, device, precision)
    with switched("float32", device):
        ids, start = choose_samples(job, net, dataset, samples, seed, device)
        x, y = dataset.images(ids).to(device), dataset.labels(ids).to(device)
        dice = Draws.of(seed, torch.tensor(ids, device=device))
        clean = look(net, x, Eager(BATCH), dice)
        rows = clean.majority(y).nonzero().squeeze(1)
        if not len(rows):
            raise BadInput(
                f"{job.model} gets none of the {len(ids)} samples right, so none can be attacked. Ask for more."
            )
        task = Task(net, x[rows], y[rows], clean.scores.shape[2], job.ball, seed, start)
        with switched(precision, device):
            theirs = run_theirs(job, task)
        budget = None
        if job.equal and job.kind == "distance":
            budget = theirs.forwards // len(rows)
        elif job.equal:
            budget = most_of_theirs(job, task)
        with switched(precision, device):
            ours = run_ours(job, task, torch.tensor(ids)[rows.cpu()], passes, budget)
        start_at = None if start is None else job.ball.distance(x, start).tolist()

        def facts(side: Side, said: str) -> Facts:
            z = x.clone()
            z[rows] = tidy(x[rows], side.z.detach().to(x))
            if start is not None:
                z = over_the_edge(net, x, y, z)
            judged = records(ids, y, x, z, clean, look(net, z, Eager(BATCH), dice), job.ball, Ledger(len(x)))
            fell = torch.zeros(len(x), dtype=torch.int64)
            if side.fell is not None:
                fell[rows.cpu()] = side.fell.cpu()
            return {"attack": said, **_columns(job, judged, fell, start_at)} | {
                "forwards": side.forwards,
                "backwards": side.backwards,
                "seconds": round(side.seconds, 2) if device.type == "cuda" else None,
            }

        return {
            **_head(job, device, engine, seed, samples, precision),
            "weights": models.digest(net),
            "images": dataset.digest,
            "ids": ids,
            "right": clean.majority(y).int().tolist(),
            "budget": budget,
            "ours": facts(ours, job.ours),
            "theirs": facts(theirs, PEERS[job.peer].said),
            "seconds_ratio": round(ours.seconds / theirs.seconds, 4),
        }


def choose_samples(
    job: Job, net: nn.Module, dataset: data.Dataset, samples: int, seed: int, device: torch.device
) -> tuple[list[int], Tensor | None]:
    """The first samples; for attacks on labels the first that are right and that noise fools, and that noise."""
    if job.kind != "distance":
        return list(range(samples)), None
    ids = list(range(min(len(dataset), 4 * samples)))
    x, y = dataset.images(ids).to(device), dataset.labels(ids).to(device)
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)).to(device)
    with torch.no_grad():
        rows = ((net(x).argmax(1) == y) & (net(noise).argmax(1) != y)).nonzero().squeeze(1)[:samples]
    return rows.tolist(), noise[rows]


def over_the_edge(net: nn.Module, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Attacks on labels end on the boundary, where rounding in another batch may undo them: those that it undid, a
    hundredth further out."""
    with torch.no_grad():
        undone = (net(z).argmax(1) == y).view(-1, 1, 1, 1)
    return torch.where(undone, (x + 1.01 * (z - x)).clamp(0, 1), z)


def _columns(job: Job, judged: Sequence[Record], fell: Tensor, start: Sequence[float] | None) -> Facts:
    """What is kept of each sample. Whoever returns what does not fool is as far as the noise it began at."""
    stands = [standing(r, job.ball) for r in judged]
    found: Facts = {"standing": [int(s) for s in stands]}
    if start is not None:
        found["distance"] = [far if s else r.distance for s, r, far in zip(stands, judged, start, strict=True)]
    if job.kind == "falls":  # 0: wrong from the start; none: it stands
        found["fell"] = [None if s else f for s, f in zip(stands, fell.tolist(), strict=True)]
    return found


def _head(job: Job, device: torch.device, engine: str, seed: int, samples: int, precision: str) -> Facts:
    known = {**versions(), "numpy": np.__version__}
    package = PEERS[job.peer].package
    with contextlib.suppress(PackageNotFoundError):
        known[package] = version(package)
    said = f"--jobs {job.name} --device {device.type} --samples {samples} --engine {engine} --seed {seed}"
    said += f" --precision {precision}" * (precision != "float32")
    return {
        "format": FORMAT,
        "job": job.name,
        "command": f"python benchmarks/parity.py {said}",
        "kind": job.kind,
        "model": job.model,
        "peer": job.peer,
        "data": DATA,
        "threat": str(job.ball),
        "points": job.points,
        "rule": job.rule,
        "seed": seed,
        "engine": engine,
        "precision": precision,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "versions": known,
        "revision": revision(),
    }


def worst(job: Job, parts: Sequence[Facts]) -> Facts:
    """The worst case of stored comparisons, which must be of the same samples, network and ball."""
    first = parts[0]
    same = ("model", "weights", "images", "ids", "threat", "seed", "device", "versions")
    for part in parts[1:]:
        for key in same:
            if part[key] != first[key]:
                raise BadInput(
                    f"{job.name} needs its parts to agree; {first['job']} and {part['job']} differ in {key}. "
                    "Delete one of the two files and run it again."
                )

    def side(name: Literal["ours", "theirs"]) -> Facts:
        sides = [part[name] for part in parts]
        seconds = [s["seconds"] for s in sides]
        return {
            "attack": " + ".join(s["attack"] for s in sides),
            "standing": [int(all(each)) for each in zip(*(s["standing"] for s in sides), strict=True)],
            "forwards": sum(s["forwards"] for s in sides),
            "backwards": sum(s["backwards"] for s in sides),
            "seconds": None if None in seconds else round(sum(seconds), 2),
        }

    ours, theirs = side("ours"), side("theirs")
    return {
        **first,
        "job": job.name,
        "command": " && ".join(part["command"] for part in parts),
        "kind": job.kind,
        "peer": job.peer,
        "points": job.points,
        "rule": job.rule,
        "parts": list(job.parts),
        "ours": ours,
        "theirs": theirs,
        "seconds_ratio": round(ours["seconds"] / theirs["seconds"], 4) if theirs["seconds"] else None,
    }


# ---------------------------------------------------------------- the verdict: a function of the facts


def verdict(facts: Facts) -> Facts:
    """Each comparison the rule asks for, with its interval, and whether all of them hold."""
    if facts["kind"] == "distance":
        checks = [_distances(facts)]
    elif facts["kind"] == "falls":
        checks = [_accuracies(facts, after) for after in AFTER]
    else:
        checks = [_accuracies(facts, None)]
    return {"checks": checks, "holds": all(check["holds"] for check in checks)}


def _accuracies(facts: Facts, after: int | None) -> Facts:
    def stands(side: Facts) -> dict[int, bool]:
        still = [bool(s) for s in side["standing"]]
        if after is not None:  # the loop ends before it reaches the budget
            still = [s or f >= after for s, f in zip(still, (f or 0 for f in side["fell"]), strict=True)]
        return dict(zip(facts["ids"], still, strict=True))

    ours, theirs = stands(facts["ours"]), stands(facts["theirs"])
    more = sum(ours.values()) - sum(theirs.values())
    return {
        "what": "robust accuracy" if after is None else f"accuracy after {after:,} queries",
        "ours": _rounded(asdict(share(sum(ours.values()), len(ours)))),
        "theirs": _rounded(asdict(share(sum(theirs.values()), len(theirs)))),
        "difference": _rounded(asdict(difference(theirs, ours))),
        "holds": more <= facts["points"] / 100 * len(ours) + 1e-9,
    }


def _distances(facts: Facts) -> Facts:
    """Medians over samples, and an interval of their ratio by resampling samples."""
    both = np.array([facts[side]["distance"] for side in ("ours", "theirs")])
    ours, theirs = np.median(both, axis=1).tolist()
    rows = np.random.default_rng(0).integers(0, both.shape[1], (2000, both.shape[1]))
    middle = np.median(both[:, rows], axis=2)
    low, high = np.quantile(middle[0] / middle[1], [0.025, 0.975]).tolist()
    return {
        "what": "median L2 distance",
        "ours": round(ours, 4),
        "theirs": round(theirs, 4),
        "ratio": {"value": round(ours / theirs, 4), "low": round(low, 4), "high": round(high, 4)},
        "allowed": LONGER,
        "median_of_ratios": round(float(np.median(both[0] / both[1])), 4),
        "holds": ours <= LONGER * theirs,
    }


def _rounded(values: Facts) -> Facts:
    return {key: round(value, 6) if isinstance(value, float) else value for key, value in values.items()}


# ---------------------------------------------------------------- files


def write(facts: Facts, folder: Path) -> Path:
    """Facts and verdict; samples that follow each other as START:STOP."""
    ids = facts["ids"]
    unbroken = ids == list(range(ids[0], ids[-1] + 1))
    said = {**facts, "ids": f"{ids[0]}:{ids[-1] + 1}" if unbroken else ids, "verdict": verdict(facts)}
    return put(said, folder / f"{facts['job']}.json")


def read(path: Path) -> Facts:
    try:
        facts: Facts = json.loads(path.read_text())
        if facts["format"] != FORMAT or facts["job"] != path.stem:
            raise ValueError(f"format {facts['format']}, job {facts['job']}")
        if isinstance(facts["ids"], str):
            facts["ids"] = list(range(*map(int, facts["ids"].split(":"))))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise BadInput(f"{path} is not a stored comparison ({error}). Delete it and run the job again.") from error
    return facts


# ---------------------------------------------------------------- command line


def perform(
    job: Job, out: Path, device: torch.device, samples: int | None, engine: str, seed: int, precision: str = "float32"
) -> Facts:
    """One job, stored."""
    if job.kind == "worst":
        missing = [part for part in job.parts if not (out / f"{part}.json").exists()]
        if missing:
            raise BadInput(
                f"{job.name} is made of stored jobs; {', '.join(missing)} not found in {out}. Run them first."
            )
        facts = worst(job, [read(out / f"{part}.json") for part in job.parts])
    else:
        facts = compare(job, device, samples or job.samples, engine, seed, precision)
    return read(write(facts, out))


def told(facts: Facts) -> str:
    """One line for the terminal."""
    said = []
    for check in facts["verdict"]["checks"]:
        if "ratio" in check:
            said.append(f"{check['what']}: ours {check['ours']}, theirs {check['theirs']}")
        else:
            ours, theirs = 100 * check["ours"]["value"], 100 * check["theirs"]["value"]
            said.append(f"{check['what']}: ours {ours:.1f}, theirs {theirs:.1f}")
    ratio = "" if facts["seconds_ratio"] is None else f"; seconds, ours over theirs {facts['seconds_ratio']:.2f}"
    ending = "holds" if facts["verdict"]["holds"] else "DOES NOT HOLD"
    return f"{facts['job']}: {'; '.join(said)} ({len(facts['ids'])} samples){ratio}; {ending}"


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--list", action="store_true", help="every job, and whether it is stored")
    p.add_argument("--jobs", default="*", help="names or patterns, separated by commas")
    p.add_argument("--device", default=None, help="cuda where there is a GPU, else cpu")
    p.add_argument("--samples", type=int, default=None, help="how many images; by default what the job says")
    p.add_argument("--engine", choices=("eager", "fast"), default="eager", help="how our passes are made")
    p.add_argument("--precision", choices=PRECISIONS, default="float32", help="what both sides search in")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--out", type=Path, default=ROOT / "results" / "parity")
    a = p.parse_args()
    try:
        chosen = pick(a.jobs, JOBS)
        if a.list:
            for job in chosen:
                stored = "stored" if (a.out / f"{job.name}.json").exists() else ""
                print(f"{job.name:45}  {job.model:18}  {job.samples:4}  {job.ours:45}  {stored}".rstrip())
            return 0
        if a.samples is not None and a.samples < 1:
            raise BadInput(f"--samples must be at least 1; found {a.samples}.")
        device = find_device(a.device)
    except AntiadvError as error:
        print(f"parity: {error}", file=sys.stderr)
        return 2
    failed = 0
    for job in chosen:
        path = a.out / f"{job.name}.json"
        try:
            how = device, a.samples, a.engine, a.seed, a.precision
            found = read(path) if path.exists() else perform(job, a.out, *how)
            print(told(found), flush=True)
        except AntiadvError as error:  # the other jobs do not depend on it
            print(f"parity: {error}", file=sys.stderr, flush=True)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
