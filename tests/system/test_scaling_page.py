"""docs/scaling.md has the numbers of the stored benchmark, and its arithmetic is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text()
RUN: dict[str, Any] = json.loads((ROOT / "results" / "bench" / "store.json").read_text())

ROWS = {
    "write a shard: compress": RUN["write_a_shard"],
    "receive an answer: unpickle": RUN["receive_a_shard"],
    "write a shard of 5,000": RUN["write_a_large_shard"],
    "receive an answer of 5,000": RUN["receive_a_large_shard"],
    "ask Ray": RUN["wait_for_a_thousand"],
    "back, processes": RUN["send_a_shard"]["processes"],
    "back, Ray": RUN["send_a_shard"]["ray"],
    "plan the million": RUN["plan"],
    "report on the million": RUN["report"],
    "| a job": RUN["job_bytes"],
    "| an answer": RUN["answer_bytes"],
    "a shard on disk": RUN["bytes_a_shard"],
}


@pytest.mark.parametrize("what", ROWS)
def test_a_cost_is_that_of_the_stored_run(what: str) -> None:
    (row,) = [line for line in PAGE.splitlines() if what in line and line.endswith(("| passes |", "| bytes |"))]
    shown = row.split(" | ")[1]
    value = ROWS[what]
    assert shown == (f"{value:,.0f}" if value >= 100 else f"{value:.2g}")


def test_the_run_is_of_a_million_records() -> None:
    assert (RUN["records"], RUN["cells"], RUN["shards"], RUN["shard"]) == (1_000_000, 100, 4_000, 250)
    assert "1,000,000 records, in 100 cells and 4,000 shards of 250" in PAGE


def test_the_arithmetic_is_right() -> None:
    parts = [RUN[k] for k in ("write_a_shard", "receive_a_shard", "wait_for_a_thousand")]
    c, workers, pace = sum(parts), 1000, 200
    said = " + ".join(f"{part:.2g}" for part in parts)
    assert f"c = write + receive + ask = {said} = {c:.2g} passes" in PAGE
    assert f"N = {workers} and r = {pace}" in PAGE
    least = workers * pace * c
    assert f"at least {least / 1e6:.1f} million images" in PAGE
    for images in (250 * 10_000 * 5, 250 * 1_000 * 5):
        assert f"| {images:,} | {100 * least / images:.0f} % |" in PAGE
    assert f"| {250 * 20 * 2:,} | it would take {least / (250 * 20 * 2):.0f} drivers |" in PAGE
    assert RUN["plan"] / RUN["shards"] < 0.03
    assert RUN["report"] / RUN["records"] < 0.01
    assert f"is a\n{round(250_000 / RUN['send_a_shard']['ray'], -3):,.0f}th of it" in PAGE
    large = (RUN["write_a_large_shard"] + RUN["receive_a_large_shard"] + RUN["wait_for_a_thousand"]) / 20
    assert RUN["large_shard"] == 20 * RUN["shard"] == 5000
    assert f"for 5,000 samples it comes to {large:.2g} passes per 250" in PAGE
