"""Run the cells of docs/league.md for a number of minutes, the most important first. Every call resumes.

    python -m tools.run_league --minutes 8                 three networks and all defences, into results/league
    python -m tools.run_league --list                      what would be run, in which order, and what is stored
    for i in 1 2 3 4 5 6; do python -m tools.run_league --processes 6 & done; wait      six at once into one store

    traffic    accuracy, calibration, shift of the scores, passes and time on clean images       traffic.json
    attacks    Square, the adaptive attack, RayS, APGD and NES: each bare and behind each defence   one cell each

Clean traffic is measured by one process while the others wait, so that nothing disturbs the times. Precision is chosen
by the rule of `--precision auto`. Cells that are complete in `--beside`, the store of docs/gate.md, are not run again.
A cell of an earlier edition of its attack counts as complete, unless its gain is not undone yet: it is run again in the
present edition.
The budget is that of these cells. A standard network has a radius of 0.031, a robust one of 8/255. The script needs
none of the packages of the command line.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import hashlib
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any  # what a JSON file holds

import torch

from antiadv import defences
from antiadv.core.errors import AntiadvError
from antiadv.defences.robust_features import write_moment
from antiadv.engine.meter import revision, versions
from antiadv.engine.precision import AUTO, PRECISIONS
from antiadv.evaluation import Cell, Resources, Store
from antiadv.paper.missing_cells import as_stored, resolve
from antiadv.paper.networks import Network, Source
from antiadv.paper.settings import EPS, EPS_BLACK_BOX
from antiadv.paper.table_layout import CellRequest
from antiadv.reporting.league_entrants import ADAPTIVE, GRADIENTS, LABELS, SCORES, Kind, entrants
from antiadv.reporting.league_stored import ATTACKS, NES, TRAFFIC, leagues, read_traffic
from antiadv.reporting.league_table import KEEPS
from antiadv.reporting.league_traffic import Traffic, measure, with_times
from benchmarks.files import put
from tools.pace import cost
from tools.run_gate import three_networks
from tools.run_paper import RATES, parser, run_all

LIMITED = (SCORES, LABELS, NES)
TURNS = {SCORES: 0, ADAPTIVE: 0, LABELS: 1, GRADIENTS: 3, NES: 6}  # of each column
AGAIN, SLOW_FIRST, SLOW = 2, 4, 5  # turns of gains that are not undone yet, and of the slowest entrant
SLOWEST = "hedge"  # a query costs 41 passes
FEATURES = "robust features"  # takes part where its file is there
FIRST = (  # entrants whose cells are run before those of the others
    *("bare", "layer", "gated layer", "mirrored scores", "small noise", "score noise", "scaled scores"),
    "rounded scores",
)
SAMPLES, CLEAN, QUERIES = 500, 1000, 2000

ROOT = Path(__file__).resolve().parents[1]

Facts = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Plan:
    """A network, the settings that suit it, and its radius."""

    network: Network
    kind: Kind
    radius: str

    only: tuple[str, ...] = ()  # names of entrants; all, if there are none

    @property
    def features(self) -> Path:
        """The file of `robust_features` for this network. The path is part of the cells: from the repository's root."""
        return Path("results/league", f"{self.network.name.replace(':', '-')}-features.safetensors")

    @property
    def entrants(self) -> dict[str, str]:
        found = entrants(self.kind)
        if (ROOT / self.features).exists():
            found[FEATURES] = f"robust_features:path={self.features}"
        return {name: text for name, text in found.items() if not self.only or name in self.only}

    def threat(self, column: str, queries: int = QUERIES) -> str:
        return f"{self.radius},queries={queries}" if column in LIMITED else self.radius


def plans(source: Source | None = None) -> list[Plan]:
    compact, standard, wide = three_networks(source)
    return [Plan(compact, "robust", EPS), Plan(standard, "standard", EPS_BLACK_BOX), Plan(wide, "robust", EPS)]


def requests(
    some: Sequence[Plan],
    samples: int = SAMPLES,
    queries: int = QUERIES,
    wanted: Collection[str] = tuple(ATTACKS),
    again: Collection[tuple[str, str]] = (),
) -> list[CellRequest]:
    """Each cell once, by `_turn`; within a turn the first entrants before the others.

    `again` holds networks and defences whose adaptive cells are run again, in a turn of their own (`not_undone`).
    """
    asks = [
        (
            (_turn(plan, name, text, c, again), name not in FIRST),
            CellRequest(plan.network, text, ATTACKS[c], plan.threat(c, queries), samples),
        )
        for plan in some
        for name, text in plan.entrants.items()
        for c in (SCORES, ADAPTIVE, LABELS, GRADIENTS, NES)
        if c in wanted
    ]
    return [ask for _, ask in sorted(asks, key=lambda pair: pair[0])]


