"""benchmarks/side_by_side on short loops: processes run with and without the limit, and their images are added."""

from __future__ import annotations

import pytest

from antiadv.cli.start import SPINS, WAITS
from benchmarks import side_by_side

pytestmark = pytest.mark.slow  # each process imports torch


def test_two_processes_predict_more_often_than_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WAITS[1], "passive")  # of this machine's user: both sides are measured without it
    assert side_by_side.together(2, None, 0.05) > 0


def test_a_record_has_a_ratio_for_each_case() -> None:
    found = side_by_side.measure(0.05, 1)
    assert found["spins"] == int(SPINS)
    assert found["weights"].startswith("sha256:")
    assert set(found["ratios"]) == {"alone", "two at once"}
    assert all(row["low"] == row["median"] == row["high"] > 0 for row in found["ratios"].values())
