"""Run one comparison: choose samples, run both sides, judge their images, and return all facts."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal  # Any: what a JSON file holds

import numpy as np
import torch
from torch import Tensor, nn

from antiadv import data, models
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager, Engine
from antiadv.core.errors import BadInput
from antiadv.core.ledger import Ledger
from antiadv.engine.fast import engine as fast_engine
from antiadv.engine.meter import revision, versions
from antiadv.engine.switches import switched
from antiadv.evaluation.cell import Record
from antiadv.evaluation.judge import Predictions, predict_repeated, records, tidy
from antiadv.reporting.measures import standing
from benchmarks.parity.jobs import BATCH, DATA, Job
from benchmarks.parity.sides import Side, full_budget_of_theirs, run_ours, run_theirs
from benchmarks.peers import PEERS, Task

FORMAT = 1

Facts = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """The settings of a comparison, from the command line."""

    device: torch.device
    engine: str = "eager"
    seed: int = 0
    precision: str = "float32"

    def make_engine(self) -> Engine:
        """Return the engine of our passes. Theirs go through the module itself."""
        return fast_engine(self.device, BATCH, self.precision) if self.engine == "fast" else Eager(BATCH)


@dataclass(frozen=True)
class Samples:
    """The samples of a comparison and the clean predictions for them.

    `start` is noise that fools, for attacks on labels. `rows` are the samples that the network gets right.
    """

    net: nn.Module
    ids: list[int]
    x: Tensor
    y: Tensor
    draws: Draws
    clean: Predictions
    rows: Tensor
    start: Tensor | None


def compare(job: Job, samples: int, how: Setting) -> Facts:
    """Run both sides on that many samples, judge them, and return everything that is known."""
    net, dataset = models.load(job.model).to(how.device), data.load(DATA)
    require_samples(samples, dataset)
    passes = how.make_engine()
    with switched("float32", how.device):
        chosen = load_samples(job, net, dataset, samples, how)
        rows, classes = chosen.rows, chosen.clean.scores.shape[2]
        task = Task(net, chosen.x[rows], chosen.y[rows], classes, job.ball, how.seed, chosen.start)
        with switched(how.precision, how.device):
            theirs = run_theirs(job, task)
        budget = budget_of_ours(job, task, theirs)
        with switched(how.precision, how.device):
            ours = run_ours(job, task, torch.tensor(chosen.ids)[rows.cpu()], passes, budget)
        return {
            **header(job, how, samples),
            "weights": models.digest(net),
            "images": dataset.digest,
            "ids": chosen.ids,
            "right": chosen.clean.majority(chosen.y).int().tolist(),
            "budget": budget,
            "ours": judged(job, chosen, ours, job.ours),
            "theirs": judged(job, chosen, theirs, PEERS[job.peer].said),
            "seconds_ratio": round(ours.seconds / theirs.seconds, 4),
        }


def require_samples(samples: int, dataset: data.Dataset) -> None:
    if samples > len(dataset):
        raise BadInput(f"{samples} samples were asked for; {DATA} has {len(dataset)} here. Ask for fewer.")


def require_right(job: Job, right: int, samples: int) -> None:
    if not right:
        raise BadInput(f"{job.model} gets none of the {samples} samples right, so none can be attacked. Ask for more.")


def load_samples(job: Job, net: nn.Module, dataset: data.Dataset, samples: int, how: Setting) -> Samples:
    ids, start = choose_samples(job, net, dataset, samples, how.seed, how.device)
    x, y = dataset.images(ids).to(how.device), dataset.labels(ids).to(how.device)
    draws = Draws.of(how.seed, torch.tensor(ids, device=how.device))
    clean = predict_repeated(net, x, Eager(BATCH), draws)
    rows = clean.majority(y).nonzero().squeeze(1)
    require_right(job, len(rows), len(ids))
    return Samples(net, ids, x, y, draws, clean, rows, start)


def choose_samples(
    job: Job, net: nn.Module, dataset: data.Dataset, samples: int, seed: int, device: torch.device
) -> tuple[list[int], Tensor | None]:
    """Return the first samples.

    For attacks on labels, return the first samples that are classified correctly and whose noise fools, and that noise.
    """
    if job.kind != "distance":
        return list(range(samples)), None
    ids = list(range(min(len(dataset), 4 * samples)))
    x, y = dataset.images(ids).to(device), dataset.labels(ids).to(device)
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)).to(device)
    with torch.no_grad():
        rows = ((net(x).argmax(1) == y) & (net(noise).argmax(1) != y)).nonzero().squeeze(1)[:samples]
    return rows.tolist(), noise[rows]


def budget_of_ours(job: Job, task: Task, theirs: Side) -> int | None:
    """Return the queries per sample that ours may send; None if the job sets no limit."""
    if not job.equal:
        return None
    return theirs.forwards // len(task.x) if job.kind == "distance" else full_budget_of_theirs(job, task)


def judged(job: Job, chosen: Samples, side: Side, text: str) -> Facts:
    """Judge the images of one side in float32 and return its facts. `text` says how the attack was called."""
    x, y, start = chosen.x, chosen.y, chosen.start
    z = x.clone()
    z[chosen.rows] = tidy(x[chosen.rows], side.z.detach().to(x), chosen.rows)
    if start is not None:
        z = over_the_edge(chosen.net, x, y, z)
    attacked = predict_repeated(chosen.net, z, Eager(BATCH), chosen.draws)
    found = records(chosen.ids, y, x, z, chosen.clean, attacked, job.ball, Ledger(len(x)))
    fell = torch.zeros(len(x), dtype=torch.int64)
    if side.fell is not None:
        fell[chosen.rows.cpu()] = side.fell.cpu()
    start_distance = None if start is None else job.ball.distance(x, start).tolist()
    return {"attack": text, **per_sample(job, found, fell, start_distance)} | {
        "forwards": side.forwards,
        "backwards": side.backwards,
        "seconds": round(side.seconds, 2) if x.is_cuda else None,
    }


def over_the_edge(net: nn.Module, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Move images that no longer fool a hundredth further away from x.

    Attacks on labels end on the decision boundary, where rounding in another batch may undo them.
    """
    with torch.no_grad():
        undone = (net(z).argmax(1) == y).view(-1, 1, 1, 1)
    return torch.where(undone, (x + 1.01 * (z - x)).clamp(0, 1), z)


