"""docs/paper-to-code.md: its paths exist, and a file has the names that its line gives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "antiadv"
LINES = [line for line in (ROOT / "docs" / "paper-to-code.md").read_text().splitlines() if line.startswith("| ")]
PATH = re.compile(r"`([a-z_]+/[\w/]*(?:\.py)?)`")
NAMED = [line for line in LINES if re.search(r"`[a-z_/\d]+\.py`", line)]


def test_the_page_has_the_symbols_and_sections_of_the_paper() -> None:
    wanted = ["K", "α", "ŷ", "L,", "ρ", "c,", "ε_g", "K_g", "Q", "B", "local monotonicity"]
    wanted += [*(f"Figure {n}" for n in range(1, 6)), *(f"Table {n}" for n in range(1, 5)), "Algorithm 1", "SND"]
    assert [name for name in wanted if not any(name in line.split("|")[1] for line in LINES)] == []


def test_every_path_on_the_page_exists() -> None:
    paths = {path for line in LINES for path in PATH.findall(line)}
    assert len(paths) > 15
    assert [path for path in paths if not (SOURCE / path).exists()] == []


@pytest.mark.parametrize("line", NAMED, ids=lambda line: line.split("|")[1].strip())
def test_a_file_has_the_names_of_its_line(line: str) -> None:
    files = [(SOURCE / path).read_text() for path in PATH.findall(line) if path.endswith(".py")]
    quoted = [text for text in re.findall(r"`([^`]+)`", line) if "/" not in text or " / " in text]
    names = [name for text in quoted for name in re.findall(r"[A-Za-z_]\w*", text)]
    assert [name for name in names if not any(re.search(rf"\b{name}\b", text) for text in files)] == []
