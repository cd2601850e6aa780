"""Run the cells of docs/gate.md for a number of minutes, the most important first. Every call resumes.

    python -m tools.run_gate --minutes 8                what the gated layer gains and costs, into results/gate
    python -m tools.run_gate --list                     what would be run, in which order, and what is stored

    traffic    mean passes, labels changed and accuracy on clean images, for each gate       traffic.json
    attacks    Square, NES and Bandits: bare, with the layer, and with each gate             one cell each
    adaptive   the attack that knows the defence: bare, and with one gate of each network    one cell each

A standard network has α = 0.01 and a radius of 0.031, a robust one α = 0.15 and 8/255. On a GPU the attacks search in
half, except Bandits, which loses successes there (docs/precision.md). A gate that no clean image lies above is the
layer itself, and is not run. The script needs none of the packages of the command line.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any  # what a JSON file holds

import torch
from torch import Tensor, nn

from antiadv import defences
from antiadv.core.errors import AntiadvError
from antiadv.defences.anti_adversary import AntiAdversary
from antiadv.engine.meter import Meter, revision, versions
from antiadv.evaluation import Resources, Store
from antiadv.paper.cost import passes
from antiadv.paper.missing_cells import as_stored, resolve
from antiadv.paper.networks import Network, Source, of_method
from antiadv.paper.settings import EPS, EPS_BLACK_BOX, layer
from antiadv.paper.table_layout import CellRequest
from benchmarks.files import put
from tools.pace import cost
from tools.run_paper import COMPILE, parser, run_all

TRAFFIC = "traffic.json"
GATES = (0.5, 0.7, 0.9, 0.99, 0.999)
ATTACKS = ("square", "nes", "bandits")
QUERIES, SAMPLES, CLEAN = 2000, 500, 1000
BATCH = 100  # of the clean traffic

Facts = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Plan:
    """A network, its layer, its radius, and the gates that matter most for it. The first meets the adaptive attack."""

    network: Network
    alpha: str
    radius: str
    first: tuple[float, ...]

    @property
    def layer(self) -> str:
        return layer(self.network, step_size=self.alpha)

    def gated(self, gate: float) -> str:
        return f"{self.layer}{',' if ':' in self.layer else ':'}gate={gate:g}"

    @property
    def defences(self) -> dict[str, str]:
        """Specs by the names of the page's rows."""
        return {"none": defences.BARE, "layer": self.layer} | {f"gate {g:g}": self.gated(g) for g in GATES}


def three_networks(source: Source | None = None) -> tuple[Network, Network, Network]:
    """The networks of the gate and of the league: a small and a large robust one, and a standard one between."""
    source = Source() if source is None else source
    compact, wide = of_method(source, "cifar10", "trades")
    return compact, of_method(source, "cifar10", "standard")[1], wide


def plans(source: Source | None = None) -> list[Plan]:
    compact, standard, wide = three_networks(source)
    return [
        Plan(compact, "0.15", EPS, (0.5, 0.7)),
        Plan(standard, "0.01", EPS_BLACK_BOX, (0.99, 0.9, 0.999)),
        Plan(wide, "0.15", EPS, (0.5, 0.7)),
    ]


def requests(some: Sequence[Plan], samples: int = SAMPLES, queries: int = QUERIES) -> list[CellRequest]:
    """Each cell once. Cells of one precision follow each other, so that an engine and its graphs are kept."""

    def attacked(plan: Plan, attacks: Sequence[str], specs: Sequence[str]) -> list[CellRequest]:
        black_box = f"{plan.radius},queries={queries}"
        threats = {attack: plan.radius if attack == "adaptive" else black_box for attack in attacks}
        return [CellRequest(plan.network, d, a, threats[a], samples) for d in specs for a in attacks]

    asks: list[CellRequest] = []
    half, exact = ("square", "nes"), ("bandits",)
    first = {plan: (defences.BARE, plan.layer, *map(plan.gated, plan.first)) for plan in some}
    rest = {plan: tuple(plan.gated(g) for g in GATES if g not in plan.first) for plan in some}
    for plan in some:
        asks += attacked(plan, half, first[plan])
        asks += attacked(plan, ("adaptive",), (defences.BARE, plan.gated(plan.first[0])))
    for plan in some:
        asks += attacked(plan, exact, first[plan])
    for attacks in (exact, half):
        for plan in some:
            asks += attacked(plan, attacks, rest[plan])
    return asks


def precision(attack: str, device: torch.device) -> str:
    return "half" if device.type == "cuda" and attack != "bandits" else "float32"


# ---------------------------------------------------------------- clean traffic


def read_traffic(path: Path) -> dict[str, Facts]:
    """What is stored, by network; nothing before the first measurement."""
    found: dict[str, Facts] = json.loads(path.read_text()) if path.exists() else {}
    return found