def _turn(plan: Plan, name: str, text: str, column: str, again: Collection[tuple[str, str]]) -> int:
    if column == ADAPTIVE and (plan.network.name, text) in again:
        return AGAIN
    if name == SLOWEST and column != NES:
        return SLOW_FIRST if plan.network.model.startswith("compact") else SLOW
    return TURNS[column]


def not_undone(store: Store) -> set[tuple[str, str]]:
    """Networks and defences with a settled gain under an earlier edition of the adaptive attack."""
    return {
        (made.network, line.spec)
        for made in leagues(store)
        for line in made.lines
        if ADAPTIVE in line.cells and line.cells[ADAPTIVE][0].earlier and made.label(line) == KEEPS
    }


def of_earlier_editions(store: Store) -> dict[str, set[int]]:
    """The samples that cells of earlier editions have, by the key of the present one in float32."""
    old: dict[str, set[int]] = {}
    for cell in store.cells():
        if cell.earlier:
            key = dataclasses.replace(cell, earlier="", precision=PRECISIONS[0]).key
            old[key] = old.get(key, set()) | store.done(cell)
    return old


def write_features(some: Sequence[Plan], resources: Resources, directory: str | None, images: int) -> None:
    """Write the file of `robust_features` for each network that has none, from so many training images."""
    for plan in some:
        if images and not plan.network.absent and not plan.features.exists():
            train = resources.data("cifar10:train" + (f",dir={directory}" if directory else ""))
            x = train.images(range(images)).to(resources.device)
            write_moment(plan.features, resources.model(plan.network.model), x)


# ---------------------------------------------------------------- clean traffic


