"""The files of a public project agree with each other: workflow, lock file, generated index, glossary, templates."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
TEMPLATES = ROOT / ".github" / "ISSUE_TEMPLATE"
CONFIGS = [*WORKFLOWS.glob("*.yml"), *ROOT.glob(".github/actions/*/*.yml"), ROOT / ".pre-commit-config.yaml"]

# what only torch needs is not locked, as torch itself (see the head of the lock file)
NOT_LOCKED = {"torch", "fsspec", "networkx"}


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def workflow() -> dict[Any, Any]:
    read: dict[Any, Any] = yaml.safe_load((WORKFLOWS / "ci.yml").read_text())
    return read


def test_slow_tests_run_every_night_but_not_for_pull_requests() -> None:
    job = workflow()["jobs"]["slow"]
    assert job["if"] == "github.event_name != 'pull_request'"
    assert [step["run"] for step in job["steps"] if "run" in step] == ["make test-slow"]
    assert "schedule" in workflow()[True]  # YAML reads the key `on` as true


def pinned(text: str) -> dict[str, str]:
    """`name==version` lines, by normalised name."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def test_the_workflow_tests_every_python_that_the_package_names() -> None:
    said = "\n".join(project()["project"]["classifiers"])
    named = re.findall(r"Python :: (3\.\d+)", said)
    assert workflow()["jobs"]["tests"]["strategy"]["matrix"]["python"] == named


def test_what_the_workflow_runs_is_there() -> None:
    steps = [step for job in workflow()["jobs"].values() for step in job["steps"]]
    runs = "\n".join(step.get("run", "") for step in steps)
    for script in re.findall(r"(?:tools|scripts|examples)/\w+\.py", runs):
        assert (ROOT / script).is_file(), script
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"^make ([\w-]+)", runs, re.MULTILINE)) <= set(targets)
    for action in (step["uses"] for step in steps if step.get("uses", "").startswith("./")):
        assert (ROOT / action / "action.yml").is_file(), action


@pytest.mark.parametrize("path", [*CONFIGS, ROOT / "requirements-dev.lock"], ids=lambda p: p.name)
def test_no_file_names_a_package_index(path: Path) -> None:
    assert "://" not in path.read_text()


def test_the_lock_file_has_the_tested_versions_with_hashes() -> None:
    lock = (ROOT / "requirements-dev.lock").read_text()
    locked, tested = pinned(lock), pinned((ROOT / "constraints.txt").read_text())
    assert {name: tested.get(name) for name in locked if name in tested} == {
        name: version for name, version in locked.items() if name in tested
    }
    only_elsewhere = {name for name in locked if name not in tested}  # for another system or Python
    assert len(only_elsewhere) < 10, only_elsewhere
    assert not NOT_LOCKED & locked.keys()
    entries = re.split(r"\n(?=[a-z])", lock[lock.index("\n\n") :].strip())
    assert len(entries) == len(locked)
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_the_lock_file_covers_the_development_extra() -> None:
    asked = [*project()["project"]["dependencies"], *project()["project"]["optional-dependencies"]["dev"]]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[<>=!~ \[;]", text)[0]).lower() for text in asked}
    assert names - NOT_LOCKED <= pinned((ROOT / "requirements-dev.lock").read_text()).keys()


def test_commit_subjects_over_72_characters_are_caught() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    (pattern,) = [hook["entry"] for hook in hooks if hook["id"] == "commit-subject"]
    assert not re.search(pattern, "x" * 72 + "\n\n" + "x" * 100)
    assert re.search(pattern, "x" * 73)


def test_every_issue_template_has_a_name_and_a_description() -> None:
    pages = sorted(TEMPLATES.glob("*.md"))
    assert [page.stem for page in pages] == ["bug", "feature", "wrong-number"]
    for page in pages:
        head = yaml.safe_load(page.read_text().split("---")[1])
        assert {"name", "about", "labels"} <= head.keys(), page.name


def test_the_glossary_has_at_most_forty_terms_each_once() -> None:
    terms = re.findall(r"^\| (?!term |---)(.*?) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert 30 <= len(terms) == len(set(terms)) <= 40


@pytest.mark.slow
def test_the_index_of_results_is_up_to_date_and_lists_every_cell_once() -> None:
    script = [sys.executable, str(ROOT / "tools" / "results_index.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, timeout=200)
    assert done.returncode == 0, done.stderr
    listed = re.findall(r"^\| \[\w+\]\(([0-9a-f]{20})\)", (ROOT / "results" / "index.md").read_text(), re.MULTILINE)
    stored = [path.parent.name for path in (ROOT / "results").glob("*/cell.json")]
    assert sorted(listed) == sorted(stored)
