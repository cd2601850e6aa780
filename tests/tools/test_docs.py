"""tools/docs: stored commands are shown as they are typed now."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from tools.docs import deploy
from tools.docs.markdown import PROGRAMS, current_command

ROOT = Path(__file__).resolve().parents[2]


def test_a_stored_command_names_a_program_that_exists() -> None:
    files = [*(ROOT / "results" / "parity").glob("*.json"), *(ROOT / "results" / "bench").glob("*-c*.json")]
    commands = [json.loads(path.read_text())["command"] for path in files]
    commands += [facts["command"] for facts in json.loads((ROOT / "results" / "confidence.json").read_text()).values()]
    for command in commands:
        python, option, module, *_ = current_command(command).split()
        assert (python, option) == ("python", "-m")
        assert importlib.util.find_spec(module) is not None


@pytest.mark.parametrize("old", PROGRAMS)
def test_the_options_of_a_stored_command_stay(old: str) -> None:
    assert current_command(f"{old}--jobs a --samples 3") == f"{PROGRAMS[old]}--jobs a --samples 3"
    assert current_command(f"{PROGRAMS[old]}--jobs a") == f"{PROGRAMS[old]}--jobs a"


def test_the_page_of_the_server_shows_a_missed_target() -> None:
    """As `benchmarks.serve_load` stores it."""
    loads = {"rows_per_second": 80.0, "statuses": {"200": 160}, "milliseconds": {"p50": 9.0, "p90": 19.0, "p99": 99.0}}
    verdict = {"share_of_engine": 0.8, "throughput": False, "p99_in_batches": 2.5, "latency": True, "memory": True,
               "overload": True, "recovers": True, "times_plain": 4.0}  # fmt: skip
    facts = {"command": "python -m benchmarks.serve_load", "weights": "sha256:0123456789", "backend": "eager",
             "machine": {"cores": 2}, "engine": {"batch": 32, "seconds": 0.04}, "closed": loads, "open": loads,
             "plain": loads, "overload": {"statuses": {"200": 9, "503": 7}}, "verdict": verdict,
             "memory": {"minutes": 10, "mebibytes": [400.0] * 5 + [410.0] * 6}}  # fmt: skip
    first, second, *others = [line for line in deploy.load_part(facts).splitlines() if "| " in line][2:]
    assert "80 % of the engine" in first
    assert first.endswith("**no** |")
    assert "2.5 times a batch" in second
    assert all(line.endswith("| yes |") for line in (second, *others))
