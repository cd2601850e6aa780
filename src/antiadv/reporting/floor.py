"""A floor under the attacks' ceiling: certified accuracy next to robust accuracy of the same smoothed network.

Certified accuracy at a radius is a lower bound for the smoothed classifier, up to the error of its setting. Robust
accuracy under an attack is an upper bound for the defence `smoothing`, which votes over a few copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from antiadv import defences
from antiadv.core import spec
from antiadv.core.spec import show_number
from antiadv.evaluation.cell import Identity
from antiadv.evaluation.certify import Certified
from antiadv.evaluation.certify_stored import stored_runs
from antiadv.evaluation.store.store import Store
from antiadv.reporting.curves import ACCURACY
from antiadv.reporting.figures import Figure, Panel, Series
from antiadv.reporting.rows import Row

FOLDER, POINTS = "certify", 32
CAPTION = (
    "The floor: the share of samples whose true class is certified at this L2 radius, for the vote over all noise. "
    "Each certificate is wrong with the small probability of its setting. The ceiling: robust accuracy under an "
    "attack on the vote over a few copies. With 95 % intervals."
)


def floors(store: Store, rows: Sequence[Row]) -> list[Figure]:
    """A panel for each certified run, with the attacks on the same network, smoothed with the same noise."""
    panels = tuple(_panel(*run, rows) for run in stored_runs(store.root / FOLDER))
    return [Figure("floor", "Certified floor and attacked ceiling", CAPTION, panels)] if panels else []


def _panel(identity: Identity, made: Certified, rows: Sequence[Row]) -> Panel:
    most = made.setting.largest_radius
    curve = made.curve([most * i / (POINTS - 1) for i in range(POINTS)])
    share, low, high = (tuple(100 * getattr(p, name) for p in curve) for name in ("certified", "low", "high"))
    floor = Series(f"certified, n = {len(made.records)}", tuple(p.radius for p in curve), share, low, high)
    title = f"{identity['model']}, std {show_number(made.setting.std)}"
    return Panel(title, "L2 radius", ACCURACY, (floor, *_ceilings(identity, made.setting.std, rows)))


def _ceilings(identity: Identity, std: float, rows: Sequence[Row]) -> Iterator[Series]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        same = (row.cell.weights, row.cell.images) == (identity["weights"], identity["images"])
        if same and row.robust is not None and row.cell.threat.ball.p == 2 and _std(row) == std:
            found.setdefault(f"{row.cell.attack} on {row.cell.defence}", []).append(row)
    for label, some in found.items():
        at = sorted((r.cell.threat.ball.eps, r.robust) for r in some if r.robust is not None)
        value, low, high = (tuple(100 * getattr(s, k) for _, s in at) for k in ("value", "low", "high"))
        yield Series(label, tuple(eps for eps, _ in at), value, low, high, "dots")


def _std(row: Row) -> float | None:
    """The noise of the defence `smoothing`; None for any other."""
    if row.cell.defence.partition(":")[0] != "smoothing":
        return None
    return float(spec.read(row.cell.defence, defences.DEFENCES, "defence").options["std"])
