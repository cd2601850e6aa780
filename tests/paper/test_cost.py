"""The cost of a cell is what running it costs, and seconds are predicted from earlier jobs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from antiadv.evaluation import Resources, Store, evaluate
from antiadv.paper.cost import passes
from antiadv.paper.missing_cells import resolve
from antiadv.paper.networks import Source, of_method
from tests.paper.written import request
from tools.pace import Pace, cost


@pytest.mark.parametrize(
    ("attack", "threat", "defence"),
    [
        ("apgd:steps=4", "linf:1e-6", "none"),
        ("apgd:steps=4", "linf:1e-6", "small_noise"),
        ("apgd:loss=dlr,targets=2,steps=3", "linf:1e-6", "anti_adversary"),
        ("fab:targets=2,steps=3", "linf:1e-6", "anti_adversary"),
        ("square", "linf:1e-6,queries=9", "anti_adversary"),
        ("square", "linf:1e-6,queries=9", "small_noise"),
        ("nes:probes=2", "linf:1e-6,queries=10", "anti_adversary"),
    ],
)
def test_the_cost_of_a_cell_is_what_it_costs_at_most(
    attack: str, threat: str, defence: str, resources: Resources, tmp_path: Path
) -> None:
    """In a tiny ball no sample is broken, so the attack spends its whole budget. The judge's passes are subtracted."""
    requested = request(attack, threat, defence)
    (cell,), _ = resolve([requested], "float32", resources)
    evaluate([cell], tmp_path, resources=resources)
    (receipt,) = Store(tmp_path).receipts(cell)
    looks = 1 if defence == "none" else 10 + 1 if defence == "small_noise" else 5 + 1
    spent = receipt.forwards + receipt.backwards - requested.samples * 2 * looks
    assert 0.6 * requested.samples * passes(requested) <= spent <= requested.samples * passes(requested)


def test_cost_grows_with_samples_and_the_size_of_the_network() -> None:
    one, other = request("apgd"), dataclasses.replace(request("apgd"), samples=4)
    assert cost(other) == 2 * cost(one)
    large = dataclasses.replace(one, network=of_method(Source(), "cifar10", "trades")[1])
    assert cost(large) > 5 * cost(one)
    free = passes(request("adaptive"))  # what an adaptive attacker does on the bare network
    one_draw, twenty = (passes(request(f"adaptive:samples={m}", defence="small_noise")) - free for m in (1, 20))
    assert twenty == 20 * one_draw > 0
    assert passes(request("adaptive:samples=1", defence="anti_adversary")) == passes(
        request("adaptive", defence="anti_adversary")
    )


def test_pace_uses_the_most_similar_jobs() -> None:
    pace = Pace(rate=10)
    assert pace.predict(("square", "none"), 50) == 5
    pace.record(("apgd", "none"), 10, 40)
    assert pace.predict(("square", "none"), 50) == 200  # of anything
    pace.record(("square", "anti"), 10, 20)
    assert pace.predict(("square", "none"), 50) == 100  # of the attack
    pace.record(("square", "none"), 10, 10)
    assert pace.predict(("square", "none"), 50) == 50  # of the very same


def test_pace_uses_the_last_three_jobs() -> None:
    pace = Pace(rate=1)
    for seconds in (90, 90, 90, 1, 2, 3):
        pace.record(("square",), 10, seconds)
    assert pace.predict(("square",), 10) == 2
