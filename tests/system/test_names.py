"""Names in a store from an unknown source are shown without control codes, HTML or formulas. The store keeps them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import antiadv
from antiadv.cli.__main__ import main
from antiadv.core.printable import printable
from antiadv.data import load
from antiadv.evaluation import Store
from antiadv.evaluation.cell import Cell, read_threat
from tests.engine.probes import RECEIPT, record

CODES = "\x1b]0;owned\x07\x1b[2Jred\x9b31m\u202egnp.exe\r"
HTML = "<script>alert(1)</script><img src=x onerror=alert(2)>![x](http://evil.example/x.png)[y](javascript:alert(3))"
FORMULAS = ("=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(1)", "\t=1", "\r=1", " =1")
NAMES = (CODES, HTML, *FORMULAS, "$\\frac{$", "a|b`c`d", "x\ny: 100.0 % robust", "{{ 7 * 7 }}", "\\input{/etc/passwd}")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("names") / "store"
    images, threat = load("cifar10:test").digest, read_threat("linf:8/255,access=gradients")
    for place, name in enumerate(NAMES):
        weights = f"sha256:{place:064d}"
        for defence in ("none", "anti_adversary"):
            cell = Cell("cifar10:test", images, name, weights, defence, "pgd:steps=5", threat, range(8))
            Store(root).append(cell, [record(i, attacked=i % 5) for i in range(8)], RECEIPT)
    return root


def control_codes(text: str) -> list[str]:
    """The characters that a terminal would act on, except line ends."""
    return [c for line in text.split("\n") for c in line if printable(c) != c]


def test_the_store_keeps_the_names(store: Path) -> None:
    stripped = {name.strip() for name in NAMES}
    assert {cell.model for cell in Store(store).cells()} == stripped


def test_the_terminal_gets_no_control_codes(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--store", str(store)]) == 0
    said = capsys.readouterr()
    assert control_codes(said.out + said.err) == []
    assert "\\x1b]0;owned\\x07" in said.out
    assert not [line for line in said.out.splitlines() if line.startswith("y: 100.0 % robust")]
    assert main(["report", "--store", str(store), "--json"]) == 0
    said = capsys.readouterr()
    assert control_codes(said.out + said.err) == []
    assert CODES.strip() in {row["model"] for row in json.loads(said.out)["rows"]}


def test_an_error_that_names_them_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "0" / "cell.json"
    path.parent.mkdir()
    words = {"data": CODES, "images": "", "model": CODES, "weights": "", "defence": "none", "attack": CODES}
    said = {"format": 1, "cell": {**words, "threat": "linf:8/255,access=labels"}, "identity": {}}
    path.write_text(json.dumps(said))
    assert main(["report", "--store", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert control_codes(error) == []


def test_files_hold_no_html_and_no_formula(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["report", "--store", str(store), "--out", str(out)]) == 0
    texts = {path.name: path.read_text() for path in out.rglob("*") if path.suffix in (".md", ".html", ".tex", ".csv")}
    assert not {name: control_codes(text) for name, text in texts.items() if control_codes(text)}
    for mark in ("<script>alert", "<img src=x", "](http://evil", "](javascript"):
        assert mark not in texts["report.md"]
        assert mark not in texts["report.html"] or mark.startswith("]")
    assert "49" not in [cell.strip() for cell in texts["report.md"].split("|")]
    for name in ("cells.csv", "sources.csv", "defences.csv"):
        for row in csv.reader(texts[name].splitlines()):
            assert not [cell for cell in row if cell.lstrip().startswith(("=", "+", "@")) or _dashed(cell)]
    for path in out.rglob("*.svg"):
        ET.parse(path)


def _dashed(cell: str) -> bool:
    """Whether a text begins with a minus and is not a number."""
    try:
        float(cell)
    except ValueError:
        return cell.startswith("-")
    return False


def test_python_shows_no_html(store: Path) -> None:
    made = antiadv.report(store)
    assert control_codes(str(made)) == []
    assert "<script>" not in str(made) + made._repr_html_()
