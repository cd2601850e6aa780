"""The benchmark of the defaults: when two jobs may share one run of theirs."""

from __future__ import annotations

from pathlib import Path

from benchmarks import defaults
from benchmarks.files import put
from tools.docs import benchmarks as pages

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


def test_the_page_counts_the_runs_without_any_option_and_names_those_that_are_missing() -> None:
    met, missed = {"met": True}, {"met": False}
    bare = {"job": "bare", "device": "NVIDIA H200", "verdict": {"first": met, "second": missed}}
    found = [bare, {"job": "fast", "device": "cpu", "verdict": {"first": missed}}]
    missing = pages.defaults_missing(found)
    assert "1 of 3 stored" in pages.defaults_met(found)
    due = sum(2 * len(job.targets) for job in defaults.JOBS.values())
    assert len(missing) == due - 3
    assert f" {due - 3} more" in pages.defaults_met(found)
    assert "fast (CPU, second process)" in missing
    assert "fast (GPU, first process)" in missing
    assert not any(name.startswith("bare (GPU") for name in missing)
    assert pages.defaults_met([]) == ""
