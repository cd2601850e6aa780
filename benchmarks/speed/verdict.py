"""Decide from the stored facts of a job whether its target is met."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from benchmarks.parity.verdict import verdict as parity_verdict
from benchmarks.speed.setting import Facts

JUDGED = ("standing", "distance")  # what a side is judged by, for each sample


def verdict(facts: Facts) -> Facts:
    """Return the ratios with their spread, the checks of strength, and whether the target is met."""
    if facts["kind"] in ("overhead", "ceiling"):
        rows = {name: spread(shares) for name, shares in facts["shares"].items()}
        if facts["kind"] == "ceiling":
            return {"shares": rows, "most": round(1 / rows["as it stands"]["median"], 2), "met": True}
        worst = max(row["median"] for row in rows.values())
        return {"shares": rows, "worst": worst, "met": worst < facts["target"]}
    sides = {side: side_verdict(facts, side, ratios) for side, ratios in facts["times_faster"].items()}
    return {"sides": sides, "met": met(sides)}


def side_verdict(facts: Facts, side: str, ratios: Sequence[float]) -> Facts:
    times, strength = spread(ratios), parity_verdict(pooled(facts, side))
    checks = [resampled(facts, side, c) if facts.get("again") else c for c in strength["checks"]]
    fast = facts["target"] is None or times["median"] >= facts["target"]
    return {
        "times_faster": times,
        "fast": fast,
        "checks": checks,
        "strong": strength["holds"],
        "met": fast and strength["holds"],
    }


def pooled(facts: Facts, side: str) -> Facts:
    """Return facts for parity's rules: this side and theirs, with each sample once per stored repeat."""
    again = facts.get("again", [])

    def together(who: str) -> Facts:
        return {key: sum((one[who][key] for one in again), facts[who][key]) for key in JUDGED if key in facts[who]}

    ids = facts["ids"] + [f"{i}, again {k}" for k in range(len(again)) for i in facts["ids"]]
    return {**facts, "ids": ids, "ours": together(side), "theirs": together("theirs")}


def resampled(facts: Facts, side: str, check: Facts) -> Facts:
    """Replace the intervals of a check on pooled repeats by intervals that resample images.

    The repeats of one image are alike, so each image is drawn with all its repeats. There is no p-value then.
    """
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
    """Return whether any side is both fast and strong enough."""
    return any(side["met"] for side in sides.values())


def spread(values: Sequence[float]) -> Facts:
    return {"median": round(statistics.median(values), 4), "low": min(values), "high": max(values)}
