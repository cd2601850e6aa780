"""Every script in examples/ runs, warns of nothing, and computes what its text says."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a script in an empty folder. Returns its variables."""

    def in_an_empty_folder(name: str) -> dict[str, Any]:
        monkeypatch.chdir(tmp_path)
        found = runpy.run_path(str(FOLDER / f"{name}.py"))
        assert capsys.readouterr().out.strip(), "an example must print what it found"
        assert not list(tmp_path.iterdir()), "an example must leave no files behind"
        return found

    return in_an_empty_folder


def test_there_is_a_test_for_every_script() -> None:
    text = Path(__file__).read_text()
    assert len(SCRIPTS) >= 6
    assert [path.stem for path in SCRIPTS if f'run("{path.stem}")' not in text] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_scripts_are_short_and_say_what_they_show(path: Path) -> None:
    text = path.read_text()
    assert "seconds on a CPU" in (ast.get_docstring(ast.parse(text)) or "")
    assert len(text.splitlines()) <= 60


def test_defend_your_model(run: Any) -> None:
    found = run("defend_your_model")
    assert found["clean_before"] == found["clean_after"] > 0.5
    assert found["same_label"] == 1.0
    assert found["raised"] > 0.9


def test_attack_a_batch(run: Any) -> None:
    found = run("attack_a_batch")
    bare, layer, scores, adaptive = found["outcomes"].values()
    assert layer.robust_accuracy > bare.robust_accuracy, "the gradients of the layer mislead the attack"
    assert adaptive.robust_accuracy == bare.robust_accuracy, "an attacker who knows the layer loses nothing"
    assert max(record.queries for record in scores.records) == 50
    assert 0 < found["perturbation"] <= 8 / 255 + 1e-6


def test_evaluate_and_resume(run: Any) -> None:
    found = run("evaluate_and_resume")
    assert found["first"] == [set(range(8))] * 2
    assert found["new"] == [set(range(8, 12))] * 2
    assert [row.robust.n for row in found["report"].rows] == [12, 12]


@pytest.mark.slow
def test_read_a_verdict(run: Any) -> None:
    verdict = run("read_a_verdict")["verdict"]
    assert verdict.samples == 4
    assert verdict.sentence
    bare = {row.cell.attack: row.robust.value for row in verdict.rows if row.gain is None}
    defended = {row.cell.attack: row.robust.value for row in verdict.rows if row.gain is not None}
    assert bare.keys() == defended.keys()
    (adaptive,) = (name for name in bare if "transfer:attack=fast" in name)
    assert defended[adaptive] == bare[adaptive], "a transfer attack undoes it"
    gradients = "apgd:steps=20"
    assert defended[gradients] > bare[gradients], "rounding hides the gradients"
    assert "zero_gradients" in {flag.name for flag in verdict.flags}
    assert (verdict.cost.forwards, verdict.cost.backwards) == (1, 0)


def test_your_own_attack(run: Any) -> None:
    found = run("your_own_attack")
    outcome = found["outcome"]
    right = [record for record in outcome.records if record.clean == record.label]
    assert {record.queries for record in right} == {15}, "the budget of 15 queries ends the 20 steps"
    assert sum(record.attacked != record.label for record in right) > 0, "it breaks some samples"
    assert (outcome.images - found["x"]).abs().max() <= found["antiadv"].Linf(16 / 255).reach


def test_your_own_defence(run: Any) -> None:
    found = run("your_own_defence")
    assert found["clean"] > 0.5
    assert found["transferred"].robust_accuracy > found["bare"].robust_accuracy
    assert found["direct"].robust_accuracy < found["transferred"].robust_accuracy, "gradients pass through the filter"
