"""The tutorials run, show what is stored in them, and compute what their text says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tools import notebooks

pytest.importorskip("onnxruntime")


def masked(text: str) -> str:
    """Numbers differ a little from machine to machine. What stands around them does not."""
    return re.sub(r"[-+]?\d[\d.,e+-]*", "0", re.sub(r"[ ─-]+", " ", text))


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run a tutorial in an empty folder. Returns its variables; what it shows must be what is stored."""

    def run(name: str) -> dict[str, Any]:
        monkeypatch.chdir(tmp_path)
        stored = notebooks.read(name)
        made, names = notebooks.run(stored)
        assert list(map(masked, notebooks.texts(made))) == list(map(masked, notebooks.texts(stored)))
        assert not list(tmp_path.iterdir()), "a tutorial must leave no files behind"
        return names

    return run


@pytest.mark.parametrize("name", notebooks.NAMES)
def test_a_tutorial_is_stored_with_what_it_shows(name: str) -> None:
    stored = notebooks.read(name)
    assert (stored["nbformat"], stored["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in stored["cells"]]
    assert len(set(ids)) == len(ids)
    counts = [cell["execution_count"] for cell in stored["cells"] if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1)), "run python -m tools.notebooks"
    assert any(notebooks.texts(stored))
    assert len(json.dumps(stored)) < 40_000


def test_what_a_cell_prints_and_ends_in_is_kept() -> None:
    cells = [{"cell_type": "code", "source": [text]} for text in ("a = 2\nprint(a)\na + 1", "a = 5", "None")]
    made, names = notebooks.run({"cells": [*cells, {"cell_type": "markdown", "source": ["# Title"]}]})
    assert notebooks.texts(made) == ["2\n\n3", "", ""]
    assert names["a"] == 5
    page = notebooks.page({"cells": [made["cells"][-1], *made["cells"][:-1]]}, "x")
    assert page.startswith("# Title\n\n")
    assert "[x.ipynb](x.ipynb)" in page
    assert "```text\n3\n```" in page


@pytest.mark.slow
def test_the_layer_on_your_model(ran: Any) -> None:
    found = ran("layer")
    assert found["with_layer"].robust_accuracy > found["bare"].robust_accuracy
    assert found["known"].robust_accuracy <= found["bare"].robust_accuracy
    assert not any(f.fine is False for f in found["preflight"](found["model"], found["x"], found["y"]))


@pytest.mark.slow
def test_an_honest_evaluation(ran: Any) -> None:
    found = ran("evaluation")
    assert found["verdict"].samples == 8
    assert [row.robust.n for row in found["antiadv"].report(found["folder"]).rows] == [12, 12]


@pytest.mark.slow
def test_reading_a_verdict(ran: Any) -> None:
    found = ran("verdict")
    assert found["gains"]["apgd:steps=20"].value > 0, "rounding hides the gradients"
    (adaptive,) = (gain for name, gain in found["gains"].items() if "transfer" in name)
    assert adaptive.value == 0
    assert found["verdict"].flags


@pytest.mark.slow
def test_deploying(ran: Any) -> None:
    found = ran("deploy")
    assert found["same"] >= 28
    assert found["server"].returncode is not None
    assert found["outcome"].sent >= sum(r.queries for r in found["outcome"].records)


@pytest.mark.slow
def test_a_jupyter_kernel_shows_a_bar_and_short_reprs() -> None:
    """In a real kernel, which is only there with the extra `integration`."""
    client = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    source = (
        "import torch, antiadv\n"
        "net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3)).eval()\n"
        "x = torch.linspace(0, 1, 48).view(4, 3, 2, 2)\n"
        "antiadv.attack(net, x, net(x).argmax(1), 'square:steps=50', antiadv.Linf(0.1), queries=60)\n"
    )
    seen: list[str] = []

    class Watching(client.NotebookClient):  # type: ignore[misc, name-defined]
        def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
            if msg["msg_type"] in ("display_data", "update_display_data"):
                seen.append(msg["content"]["data"].get("text/html", ""))
            return super().process_message(msg, cell, cell_index)

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    Watching(notebook, timeout=300).execute()
    assert "<progress" in seen[0]
    assert any("queries" in shown and "value=" in shown for shown in seen)
    assert seen[-1] == "", "the bar goes at the end"
    shown = notebook.cells[0].outputs[-1]["data"]
    assert shown["text/plain"].startswith("Outcome(square:steps=50 on 4 samples")
    assert "<table>" in shown["text/html"]
