"""The first hour: its commands are those of the pages it names, and they run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.run_first_hour import INSTALL, STEPS, STORED, Step, port_is_free

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("step", [INSTALL, *STEPS], ids=lambda s: s.title)
def test_a_page_has_the_command(step: Step) -> None:
    page = " ".join((ROOT / step.page).read_text().split())
    programs = {"SPEC": "anti_adversary", "mine:make": "compact:trades", "arrays:mine.npz": "cifar10"}
    shown = step.command
    for here, there in programs.items():
        if shown not in page:
            shown = shown.replace(here, there)
    assert shown in page, f"{step.page} does not have {shown}"


def test_the_stored_run_is_of_these_steps() -> None:
    if not STORED.exists():
        pytest.skip("no run is stored; python -m tools.run_first_hour --install makes one")
    stored = json.loads(STORED.read_text())
    assert not stored["small"]
    known = [step.title for step in STEPS]
    assert [done["title"] for done in stored["steps"]] in (known, [INSTALL.title, *known])
    commands = {step.title: step.command for step in (INSTALL, *STEPS)}
    for done in stored["steps"]:
        before, _, after = commands[done["title"]].partition("SPEC")
        assert done["command"].startswith(before)
        assert done["command"].endswith(after)
        assert done["seconds"] > 0


@pytest.mark.slow
def test_the_commands_run_one_after_the_other(tmp_path: Path) -> None:
    if not port_is_free():
        pytest.skip("another program uses port 8000, which the pages name")
    record = tmp_path / "record.json"
    command = [sys.executable, "-m", "tools.run_first_hour", "--small", "--out", str(record)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = {step["title"]: step["printed"] for step in json.loads(record.read_text())["steps"]}
    assert list(printed) == [step.title for step in STEPS]
    assert "WRONG" not in printed["Check"]
    assert "robust" in printed["Verdict"]
    assert "labels are equal" in printed["Export"]
    first, second = printed["Ask"].split("] [")
    same = sum(a == b for a, b in zip(first.strip("[").split(), second.strip("]").split(), strict=True))
    assert same >= 8, "the endpoint knows shapes"
    assert "square" in printed["Attack what is live"]
