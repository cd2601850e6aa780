"""tools/docs: stored commands are shown as they are typed now."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

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