@contextlib.contextmanager
def waiting(path: Path) -> Iterator[None]:
    """Hold the lock of this file; others wait until it is free."""
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    with open(Path(tempfile.gettempdir(), f"antiadv-league-{name}"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def measure_traffic(some: Sequence[Plan], path: Path, samples: int, resources: Resources, timed: bool = True) -> None:
    """Store what each entrant costs and changes on clean images. What is stored stays; missing times are added."""
    found = read_traffic(path)
    for plan in some if samples else ():
        if plan.network.absent:
            print(f"missing: {plan.network.absent}", flush=True)
            continue
        images, name = resources.data(plan.network.data), plan.network.name
        ids = range(min(samples, len(images)))
        asked: Facts = {
            "weights": resources.weights(plan.network.model),
            "images": images.digest,
            "samples": len(ids),
            "settings": plan.kind,
        }
        kept = found.get(name, {})
        if not asked.items() <= kept.items():
            kept = {**asked, "defences": {}, "found": {}, "refused": {}}
        x, y = images.images(ids).to(resources.device), images.labels(ids).to(resources.device)
        for entrant, text in plan.entrants.items():
            full = defences.full_text(text)
            seen = kept["found"].get(entrant)
            if kept["defences"].get(entrant) == full and not (timed and seen is not None and untimed(seen)):
                continue
            found[name] = kept = _with_traffic(kept, entrant, text, plan, resources, x, y, ids, timed)
            kept["defences"][entrant] = full
            put(found, path)


def untimed(seen: Facts) -> bool:
    """Whether a time is missing. Older runs have none for an image that comes alone."""
    return seen["time"] is None or seen.get("alone_ms") is None


def _with_traffic(
    kept: Facts,
    entrant: str,
    text: str,
    plan: Plan,
    resources: Resources,
    x: torch.Tensor,
    y: torch.Tensor,
    ids: range,
    timed: bool,
) -> dict[str, Any]:
    """What is stored of a network, with one more entrant, or with the reason why the network refuses it."""
    net, began, name = resources.model(plan.network.model), time.monotonic(), plan.network.name
    seen, refused = dict(kept["found"]), dict(kept["refused"])
    try:
        defended = defences.wrap(text, net)
        same = kept["defences"].get(entrant) == defences.full_text(text) and entrant in seen
        facts = seen[entrant] = (
            with_times(Traffic(**seen[entrant]), net, defended, x)
            if same
            else measure(net, defended, x, y, ids, timed=timed)
        ).json()
        said = f"{facts['passes']:.2f} passes"
    except AntiadvError as error:
        said = refused[entrant] = str(error)
    print(f"clean traffic of {name}, {entrant}: {said}; {time.monotonic() - began:.0f} s", flush=True)
    how = {"device": resources.device.type, "versions": versions(), "revision": revision()}
    return {**kept, "found": seen, "refused": refused, **how}


# ---------------------------------------------------------------- the command


def main() -> int:
    a = arguments()
    if Path.cwd() != ROOT:  # the paths of `robust_features` in the cells begin there
        print(
            f"the league runs in the root of the repository, {ROOT}; found {Path.cwd()}. Change there.", file=sys.stderr
        )
        return 2
    end = time.monotonic() + 60 * a.minutes
    resources, store = Resources(a.device), Store(a.store)
    some = [plan for plan in plans(Source(directory=a.data)) if a.network in plan.network.name]
    some = [dataclasses.replace(plan, only=tuple(a.entrants.split(","))) for plan in some] if a.entrants else some
    path = Path(a.store, TRAFFIC)
    try:
        with waiting(path):
            if not a.list:
                write_features(some, resources, a.data, a.features)
                measure_traffic(some, path, a.clean, resources, not a.untimed)
        refused = {name: set(facts.get("refused", ())) for name, facts in read_traffic(path).items()}
    except (AntiadvError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    out = {(p.network, p.entrants[e]) for p in some for e in refused.get(p.network.name, ()) if e in p.entrants}
    again = not_undone(store)
    asks = requests(some, a.samples, a.queries, a.columns, again)
    asks = [ask for ask in asks if (ask.network, ask.defence) not in out]
    asks = [ask for ask in asks if all(word in str(ask) for word in a.only)]
    todo = cells_of(asks, again, store, resources, a)
    if a.list:
        for ask, cell in todo:
            seconds = cost(ask) * (1 - len(store.done(cell)) / ask.samples) / RATES["cuda"]
            print(f"{len(store.done(cell)):5d}/{ask.samples} {seconds:6.0f} s {cell.precision:8} {ask}")
        return 0
    return run_all(todo, store, resources, end, a)


def cells_of(
    asks: Sequence[CellRequest],
    again: Collection[tuple[str, str]],
    store: Store,
    resources: Resources,
    a: argparse.Namespace,
) -> list[tuple[CellRequest, Cell]]:
    """The cells of these requests. Left out are those that cannot be run here, and those that need not be."""
    todo, old = [], of_earlier_editions(store)
    for ask in asks:
        cells, missing = resolve([ask], a.precision, resources)
        for m in missing:
            print(f"missing: {ask}: {m.why}", flush=True)
        for cell in cells:
            shown = set(cell.samples) <= old.get(dataclasses.replace(cell, precision=PRECISIONS[0]).key, set())
            if not complete(cell, Store(a.beside)) and not (shown and (ask.network.name, ask.defence) not in again):
                todo.append((ask, as_stored(cell, store)))
    return todo


def complete(cell: Cell, store: Store) -> bool:
    return set(cell.samples) <= store.done(as_stored(cell, store))


def arguments() -> argparse.Namespace:
    p = parser(__doc__, "results/league", minutes=8.0, samples=SAMPLES)
    p.add_argument("--beside", default="results/gate", help="a store whose complete cells are not run again")
    p.add_argument("--clean", type=int, default=CLEAN, help="images of the clean traffic; 0: do not measure it")
    p.add_argument(
        "--untimed", action="store_true", help="the machine is busy: leave times on clean images to a later call"
    )
    p.add_argument("--features", type=int, default=0, help="training images for a robust_features file; 0: make none")
    p.add_argument("--queries", type=int, default=QUERIES, help="budget of the black-box attacks")
    p.add_argument("--network", default="", help="networks whose name holds this")
    p.add_argument("--entrants", default="", help="names of entrants with commas between; all of them by default")
    p.add_argument(
        "--columns", nargs="+", choices=tuple(ATTACKS), default=tuple(ATTACKS), help="all of them by default"
    )
    p.add_argument("--precision", choices=(AUTO, *PRECISIONS), default=AUTO)
    return p.parse_args()


if __name__ == "__main__":
    sys.exit(main())
