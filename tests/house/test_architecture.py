"""docs/architecture.md: what it names exists, and its drawing is the import graph of the source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tools.docs.architecture import drawing, package_graph, reach

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "antiadv"
TEXT = (ROOT / "docs" / "architecture.md").read_text()

# paths are in backticks or in the right column of the drawing, and have a slash
PATHS = sorted(set(re.findall(r"(?<![\w/(])([a-z_]+/[\w/]*(?:\.py)?)(?=[`\s]|$)", TEXT, re.MULTILINE)))
NAMES = re.findall(r"`([\w/]+\.py)` \(`(\w+)`\)", TEXT)
QUESTIONS = re.findall(r"^\| (.*\?) \|", TEXT, re.MULTILINE)


def defined(path: Path) -> set[str]:
    """The functions, classes, methods and constants of a file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_the_page_answers_ten_questions_with_paths() -> None:
    assert len(QUESTIONS) == 10
    assert len(PATHS) > 30


@pytest.mark.parametrize("path", PATHS)
def test_every_path_on_the_page_exists(path: str) -> None:
    assert (SOURCE / path).exists() or (ROOT / path).exists() or (ROOT / "src" / path).exists()


@pytest.mark.parametrize(("path", "name"), NAMES)
def test_every_name_on_the_page_is_defined_in_its_file(path: str, name: str) -> None:
    assert name in defined(SOURCE / path)


def test_every_package_is_described_once() -> None:
    described = re.findall(r"^\| `(\w+)/` \|", TEXT.partition("## Ten questions")[0], re.MULTILINE)
    assert sorted(described) == sorted(package_graph(SOURCE))


def test_the_drawing_is_the_import_graph_and_has_no_cycle() -> None:
    graph = package_graph(SOURCE)
    assert drawing(graph) in TEXT, "run make docs"
    assert [package for package in graph if package in reach(graph, package)] == []


def test_the_drawing_marks_what_a_row_imports() -> None:
    head, *rows = drawing({"top": {"low", "mid"}, "mid": {"low"}, "low": set()}).splitlines()[1:-1]
    assert head.split() == ["low", "mid", "top"]
    assert [row.split() for row in rows] == [["low", "\\", "·", "·"], ["mid", "■", "\\", "·"], ["top", "■", "■", "\\"]]
