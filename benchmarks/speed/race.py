"""Run a race repeat by repeat, and collect its facts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from antiadv import models
from antiadv.core.engine import Engine
from antiadv.core.errors import BadInput
from antiadv.engine.switches import switched
from benchmarks.parity.sides import Side
from benchmarks.speed.course import Course
from benchmarks.speed.jobs import Race
from benchmarks.speed.setting import Facts, Setting, header
from benchmarks.timing import OtherPrograms, compiling_afresh


def compare(
    race: Race,
    how: Setting,
    log: Callable[[str], None] = lambda text: None,
    keep: Callable[[Facts], object] = lambda facts: None,
    before: Facts | None = None,
) -> Facts:
    """Run all sides in turn, judge them, and return the facts.

    `keep` gets the facts after every repeat. `before` are the facts of earlier repeats, to which this run adds.
    """
    race, device = how.race(race), how.device
    course = Course(race, how.samples_of(race), device, how.seed)
    require_same_weights(course, before)
    engines = {side: how.engine(side) for side in how.sides}
    facts, done = before, 0 if before is None else before["repeats"]
    with switched(how.precision, device), compiling_afresh(how.compiled and device.type == "cpu"):
        setup = warm_up(course, engines)
        begun = time.perf_counter()
        for k in range(done, how.repeats):
            if k > done and (time.perf_counter() - begun) * (k + 1 - done) / (k - done) > how.within:
                break
            facts, runs = run_repeat(course, how, engines, setup, facts, k)
            keep(facts)
            log(f"{race.name}: repeat {k + 1} of {how.repeats}: {ratios(runs)}")
    assert facts is not None
    return facts


def require_same_weights(course: Course, before: Facts | None) -> None:
    if before is not None and before["weights"] != models.digest(course.net):
        raise BadInput(
            f"the stored {course.race.name} is of weights {before['weights']}; "
            f"those here are {models.digest(course.net)}. Delete the file, or get the weights it was run on."
        )


def warm_up(course: Course, engines: Mapping[str, Engine]) -> dict[str, float]:
    """Warm up every side. Return the seconds that each side of ours needs only once."""
    course.theirs(short=True)
    setup = {}
    for side, engine in engines.items():
        first, again = course.warm_up(engine), course.warm_up(engine)
        setup[side] = max(0.0, first - again)
    return setup


def run_repeat(
    course: Course,
    how: Setting,
    engines: Mapping[str, Engine],
    setup: Mapping[str, float],
    facts: Facts | None,
    k: int,
) -> tuple[Facts, dict[str, Side]]:
    """Run repeat k of every side. Return the facts with this repeat added, and what each side returned."""
    with OtherPrograms() as others:
        runs = {"theirs": course.theirs(k)}
        budget = course.budget(runs["theirs"], engines[how.sides[0]]) if facts is None else facts["budget"]
        runs |= {side: course.ours(engine, budget, k) for side, engine in engines.items()}
    if facts is None:
        facts = first_facts(course, how, runs, budget, setup)
    else:
        facts = {**facts, "again": [*facts.get("again", []), later_facts(course, runs)]}
    return with_repeat(facts, replace(how, repeats=k + 1), course.race, runs, others.share), runs


def first_facts(
    course: Course, how: Setting, runs: Mapping[str, Side], budget: int | None, setup: Mapping[str, float]
) -> Facts:
    """Return the facts of a race that the first repeat decides."""
    texts = {side: course.peer.said if side == "theirs" else course.pair.ours for side in runs}
    return {
        **header(course.race, how, len(course.ids)),
        "revisions": [],
        "weights": models.digest(course.net),
        "images": course.dataset.digest,
        "ids": course.ids,
        "right": course.right.int().tolist(),
        "budget": budget,
        **{side: course.judged(run, texts[side]) for side, run in runs.items()},
        "alike": course.layers_agree(runs["theirs"]),
        "others": None,
        "times_faster": {side: [] for side in how.sides},
        "setup": {side: round(setup[side] / runs[side].seconds, 4) for side in how.sides},
        "seconds": {side: [] for side in runs} if how.device.type == "cuda" else None,
    }


def later_facts(course: Course, runs: Mapping[str, Side]) -> Facts:
    """Return what is kept of a later repeat: what each side is judged by, and its passes."""
    judged = {side: course.judged(run, "") for side, run in runs.items()}
    return {side: {key: fact for key, fact in found.items() if key != "attack"} for side, found in judged.items()}


def revisions(facts: Facts) -> list[str]:
    """Return the revision of each repeat. Older files have one for all repeats."""
    found: list[str] = facts.get("revisions", facts["repeats"] * [facts["revision"]])
    return found


def with_repeat(facts: Facts, how: Setting, race: Race, runs: Mapping[str, Side], others: float | None) -> Facts:
    """Add the times of one more repeat to the facts."""
    theirs, head = runs["theirs"].seconds, header(race, how, facts["samples"])
    taken = [share for share in (facts.get("others"), others) if share is not None]
    return {
        **facts,
        **{key: head[key] for key in ("command", "repeats", "revision")},
        "revisions": [*revisions(facts), head["revision"]],
        "others": max(taken, default=None),
        "times_faster": {
            side: [*before, round(theirs / runs[side].seconds, 4)] for side, before in facts["times_faster"].items()
        },
        "seconds": facts["seconds"]
        and {side: [*before, round(runs[side].seconds, 3)] for side, before in facts["seconds"].items()},
    }


def ratios(runs: Mapping[str, Side]) -> str:
    theirs = runs["theirs"].seconds
    return ", ".join(
        f"{side} {theirs / run.seconds:.2f} times faster" for side, run in runs.items() if side != "theirs"
    )
