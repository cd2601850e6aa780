"""`antiadv theory`: the table, the JSON, the figure, and the messages if it cannot be drawn."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from PIL import Image

from antiadv.cli.__main__ import main
from antiadv.paper import theory


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main(["theory", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_table_names_every_result_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    for e in theory.experiments():
        assert e.result in out
        assert " ".join(e.says.split()[:3]) in out
    assert out.splitlines()[-1].startswith("7 of 16 ")


def test_json_is_the_experiments(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"experiments": [e.json() for e in theory.experiments()], "figure": None}


def test_the_figure_as_png_and_svg(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    png, svg, again = tmp_path / "new" / "g.png", tmp_path / "g.svg", tmp_path / "again.svg"
    code, out, err = run(capsys, "--out", png)
    assert (code, err) == (0, "")
    assert str(png) in out.splitlines()[-1]
    with Image.open(png) as image:
        assert image.size == (1350, 600)
        colours = image.convert("RGB").getcolors(1 << 20)
        assert colours is not None
        assert len(colours) > 50
    assert json.loads(run(capsys, "--out", svg, "--json")[1])["figure"] == str(svg)
    text = svg.read_text()
    for words in ("G(c)", "γ added to the iterate", "γ in each query only", "Theorem 1", "Theorem 3"):
        assert words in text
    run(capsys, "--out", again)
    assert again.read_bytes() == svg.read_bytes()


@pytest.mark.parametrize("name", ["g.pdf", "g", "g.png.txt"])
def test_only_two_kinds_of_file(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    code, out, err = run(capsys, "--out", tmp_path / name)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert ".png or .svg" in err
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, out, err = run(capsys, "--out", tmp_path / "file" / "g.png")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "g.png" in err


def test_without_matplotlib_it_names_the_extra(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [m for m in sys.modules if m.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = run(capsys, "--out", tmp_path / "g.png")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "pip install 'antiadv[report]'" in err
    assert run(capsys)[0] == 0, "the table needs none"