def measure_traffic(some: Sequence[Plan], path: Path, samples: int, resources: Resources) -> None:
    """Store what each gate costs and changes on clean images. What is stored is not measured again."""
    found = read_traffic(path)
    for plan in some:
        if plan.network.absent:
            print(f"missing: {plan.network.absent}", flush=True)
            continue
        images, began = resources.data(plan.network.data), time.monotonic()
        asked: Facts = {
            "weights": resources.weights(plan.network.model),
            "images": images.digest,
            "samples": samples,
            "defences": {name: defences.full_text(text) for name, text in plan.defences.items()},
        }
        if asked.items() <= found.get(plan.network.name, {}).items():
            continue
        net, ids = resources.model(plan.network.model), range(samples)
        x, y = images.images(ids).to(resources.device), images.labels(ids).to(resources.device)
        seen = {name: traffic(net, text, x, y) for name, text in plan.defences.items() if text != defences.BARE}
        how = {"device": resources.device.type, "versions": versions(), "revision": revision()}
        found[plan.network.name] = {**asked, "found": seen, **how}
        put(found, path)
        means = ", ".join(f"{name} {facts['alone']:.2f}" for name, facts in seen.items())
        print(f"clean traffic of {plan.network.name}: passes {means}; {time.monotonic() - began:.0f} s", flush=True)


@torch.no_grad()
def traffic(net: nn.Module, defence: str, x: Tensor, y: Tensor) -> Facts:
    """Counts of n images: those above the gate, labels that differ from f's, right labels; and mean passes.

    `alone` is the mean for images that come one at a time. A batch in which all samples take the same way costs just
    that, so it is metered on two groups. `mixed` is metered in batches of BATCH, in the order of the images.
    """
    g = defences.wrap(defence, net)
    assert isinstance(g, AntiAdversary)
    s = torch.cat([net(part) for part in x.split(BATCH)])
    on = g.unsure(s)
    metered_passes, t = _metered(g, x.split(BATCH))
    groups = [part for group in (x[on], x[~on]) if len(group) for part in group.split(BATCH)]
    return {
        "n": len(x),
        "above": int((~on).sum()),
        "alone": _metered(g, groups)[0] / len(x),
        "mixed": metered_passes / len(x),
        "changed": int((t.argmax(1) != s.argmax(1)).sum()),
        "right": int((t.argmax(1) == y).sum()),
        "right_bare": int((s.argmax(1) == y).sum()),
    }


def open_gates(plan: Plan, found: Mapping[str, Facts]) -> set[str]:
    """The specs of the gates that no measured clean image lies above: every image takes the steps."""
    seen = found.get(plan.network.name, {}).get("found", {})
    return {plan.defences[name] for name, facts in seen.items() if name != "layer" and facts["above"] == 0}


def _metered(g: AntiAdversary, batches: Sequence[Tensor]) -> tuple[int, Tensor]:
    """Passes, forward and backward together, and scores."""
    with Meter(g.base) as meter:
        scores = torch.cat([g(part) for part in batches])
    return meter.forwards + meter.backwards, scores


# ---------------------------------------------------------------- the command


def main() -> int:
    a = arguments()
    end = time.monotonic() + 60 * a.minutes
    resources, store = Resources(a.device, compiled=a.compile), Store(a.store)
    some = [plan for plan in plans(Source(directory=a.data)) if a.network in plan.network.name]
    path = Path(a.store, TRAFFIC)
    try:
        if not a.list:
            measure_traffic(some, path, a.clean, resources)
        never = {plan.network: open_gates(plan, read_traffic(path)) for plan in some}
    except (AntiadvError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    asks = [ask for ask in requests(some, a.samples, a.queries) if ask.defence not in never[ask.network]]
    asks = [ask for ask in asks if all(word in str(ask) for word in a.only)]
    todo, total = [], 0.0
    for ask in asks:
        cells, missing = resolve([ask], precision(ask.attack, resources.device), resources)
        for m in missing:
            print(f"missing: {ask}: {m.why}", flush=True)
        todo += [(ask, as_stored(cell, store)) for cell in cells]
    if a.list:
        for ask, cell in todo:
            done, most = len(store.done(cell)), ask.samples * passes(ask)
            total += most * (1 - done / ask.samples)
            print(f"{done:5d}/{ask.samples} {most:9.2g} {cost(ask):9.0f} {cell.precision:8} {ask}")
        print(f"at most {total:.3g} passes are left to do")
        return 0
    return run_all(todo, store, resources, end, a)


def arguments() -> argparse.Namespace:
    p = parser(__doc__, "results/gate", minutes=8.0, samples=SAMPLES)
    p.add_argument("--clean", type=int, default=CLEAN, help="images of the clean traffic")
    p.add_argument("--queries", type=int, default=QUERIES, help="budget of the black-box attacks")
    p.add_argument("--network", default="", help="networks whose name holds this")
    p.add_argument("--compile", action="store_true", help=COMPILE)
    return p.parse_args()


if __name__ == "__main__":
    sys.exit(main())
