"""The benchmark of the defaults: when two jobs may share one run of theirs."""

from __future__ import annotations

from pathlib import Path

from benchmarks import defaults
from benchmarks.files import put

WHAT = {key: f"some {key}" for key in defaults.ALIKE}
THEIRS = {"standing": 104, "seconds": 80.0}


def test_jobs_on_the_same_images_share_one_run_of_theirs(tmp_path: Path) -> None:
    put({**WHAT, "job": "bare", "runs": {"theirs": THEIRS}}, tmp_path / "defaults-bare-cpu.json")
    assert defaults.stored_theirs(WHAT, tmp_path) == {**THEIRS, "made_by": "bare"}


def test_a_run_on_other_images_or_with_other_code_is_not_shared(tmp_path: Path) -> None:
    put({**WHAT, "job": "bare", "runs": {"theirs": THEIRS}}, tmp_path / "defaults-bare-cpu.json")
    for key in defaults.ALIKE:
        assert defaults.stored_theirs({**WHAT, key: "another"}, tmp_path) is None
    put({**WHAT, "job": "bare", "runs": {"first": THEIRS}}, tmp_path / "defaults-bare-cpu.json")
    assert defaults.stored_theirs(WHAT, tmp_path) is None
