"""The settings of a job from the command line, and the facts that follow from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any  # what a JSON file holds

import torch

from antiadv.core.engine import Engine
from antiadv.engine.fast import engine
from antiadv.engine.meter import revision
from antiadv.engine.precision import PRECISIONS
from benchmarks.parity.compare import device_name, known_versions
from benchmarks.parity.jobs import BATCH, DATA
from benchmarks.peers import PEERS
from benchmarks.speed.jobs import CPU_SAMPLES, OVERHEAD, SMALL_BATCH, Lone, Race

SIDES = ("ours", "compiled", "half", "mixed")  # the last two search in that precision, whatever theirs runs in
OVERHEAD_QUERIES = 128  # per sample: enough for one step of every attack, the longest being the 101 queries of NES
FORMAT = 1

Facts = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """The settings from the command line. No repeat begins that would end after `within` seconds of wall time."""

    device: torch.device
    precision: str = "float32"
    repeats: int = 3
    sides: tuple[str, ...] = ("ours",)
    samples: int | None = None
    queries: int | None = None
    batch: int | None = None
    seed: int = 0
    within: float = math.inf

    @property
    def batch_size(self) -> int:
        return self.batch or (BATCH if self.device.type == "cuda" else SMALL_BATCH)

    @property
    def compiled(self) -> bool:
        """Whether any side runs on a compiled network."""
        return self.sides != ("ours",)

    def engine(self, side: str) -> Engine:
        precision = side if side in PRECISIONS else self.precision
        return engine(self.device, self.batch_size, precision, compiled=side != "ours")

    def race(self, race: Race) -> Race:
        """Return the race with the queries that were asked for."""
        return race if self.queries is None or race.queries is None else replace(race, queries=self.queries)

    def samples_of(self, race: Race) -> int:
        most = race.pair.samples
        return self.samples or (CPU_SAMPLES.get(race.name, most) if self.device.type == "cpu" else most)


def header(job: Race | Lone, how: Setting, samples: int) -> Facts:
    """Return the facts that are known before anything runs."""
    kind = how.device.type
    return {
        "format": FORMAT,
        "job": job.name,
        "command": f"python -m benchmarks.speed {options(job, how, samples)}",
        **(race_facts(job) if isinstance(job, Race) else {}),
        "target": job.target(kind),
        "data": DATA,
        "samples": samples,
        "seed": how.seed,
        "precision": how.precision,
        "batch": how.batch_size,
        "repeats": how.repeats,
        "device": device_name(how.device),
        "threads": torch.get_num_threads(),
        "versions": known_versions(*([PEERS[job.pair.peer].package] if isinstance(job, Race) else [])),
        "revision": revision(),
    }


def options(job: Race | Lone, how: Setting, samples: int) -> str:
    """Return the options of the command that repeats this run."""
    parts = [f"--jobs {job.name} --device {how.device.type} --precision {how.precision} --samples {samples}"]
    parts.append(f"--repeats {how.repeats} --batch {how.batch_size} --seed {how.seed}")
    if job == OVERHEAD:
        parts.append(f"--queries {how.queries or OVERHEAD_QUERIES}")
    else:
        if isinstance(job, Race) and job.queries is not None:
            parts.append(f"--queries {job.queries}")
        parts.append(f"--sides {','.join(how.sides)}")
    if how.device.type == "cpu":
        parts.append(f"--threads {torch.get_num_threads()}")
    return " ".join(parts)


def options_of(command: str) -> str:
    """Return the options of a stored command. Older files call the program `benchmarks/speed.py`."""
    return command[command.index("--") :]


def race_facts(race: Race) -> Facts:
    return {
        "kind": race.pair.kind,
        "model": race.pair.model,
        "layer": race.layer,
        "peer": race.pair.peer,
        "threat": str(race.pair.ball),
        "queries": race.queries,
        "points": race.pair.points,
        "rule": race.pair.rule,
    }
