"""The versions of Python and PyTorch that the pages promise are those the package asks for, and this run is one."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")[:2]))


def promised(what: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The first and the last version that the tour says were tested."""
    said = text_of(page := "docs/index.md")
    found = re.search(rf"[Tt]ested with .*?{what} (\d\.\d+) to (\d\.\d+)", said)
    assert found is not None, f"{page} does not say which versions of {what} were tested"
    return version(found[1]), version(found[2])


def text_of(page: str) -> str:
    return " ".join((ROOT / page).read_text().split())


def test_the_tour_promises_what_the_package_asks_for() -> None:
    (asked,) = (line for line in PROJECT["dependencies"] if re.match(r"torch\W", line))
    assert promised("PyTorch")[0] == version(asked.removeprefix("torch>="))
    first, last = promised("Python")
    assert PROJECT["requires-python"] == f">={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}"
    tested = {f"Programming Language :: Python :: 3.{minor}" for minor in range(first[1], last[1] + 1)}
    assert tested == {line for line in PROJECT["classifiers"] if ":: Python ::" in line}


def test_the_readme_asks_for_the_same() -> None:
    (first, last), (torch_first, _) = promised("Python"), promised("PyTorch")
    pythons, pytorch = [".".join(map(str, each)) for each in (first, last)], ".".join(map(str, torch_first))
    assert f"needs Python {' to '.join(pythons)} and PyTorch {pytorch} or later" in text_of("README.md")


def test_this_run_is_within_what_is_promised() -> None:
    """Where it fails, the suite has not been run here before: run it, and widen the range on the page."""
    first, last = promised("PyTorch")
    assert first <= version(torch.__version__) <= last
    first, last = promised("Python")
    assert first <= sys.version_info[:2] <= last


def test_the_constraints_are_within_what_is_promised() -> None:
    first, last = promised("PyTorch")
    (pinned,) = re.findall(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert first <= version(pinned) <= last