def per_sample(job: Job, judged: Sequence[Record], fell: Tensor, start: Sequence[float] | None) -> Facts:
    """Return what is kept of each sample: whether it is robust, its distance, when it was broken.

    A robust sample has the distance of the noise at which the attack began.
    """
    stands = [standing(r, job.ball) for r in judged]
    found: Facts = {"standing": [int(s) for s in stands]}
    if start is not None:
        found["distance"] = [far if s else r.distance for s, r, far in zip(stands, judged, start, strict=True)]
    if job.kind == "falls":  # 0: wrong without an attack; None: robust
        found["fell"] = [None if s else f for s, f in zip(stands, fell.tolist(), strict=True)]
    return found


def header(job: Job, how: Setting, samples: int) -> Facts:
    """Return the facts that are known before anything runs."""
    options = f"--jobs {job.name} --device {how.device.type} --samples {samples} --engine {how.engine}"
    options += f" --seed {how.seed}" + f" --precision {how.precision}" * (how.precision != "float32")
    return {
        "format": FORMAT,
        "job": job.name,
        "command": f"python -m benchmarks.parity {options}",
        "kind": job.kind,
        "model": job.model,
        "peer": job.peer,
        "data": DATA,
        "threat": str(job.ball),
        "points": job.points,
        "rule": job.rule,
        "seed": how.seed,
        "engine": how.engine,
        "precision": how.precision,
        "device": device_name(how.device),
        "versions": known_versions(PEERS[job.peer].package),
        "revision": revision(),
    }


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def known_versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python, torch, numpy and these packages, as far as they are installed."""
    known = {**versions(), "numpy": np.__version__}
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            known[package] = version(package)
    return known


def worst(job: Job, parts: Sequence[Facts]) -> Facts:
    """Return the worst case of stored comparisons, which must share samples, network and ball."""
    first = parts[0]
    for part in parts[1:]:
        for key in ("model", "weights", "images", "ids", "threat", "seed", "device", "versions"):
            if part[key] != first[key]:
                raise BadInput(
                    f"{job.name} needs its parts to agree; {first['job']} and {part['job']} differ in {key}. "
                    "Delete one of the two files and run it again."
                )
    ours, theirs = worst_side(parts, "ours"), worst_side(parts, "theirs")
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


def worst_side(parts: Sequence[Facts], name: Literal["ours", "theirs"]) -> Facts:
    """Combine one side of all parts: a sample is robust only if it is robust in every part."""
    sides = [part[name] for part in parts]
    seconds = [s["seconds"] for s in sides]
    return {
        "attack": " + ".join(s["attack"] for s in sides),
        "standing": [int(all(each)) for each in zip(*(s["standing"] for s in sides), strict=True)],
        "forwards": sum(s["forwards"] for s in sides),
        "backwards": sum(s["backwards"] for s in sides),
        "seconds": None if None in seconds else round(sum(seconds), 2),
    }
