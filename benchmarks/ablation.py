"""What each rewrite of a network gains: AutoAttack timed with all of them, and with each one left out.

    python -m benchmarks.ablation --networks compact:trades,wrn16-4:trades --out results/bench/ablation

One process per network and variant. All of them compile and warm up side by side; then they are timed one at a time, in
turns, so that no timing shares the GPU. Each network has one JSON file with the seconds of every repeat.

Arguments of a variant: the name of the rewrite that is left out, or `all` (nothing is left out) or `none` (every
rewrite is left out). `ratio` is the shortest time of the variant divided by that of `all`: 1.05 means that the
rewrite saves 5 %.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import antiadv
from antiadv import defences
from antiadv.attacks.white_box.autoattack import Autoattack, stages
from antiadv.core.attack import Attack
from antiadv.core.draws import Draws
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Threat
from antiadv.engine import fast as speed
from antiadv.engine import optimise as ready
from antiadv.engine.meter import revision, versions

REWRITES = {"folded": "fold_norms", "paired": "pair_narrow", "strided": "join_strides"}  # the functions of `ready`


def leave_out(variant: str, kept: list[str]) -> None:
    """Switch off every rewrite that is not kept, and the one of this variant; for `none`, all of them."""
    for name, function in REWRITES.items():
        if variant == "none" or name == variant or name not in kept:
            setattr(ready, function, lambda *_: None)


class Course:
    """One network, bare or through the layer, and the images it is attacked on."""

    def __init__(self, network: str, defence: str, images: int, compiled: bool) -> None:
        self.device = torch.device("cuda")
        net = antiadv.models.load(network).to(self.device)
        self.model = net if defence == "none" else defences.wrap(defence, net)
        data = antiadv.data.load("cifar10:test")
        x, y = data.images(range(images)).to(self.device), data.labels(range(images)).to(self.device)
        with torch.no_grad():
            right = net(x).argmax(1) == y
        self.x, self.y = x[right], y[right]
        self.engine = speed.Fast(512, "half", compiled=compiled)

    def run(self, attack: Attack, part: int | None = None) -> tuple[float, int]:
        """Attack the first `part` images; → seconds, and how many are left standing."""
        x, y = self.x[:part], self.y[:part]
        threat = Threat(antiadv.Linf(8 / 255), attack.access)
        torch.cuda.synchronize()
        start = time.perf_counter()
        oracle = Oracle(self.model, threat, Ledger(len(x)), self.engine)
        z = attack(oracle, x, y, threat.ball, Draws.of(0, torch.arange(len(x), device=self.device)))
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        with torch.no_grad():
            left = int((self.model(z).argmax(1) == y).sum())
        return seconds, left

    def warm_up(self) -> None:
        """Compile, and capture the graphs of the sizes that an attack goes through."""
        for part in (len(self.x), len(self.x) * 3 // 4, len(self.x) // 2, 1):
            for stage in stages():
                self.run(replace(stage, steps=2), part)  # type: ignore[type-var]


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Inside, no other variant is being timed."""
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def child(args: argparse.Namespace) -> int:
    """Warm up, wait for the other variants, then time the attack `repeats` times."""
    leave_out(args.child, args.rewrites.split(","))
    folder = Path(args.folder)
    courses = {
        side: Course(args.networks, defence, images, args.compiled)
        for side, defence, images in (("bare", "none", args.images), ("layer", args.layer, args.layer_images))
        if images
    }
    start = time.perf_counter()
    for course in courses.values():
        course.warm_up()
    seen: dict[str, Any] = {"variant": args.child, "once": time.perf_counter() - start}
    (folder / f"ready-{args.child}").touch()
    while len([*folder.glob("ready-*")]) < args.variants_count:
        time.sleep(0.1)
    for _ in range(args.repeats):
        for side, course in courses.items():
            with alone(folder):
                seconds, left = course.run(Autoattack())
            found = seen.setdefault(side, {"seconds": [], "left": [], "images": len(course.x)})
            found["seconds"].append(seconds)
            found["left"].append(left)
            (folder / f"{args.child}.json").write_text(json.dumps(seen))
            print(f"{args.networks} {args.child} {side}: {seconds:.2f} s, {left} left", flush=True)
    return 0


def compare(args: argparse.Namespace, network: str, out: Path) -> None:
    """Time every variant of one network, and write its file."""
    folder = Path(tempfile.mkdtemp())
    names = ["all", *args.rewrites.split(","), "none"]
    words = [sys.executable, "-m", "benchmarks.ablation", *sys.argv[1:], "--networks", network, "--folder", str(folder)]
    words += ["--variants-count", str(len(names))]
    running = [subprocess.Popen([*words, "--child", name]) for name in names]
    while any(p.poll() is None for p in running):
        if any(p.poll() not in (None, 0) for p in running):
            for p in running:
                p.kill()
            raise SystemExit(f"a variant of {network} failed; see above")
        time.sleep(0.5)
        write(args, network, names, folder, out)
    write(args, network, names, folder, out)


def write(args: argparse.Namespace, network: str, names: list[str], folder: Path, out: Path) -> None:
    """The file of one network, from what its variants have written so far."""
    found = {n: json.loads((folder / f"{n}.json").read_text()) for n in names if (folder / f"{n}.json").exists()}
    for side in ("bare", "layer"):
        full = found.get("all", {}).get(side)
        for facts in found.values():
            if full and side in facts:
                facts[side]["ratio"] = min(facts[side]["seconds"]) / min(full["seconds"])
    facts = {
        "network": network,
        "attack": "autoattack",
        "precision": "half",
        "compiled": args.compiled,
        "rewrites": args.rewrites.split(","),
        "layer": args.layer,
        "device": torch.cuda.get_device_name(),
        "versions": versions(),
        "revision": revision(),
        "command": "python -m benchmarks.ablation " + " ".join(sys.argv[1:]),
        "variants": found,
    }
    name = f"ablation-{network.replace(':', '-')}{'' if args.compiled else '-uncompiled'}.json"
    (out / name).write_text(json.dumps(facts, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="compact:trades,wrn16-4:trades")
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--layer-images", type=int, default=512)
    parser.add_argument("--layer", default="anti_adversary:steps=2,step_size=0.15")
    parser.add_argument("--rewrites", default=",".join(REWRITES), help="those that `all` has")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--compiled", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", default="results/bench/ablation")
    for hidden in ("--child", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--variants-count", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return child(args)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    for network in args.networks.split(","):
        compare(args, network, out)
        print(f"{network}: done", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
