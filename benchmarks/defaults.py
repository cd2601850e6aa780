"""How fast the defaults are: no options, and everything counted from the start of a fresh process to its end.

    python -m benchmarks.defaults [--jobs bare,large,layer,fast] [--runs theirs,first,second] [--device cuda]
                                  [--model compact:trades] [--data cifar10:dir=FOLDER] [--samples 512]
                                  [--out results/bench]

    bare       AutoAttack on a robust network, 512 images on a GPU, 256 on a CPU
    large      the same on 4,096 images, or as many as the data set has
    layer      AutoAttack through the layer (K = 2, α = 0.15); theirs attacks the authors' structure
    fast       our attack `fast` against their AutoAttack, on 4,096 images; 256 on a CPU

    theirs     pyautoattack, version `standard`, in PyTorch's default precision; jobs on the same images share one run
    first      ours, with an empty cache of compiled code
    second     ours again, in another process that finds what the first left

Each run is a process of its own, and names its revision. Its time includes the interpreter, imports, the network, the
images, compiling, the attack, and one judgement of its images in float32. Runs that are stored are not run again, so a
long job may be made in several calls. pyautoattack must be importable: it may lie in a folder on PYTHONPATH.

The network is the PreActResNet-18 of the speed benchmark if its weights are there, else wrn16-4:trades; on a CPU
compact:trades.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any  # what a JSON file holds

import torch
from torch import Tensor, nn

import antiadv
from antiadv import AntiAdversary, Linf, attacks, data, models
from antiadv.core.engine import Eager
from antiadv.core.errors import AntiadvError, BadSpec
from antiadv.engine.meter import revision
from antiadv.engine.switches import switched
from antiadv.evaluation.resources import find_device
from benchmarks.authors import Authors
from benchmarks.files import ROOT, pick, put
from benchmarks.parity.compare import device_name, known_versions
from benchmarks.peers import PEERS, Task
from benchmarks.speed.jobs import ROBUST
from benchmarks.timing import OtherPrograms

BALL, CLASSES = Linf(8 / 255), 10
STEPS, STEP_SIZE = 2, 0.15  # of the layer
RUNS = ("theirs", "first", "second")
MOST_AT_ONCE = 512  # images that theirs is given at a time
POINTS = 0.3  # how much more ours may leave standing

Facts = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """An attack of ours, its images, and the targets: how many times as fast the first and the second process are."""

    name: str
    attack: str
    layer: bool
    samples: dict[str, int]
    targets: dict[str, tuple[float, float]]


JOBS = {
    job.name: job
    for job in (
        Job("bare", "autoattack", False, {"cuda": 512, "cpu": 256}, {"cuda": (2, 3.5), "cpu": (2, 2)}),
        Job("large", "autoattack", False, {"cuda": 4096}, {"cuda": (4.5, 4.5)}),
        Job("layer", "autoattack", True, {"cuda": 512}, {"cuda": (3.5, 3.5)}),
        Job("fast", "fast", False, {"cuda": 4096, "cpu": 256}, {"cuda": (40, 40), "cpu": (25, 25)}),
    )
}


# ---------------------------------------------------------------- one run, in a process of its own


def standing(net: nn.Module, z: Tensor, y: Tensor) -> int:
    """Count the images that the network itself classifies correctly, in float32."""
    with switched("float32", z.device):
        return int((Eager(256).scores(net, z).argmax(1) == y).sum())


def theirs(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    peer = PEERS["pyautoattack standard"]
    parts = zip(x.split(MOST_AT_ONCE), y.split(MOST_AT_ONCE), strict=True)
    return torch.cat([peer.run(Task(net, part, labels, CLASSES, BALL, 0), False).z for part, labels in parts])


def run_here(job: Job, run: str, what: Facts) -> Facts:
    """Make one run in this process. Called by `timed`."""
    net, dataset = models.load(what["model"]).to(what["device"]), data.load(what["data"])
    ids = range(what["samples"])
    x, y = dataset.images(ids).to(what["device"]), dataset.labels(ids).to(what["device"])
    judged = AntiAdversary(net, STEPS, STEP_SIZE) if job.layer else net
    if run == "theirs":
        attacked = Authors(net, STEPS, STEP_SIZE) if job.layer else net
        return {"standing": standing(judged, theirs(attacked, x, y), y)}
    outcome = antiadv.attack(judged, x, y, job.attack, BALL)
    left = len(x) - int(outcome.fooled.sum())
    return {"standing": left, "compiled": outcome.receipt.compiled}


def timed(job: Job, run: str, what: Facts, cache: Path) -> Facts:
    """Make one run in a fresh process, and measure the time from its start to its end."""
    folders = {
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "XDG_CACHE_HOME": str(cache),
    }
    words = [sys.executable, "-W", "ignore", "-m", "benchmarks.defaults", "--one", json.dumps([job.name, run, what])]
    with OtherPrograms() as others:
        start = time.perf_counter()
        done = subprocess.run(words, stdout=subprocess.PIPE, env={**os.environ, **folders}, cwd=ROOT, check=True)
        seconds = time.perf_counter() - start
    found: Facts = json.loads(done.stdout.splitlines()[-1])
    return {**found, "seconds": round(seconds, 2), "others": others.share, "revision": revision()}


# ---------------------------------------------------------------- a job


def header(job: Job, what: Facts) -> Facts:
    device = torch.device(what["device"])
    first, second = job.targets[device.type]
    return {
        "kind": "defaults",
        "job": job.name,
        "command": f"python -m benchmarks.defaults --jobs {job.name} --device {device.type} --model {what['model']} "
        f"--data {what['data']} --samples {what['samples']}",
        **what,
        "weights": models.digest(models.load(what["model"])),
        "attack": job.attack,
        "layer": f"anti_adversary:steps={STEPS},step_size={STEP_SIZE}" if job.layer else None,
        "targets": {"first": first, "second": second},
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "versions": known_versions(PEERS["pyautoattack standard"].package),
        "revision": revision(),
        "runs": {},
    }


def verdict(facts: Facts) -> Facts:
    """Return how many times as fast each run of ours was, how many more points it left, and whether targets are met."""
    runs, other = facts["runs"], facts["runs"].get("theirs")
    if other is None:
        return {}
    made = {}
    for name in (name for name in ("first", "second") if name in runs):
        faster = other["seconds"] / runs[name]["seconds"]
        points = 100 * (runs[name]["standing"] - other["standing"]) / facts["samples"]
        met = faster >= facts["targets"][name] and points <= POINTS
        made[name] = {"times_faster": round(faster, 2), "points": round(points, 2), "met": met}
    return made


ALIKE = "model", "weights", "data", "samples", "layer", "device", "threads", "versions", "revision"


def stored_theirs(facts: Facts, out: Path) -> Facts | None:
    """The run of theirs that another job made of the same network and images, with the same code."""
    for path in sorted(out.glob("defaults-*.json")):
        other = json.loads(path.read_text())
        if "theirs" in other["runs"] and all(other[key] == facts[key] for key in ALIKE):
            theirs: Facts = {**other["runs"]["theirs"], "made_by": other["job"]}
            return theirs
    return None


def perform(job: Job, runs: list[str], what: Facts, out: Path, cache: Path) -> str:
    """Make the missing runs of a job, and store each at once. Return a line for the terminal."""
    kind = torch.device(what["device"]).type
    path = out / f"defaults-{job.name}-{kind}.json"
    facts = json.loads(path.read_text()) if path.exists() else header(job, what)
    if any(facts[key] != what[key] for key in ("model", "data", "samples")):
        raise BadSpec(f"{path} holds other runs ({facts['command']}); move it away, or ask for the same.")
    for run in runs:
        if run not in facts["runs"]:
            shared = stored_theirs(facts, out) if run == "theirs" else None
            facts["runs"][run] = shared or timed(job, run, what, cache)
            facts["verdict"] = verdict(facts)
            put(facts, path)
    each = [f"{name} {r['seconds']:.1f} s, {r['standing']} left" for name, r in facts["runs"].items()]
    ratios = [f"{name} {v['times_faster']:.2f} times as fast" for name, v in facts["verdict"].items()]
    return f"{job.name} ({facts['samples']} images, {kind}): {'; '.join(each + ratios)}"


def default_model(kind: str) -> str:
    if kind != "cuda":
        return "compact:trades"
    return f"file:{ROBUST}" if (ROOT / ROBUST).exists() else "wrn16-4:trades"


def wanted(job: Job, a: argparse.Namespace, device: torch.device) -> Facts:
    """What a job runs on: as many images as it asks for and the data set has."""
    there = len(data.load(a.data))
    samples = min(a.samples or job.samples[device.type], there)
    model = a.model or default_model(device.type)
    return {"model": model, "data": a.data, "samples": samples, "device": str(device)}


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--jobs", default="*", help="names or patterns, separated by commas; those meant for the device")
    p.add_argument("--runs", default=",".join(RUNS), help="of " + ", ".join(RUNS) + ", separated by commas")
    p.add_argument("--device", default=None, help="cuda where there is a GPU, else cpu")
    p.add_argument("--model", default=None)
    p.add_argument("--data", default="cifar10:test", help="cifar10:test,dir=FOLDER has all 10,000 images")
    p.add_argument("--samples", type=int, default=None, help="number of images; by default that of the job")
    p.add_argument("--cache", type=Path, default=None, help="folder for compiled code; by default a new one")
    p.add_argument("--out", type=Path, default=ROOT / "results" / "bench")
    p.add_argument("--one", default=None, help=argparse.SUPPRESS)
    return p.parse_args()


def main() -> int:
    a = arguments()
    if a.one is not None:
        name, run, what = json.loads(a.one)
        print(json.dumps(run_here(JOBS[name], run, what)))
        return 0
    try:
        device, runs = find_device(a.device), a.runs.split(",")
        if unknown := set(runs) - set(RUNS):
            raise BadSpec(f"there is no run {', '.join(sorted(unknown))}; known are {', '.join(RUNS)}.")
        chosen = [job for job in pick(a.jobs, JOBS) if device.type in job.targets and job.attack in attacks.ATTACKS]
        with tempfile.TemporaryDirectory() as folder:
            for job in chosen:
                cache = (a.cache or Path(folder)) / job.name
                print(perform(job, runs, wanted(job, a, device), a.out, cache.absolute()), flush=True)
    except AntiadvError as error:
        print(f"defaults: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
