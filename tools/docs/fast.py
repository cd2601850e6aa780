"""docs/fast.md: `fast` against everything that is stored for the same network, images and ball."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any  # what a JSON file holds

from antiadv import attacks
from antiadv.attacks.white_box.autoattack import stages
from antiadv.attacks.white_box.fast import Fast
from antiadv.core.interval import wilson
from antiadv.core.spec import text
from antiadv.evaluation import Cell, Store
from antiadv.evaluation.judge import ran_autoattack
from antiadv.reporting.measures import Share, standing
from tools.docs.markdown import render, table, wrap

PARTS = {text(stage) for stage in stages()}
SHORT_STEP = "short_step.json"  # in the store
PYAUTOATTACK = "results/bench/autoattack-compact-trades-cpu-mixed.json"
WHOLE, SHOWN = 10_000, ("autoattack", "fast", "adaptive")  # images of the test set, and attacks shown on all of them
Stored = dict[Cell, dict[int, bool]]  # which samples stand


def page(root: Path) -> str:
    folder = root / "results" / "fast"
    fresh = Store(folder) if folder.is_dir() else None
    cells = [c for c in fresh.cells() if fresh.done(c) and c.attack not in PARTS] if fresh is not None else []
    if fresh is None or not cells:
        return render("fast", table="Nothing is stored yet.", cost="", whole="", behind="", short_step="")
    results = Store(root / "results")
    stored = {**read(results), **{c: s for c, s in read(fresh).items() if c.attack in PARTS}}  # on more samples
    cells.sort(key=lambda c: (c.defence, c.attack, c.model, c.earlier, c.precision))
    shown = {cell: table_row(cell, fresh, stored) for cell in cells if not chosen(cell, fresh, results)}
    steps = read_short_step(folder / SHORT_STEP)
    return render(
        "fast",
        table=table(list(shown.values())),
        whole=table(whole_test_set(fresh)) or "Not run yet.\n",
        cost=cost(shown, fresh, root / PYAUTOATTACK),
        behind="\n\n".join(filter(None, (behind(cell, fresh, results) for cell in cells))) or "Not measured yet.",
        short_step=table([short_step_row(row) for row in steps]) if steps else "Not measured yet.\n",
    )


def cost(shown: Mapping[Cell, dict[str, str]], store: Store, peer: Path) -> str:
    """What the rows say together: strength against everything stored, and cost against AutoAttack and `adaptive`."""
    bare = {c: row for c, row in shown.items() if c.attack == "fast" and c.defence == "none"}
    fewer = [r for r in bare.values() if r["all stored"].isdigit() and int(r["standing"]) < int(r["all stored"])]
    count = f"{len(fewer)} of {len(bare)} rows" if fewer else "no row"
    told = [f"In {count} without a defence does `fast` leave fewer standing than all stored attacks together."]
    knowing = [passes(c, store) for c in shown if c.attack.startswith("adaptive") and c.defence != "none"]
    if knowing and bare:
        alone = [passes(c, store) for c in bare]
        told.append(
            f"`adaptive:steps=100` begins with a transfer of `fast`, but then searches on the defence itself: it costs "
            f"{_range(knowing)} passes, and `fast` on a network without a defence {_range(alone)}."
        )
    if peer.exists():
        facts = json.loads(peer.read_text())
        theirs = (facts["theirs"]["forwards"] + 2 * facts["theirs"]["backwards"]) / len(facts["ids"])
        told += [
            f"On `{c.model}` pyautoattack spends {theirs:,.0f} passes per sample ({len(facts['ids'])} images, "
            f"[benchmarks](benchmarks.md)). `fast` spends {100 * passes(c, store) / theirs:.1f} % of that "
            f"({c.precision}, {len(store.done(c)):,} images)."
            for c in bare
            if c.model == facts["model"]
        ][:1]
    return wrap(" ".join(told))


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):,.0f}", f"{max(values):,.0f}"
    return low if low == high else f"{low} to {high}"


def passes(cell: Cell, store: Store) -> float:
    """Forward passes plus twice the backward passes, per sample."""
    return sum(r.forwards + 2 * r.backwards for r in store.receipts(cell)) / len(store.done(cell))


def chosen(cell: Cell, store: Store, results: Store) -> bool:
    """Whether the cell has no samples yet but those that AutoAttack breaks, so that its accuracy says nothing."""
    return cell.defence != "none" and store.done(cell) <= broken_by_autoattack(cell, results)


def behind(cell: Cell, store: Store, results: Store) -> str:
    """Bound how much more `fast` leaves standing behind a defence than AutoAttack."""
    mine, broken = stands(cell, store), broken_by_autoattack(cell, results)
    tried = broken & mine.keys()
    if cell.defence == "none" or cell.attack != "fast" or not tried:
        return ""
    left, every = sum(mine[i] for i in tried), samples_of_autoattack(cell, results)
    text = (
        f"**`{cell.model}` with `{cell.defence}`.** AutoAttack breaks {len(broken)} of the samples that are right. "
        f"`fast` ran on {len(tried)} of these, and left {left} standing."
    )
    if tried != broken:
        return wrap(f"{text} The others are not run yet.")
    n = len(every)
    if every <= mine.keys():
        others = right_and_standing(cell, results)
        standing = sum(mine[i] for i in every)
        return wrap(f"{text} Of all {n} samples it leaves {standing} standing, and AutoAttack {others}.")
    return wrap(f"{text} So of {n} samples it leaves at most {100 * left / n:.1f} points more than AutoAttack.")


def read_short_step(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text()).values()) if path.exists() else []


def short_step_row(row: dict[str, Any]) -> dict[str, str]:
    return {
        "network": f"`{row['model']}`",
        "defence": "" if row["defence"] == "none" else f"`{row['defence']}`",
        "images": str(row["n"]),
        "right": str(row["right"]),
        "alarms": str(row["alarms"]),
        "ratio": f"{row['least']} to {row['most']}",
    }


def read(store: Store) -> Stored:
    return {c: stands(c, store) for c in store.cells() if not c.threat.targeted and not c.seed}


def stands(cell: Cell, store: Store) -> dict[int, bool]:
    return {r.sample: standing(r, cell.threat.ball) for r in store.read(cell)}


def table_row(cell: Cell, store: Store, stored: Stored) -> dict[str, str]:
    """Compare a cell with the others of its network, on the samples that all of them have."""
    here = [(c, s) for c, s in stored.items() if place(c) == place(cell)]
    mine = where_autoattack_ran(stands(cell, store), [(c, s) for c, s in here if c.attack in PARTS])
    others = [(c, s) for c, s in here if mine.keys() <= s.keys()]
    every = worst(mine, [s for _, s in others])
    auto = [(c.attack, s) for c, s in others if c.attack in PARTS]
    whole = {attack for attack, _ in auto} == PARTS
    attack = attacks.parse(cell.attack)
    records = [r for r in store.read(cell) if r.sample in mine]
    alarmed = ran_autoattack(records, attack, randomised=False) if isinstance(attack, Fast) else None
    return {
        "network": f"`{cell.model}`",
        "defence": "" if cell.defence == "none" else f"`{cell.defence}`",
        "attack": f"`{cell.attack}`",
        "n": str(len(mine)),
        "standing": str(sum(mine.values())),
        "AutoAttack": str(sum(worst(mine, [s for _, s in auto]).values())) if whole else "not stored",
        "all stored": str(sum(every.values())) if others else "not stored",
        "missed": str(sum(mine[i] and not every[i] for i in mine)) if others else "",
        "found alone": str(sum(every[i] and not mine[i] for i in mine)) if others else "",
        "alarm": "" if alarmed is None else str(alarmed),
        "passes": f"{passes(cell, store):,.0f}",
        "searched in": cell.precision,
    }


def where_autoattack_ran(mine: dict[int, bool], parts: Sequence[tuple[Cell, dict[int, bool]]]) -> dict[int, bool]:
    """Keep the samples that all four parts have, if there are such samples."""
    ran = [set().union(*(s for c, s in parts if c.attack == part)) for part in {c.attack for c, _ in parts}]
    common = set.intersection(*ran) & mine.keys() if len(ran) == len(PARTS) else set()
    return {i: mine[i] for i in mine if i in common} if common else mine


def whole_test_set(store: Store) -> list[dict[str, str]]:
    """Robust accuracy on all images of the test set, for each network and attack that has them."""
    found = {c: stands(c, store) for c in store.cells() if c.defence == "none" and len(store.done(c)) == WHOLE}
    rows = []
    for model in sorted({c.model for c in found}):
        here = {c.attack: s for c, s in found.items() if c.model == model}
        parts = [s for attack, s in here.items() if attack in PARTS]
        left = {attack: sum(s.values()) for attack, s in here.items() if attack not in PARTS}
        if len(parts) == len(PARTS):
            left["autoattack"] = sum(worst(parts[0], parts).values())
        shares = {attack: str(Share(n / WHOLE, *wilson(n, WHOLE), WHOLE)) for attack, n in left.items()}
        rows.append({"network": f"`{model}`", **{f"`{a}`": shares.get(a, "not run") for a in SHOWN}})
    return rows


def parts_of_autoattack(cell: Cell, store: Store) -> list[Cell]:
    """The stored parts of AutoAttack for the network, defence, images and ball of a cell; none if one is missing."""
    parts = [c for c in store.cells() if c.attack in PARTS and place(c) == place(cell) and not c.seed]
    return parts if {c.attack for c in parts} == PARTS else []


def samples_of_autoattack(cell: Cell, store: Store) -> set[int]:
    """The samples that all stored parts of AutoAttack have."""
    done = [store.done(c) for c in parts_of_autoattack(cell, store)]
    return set.intersection(*done) if done else set()


def right_and_standing(cell: Cell, store: Store) -> int:
    """How many samples all stored parts of AutoAttack leave standing."""
    found = [stands(c, store) for c in parts_of_autoattack(cell, store)]
    return sum(worst(dict.fromkeys(samples_of_autoattack(cell, store), True), found).values())


def broken_by_autoattack(cell: Cell, store: Store) -> set[int]:
    """The samples that the classifier has right, and AutoAttack does not leave so."""
    parts = parts_of_autoattack(cell, store)
    left = worst(dict.fromkeys(samples_of_autoattack(cell, store), True), [stands(c, store) for c in parts])
    right = {r.sample for c in parts[:1] for r in store.read(c) if r.clean == r.label}
    return {i for i, stays in left.items() if i in right and not stays}


def worst(mine: dict[int, bool], others: Sequence[dict[int, bool]]) -> dict[int, bool]:
    return {i: all(s[i] for s in others) for i in mine}


def place(cell: Cell) -> tuple[object, ...]:
    return cell.data, cell.images, cell.model, cell.weights, cell.defence, cell.threat.ball
