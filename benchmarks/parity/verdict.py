"""Decide from the stored facts of a comparison whether its rule holds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any  # what a JSON file holds

import numpy as np

from antiadv.reporting.measures import difference, share
from benchmarks.parity.jobs import AFTER, LONGER

Facts = dict[str, Any]


def verdict(facts: Facts) -> Facts:
    """Return each check that the rule asks for, with its interval, and whether all of them hold."""
    if facts["kind"] == "distance":
        checks = [compare_distances(facts)]
    elif facts["kind"] == "falls":
        checks = [compare_accuracies(facts, after) for after in AFTER]
    else:
        checks = [compare_accuracies(facts, None)]
    return {"checks": checks, "holds": all(check["holds"] for check in checks)}


def compare_accuracies(facts: Facts, after: int | None) -> Facts:
    """Compare robust accuracies, at the end or `after` that many queries."""

    def stands(side: Facts) -> dict[int, bool]:
        still = [bool(s) for s in side["standing"]]
        if after is not None:  # a published loop ends before it reaches its budget
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


def compare_distances(facts: Facts) -> Facts:
    """Compare the median distances over samples; the interval of their ratio resamples the samples."""
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
