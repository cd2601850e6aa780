"""`antiadv reproduce` runs a table for real, resumes it and shows it."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
import torch

from antiadv import data, models, paper
from antiadv.cli.__main__ import main
from antiadv.evaluation import Resources, Store
from antiadv.reporting.measures import standing
from tests.paper.written import put


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_table_is_run_resumed_shown_and_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    args = ["table-4", "--samples", "3", "--store", str(tmp_path), "--device", "cpu"]
    assert main(["reproduce", *args, "--json"]) == 0
    text = json.loads(capsys.readouterr().out)
    store = Store(tmp_path)
    at_hand = {models.canonical(card.spec) for card in models.cards()} & {"compact:awp", "wrn16-4:awp"}
    assert len(store.cells()) == 6 * len(at_hand)
    files = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.xz")}
    assert len(files) == 6 * len(at_hand)

    shown = text["experiments"]["table-4"]["lines"][0]["numbers"]
    bare = [c for c in store.cells() if c.model == "compact:awp" and c.defence == "none"]
    cell = next(c for c in bare if c.attack == "qeba")
    records = store.read(cell)
    assert shown["QEBA"]["ours"]["value"] == sum(standing(r, cell.threat.ball) for r in records) / 3
    assert shown["QEBA"]["paper"] == 85.0
    assert shown["clean"]["ours"]["value"] == sum(r.clean == r.label for r in records) / 3
    assert len(text["missing"]) == 6 * (2 - len(at_hand))
    assert all("zoo" in m["why"] for m in text["missing"])

    assert main(["reproduce", *args]) == 0  # resumes: nothing is left to do
    out = capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.xz")} == files
    for part in ("Table 4: AWP under decision-based attacks", "AWP, compact:awp", "(86.0)", "BA, L2 0.5"):
        assert part in out

    assert main(["report", "table-4", "--store", str(tmp_path), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["experiments"]["table-4"]["lines"]
    assert again == text["experiments"]["table-4"]["lines"]
    gone = next(c for c in store.cells() if c.attack == "qeba" and c.defence != "none" and c.model == "compact:awp")
    (tmp_path / gone.key).rename(tmp_path.parent / "gone")
    assert main(["report", "table-4", "--store", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"not stored: qeba\b.*linf:8/255,queries=30\b.*\bcompact:awp\b.*\banti_adversary\n", out)
    assert out.count("not stored: ") == 1 + 6 * (2 - len(at_hand))
    assert re.search(r"fewer samples .*: boundary", out)  # three instead of a hundred
    (tmp_path.parent / "gone").rename(tmp_path / gone.key)

    assert main(["reproduce", *args[:2], "5", *args[3:], "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["cells"]
    assert {(c["stored"], c["samples"]) for c in listed} == {(3, 5)}
    assert all(c["command"].startswith("antiadv evaluate --data cifar10:test --model compact:awp") for c in listed[:6])


@pytest.mark.usefixtures("small")
def test_a_cell_that_is_complete_in_another_precision_is_not_run_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, resources: Resources
) -> None:
    """Stored results are made on a GPU and shown anywhere."""
    store = Store(tmp_path)
    cells = paper.cells("table-4", samples=2, resources=resources)
    for i, cell in enumerate(cells):
        put(store, dataclasses.replace(cell, precision="half" if i % 2 else "tf32"), 1, n=2)
    files = sorted(tmp_path.rglob("*.xz"))
    words = ["reproduce", "table-4", "--store", str(tmp_path), "--device", "cpu", "--json"]
    assert main([*words, "--samples", "2"]) == 0
    assert sorted(tmp_path.rglob("*.xz")) == files
    (line, *_) = json.loads(capsys.readouterr().out)["experiments"]["table-4"]["lines"]
    assert line["numbers"]["QEBA"]["ours"]["value"] == 0.5
    assert main([*words, "--samples", "2", "--list"]) == 0
    assert {c["stored"] for c in json.loads(capsys.readouterr().out)["cells"]} == {2}
    assert main([*words, "--samples", "3", "--precision", "half"]) == 2, (
        "three samples are not complete, and half needs a GPU"
    )
    assert re.search("half .*CUDA.* cpu", capsys.readouterr().err)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_the_authors_checkpoints_are_run_and_not_mixed_with_the_zoo(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A ResNet-18 with the name of one in the zoo and other weights. It gives every image the same label."""
    folder, store = tmp_path / "theirs", tmp_path / "store"
    folder.mkdir()
    net = models.build("resnet18")
    with torch.no_grad():
        net.get_parameter("fc.bias")[data.load("cifar10").labels([0])] = 100
    torch.save({"net": net.state_dict()}, folder / "resnet18.pt")
    words = ["table-1", "--networks", f"official:{folder}", "--store", str(store)]
    assert main(["reproduce", *words, "--samples", "1", "--device", "cpu", "--runner", "processes:2", "--json"]) == 0
    text = json.loads(capsys.readouterr().out)
    lines = text["experiments"]["table-1"]["lines"]
    assert [line["network"] for line in lines[:4]] == ["nominal, resnet18:standard"] * 4
    assert [line["numbers"]["clean"]["ours"]["n"] for line in lines[:4] if "clean" in line["numbers"]] == [1, 1, 1]
    assert all(number["ours"] is not None for number in lines[3]["numbers"].values())
    assert {m["why"].partition(" in ")[0] for m in text["missing"]} == {"there is no ResNet-50"}

    assert main(["report", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["experiments"]["table-1"]["lines"] == lines
    assert main(["report", "table-1", "--store", str(store), "--json"]) == 0
    zoo = json.loads(capsys.readouterr().out)["experiments"]["table-1"]["lines"]
    assert all(number["ours"] is None for line in zoo for number in line["numbers"].values())
