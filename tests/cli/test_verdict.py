"""`antiadv verdict` in this process, on the exact toy and the embedded images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from antiadv import data
from antiadv.cli.__main__ import main
from antiadv.evaluation import Store
from antiadv.models import load

MODEL = "tests.toys:make_rule"
VERDICT = ["verdict", "--model", MODEL, "--defence", "anti_adversary", "--threat", "linf:4/255,queries=20"]


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([*VERDICT, *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def run_json(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    code, out, err = run(capsys, *words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def files(root: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_a_verdict_is_a_table_and_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capsys, "--samples", "0:40", "--store", tmp_path)
    assert code == 0
    for part in (MODEL, "linf:4/255", "n 40", "transfer:attack=fast", "3 forward and 2 backward", "calibration error"):
        assert part in out
    assert f"in {tmp_path}; name more --samples" in out, "it has taken all"
    last = out.strip().splitlines()[-1]
    assert last.startswith(f"On {MODEL}, anti_adversary cannot be judged"), "its ten bands know nothing of CIFAR"
    assert err.startswith("Flag near_chance"), "before anything is attacked"
    assert "samples" in err
    before = files(tmp_path)
    said = run_json(capsys, "--samples", "0:40", "--store", tmp_path)
    assert files(tmp_path) == before, "it is all there"
    assert said["verdict"] == [last]
    assert {r["robust"]["n"] for r in said["rows"]} == {40}
    assert [level["access"] for level in said["levels"]] == ["labels", "scores", "gradients", "internals"]
    assert said["samples"] == 40
    assert [flag["name"] for flag in said["flags"]] == ["near_chance"]


@pytest.mark.filterwarnings("ignore")  # of the exporter, about its own parts
def test_an_onnx_file_gets_a_verdict_and_a_league_without_gradients(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    net, path = load("compact:trades"), tmp_path / "net.onnx"
    torch.onnx.export(net, (torch.rand(1, 3, 32, 32),), str(path), dynamo=True, verbose=False)
    short = ["--model", f"onnx:{path}", "--threat", "linf:8/255,queries=10", "--samples", "0:8", "--json"]
    short += ["--store", str(tmp_path / "store"), "--device", "cpu"]
    assert main(["verdict", *short, "--defence", "rounded_scores"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [level["access"] for level in said["levels"]] == ["labels", "scores"]
    assert said["samples"] == 8
    assert said["verdict"]
    assert main(["verdict", *short, "--defence", "anti_adversary"]) == 2
    assert "passes no gradients" in capsys.readouterr().err
    named = ["rounded_scores", "anti_adversary", "resize_pad"]
    assert main(["league", *short, *(word for name in named for word in ("--entrants", name))]) == 0
    made = json.loads(capsys.readouterr().out)
    assert list(made["columns"]) == ["scores", "labels"]
    assert {"anti_adversary", "resize_pad"} <= set(made["left_out"])
    assert [line["name"] for line in made["lines"]] == ["bare", "rounded_scores"]


def test_of_few_images_it_takes_all_and_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    images = data.load("cifar10:test").images(range(12)).permute(0, 2, 3, 1)
    labels = data.load("cifar10:test").labels(range(12))
    np.savez(tmp_path / "mine.npz", images=(255 * images).round().to(torch.uint8).numpy(), labels=labels.numpy())
    code, out, _ = run(capsys, "--data", f"arrays:{tmp_path}/mine.npz", "--store", tmp_path / "store")
    assert code == 0
    assert "n 12" in out
    assert f"in {tmp_path}/store; these are all the samples" in out


def test_who_ran_out_of_time_is_told_how_to_go_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, out, _ = run(capsys, "--samples", "0:20", "--store", tmp_path, "--minutes", "0.00001")
    assert f"in {tmp_path}; run again" in out


def test_the_time_is_kept_and_the_rest_comes_later(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said = run_json(capsys, "--samples", "10:60", "--store", tmp_path, "--minutes", "0.00001")
    assert said["samples"] == 8, "the first round only"
    assert {tuple(Store(tmp_path).done(c)) for c in Store(tmp_path).cells()} == {tuple(range(10, 18))}
    more = run_json(capsys, "--samples", "10:60", "--store", tmp_path, "--minutes", "0.00001")
    assert more["samples"] == 16
    assert {r["robust"]["n"] for r in more["rows"]} == {16}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--defence", "none"), "name one"),
        (("--defence", "magic"), "magic"),
        (("--minutes", "0"), "needs some time"),
        (("--samples", "5:5"), "at least one"),
        (("--threat", "linf:1/255,targeted=true"), "untargeted"),
    ],
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    code, out, err = run(capsys, "--store", tmp_path, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_defence_for_an_endpoint_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["verdict", "--model", "http://127.0.0.1:9/v2/models/net", "--defence", "jpeg", "--store", str(tmp_path)]
    assert main(words) == 2
    assert "--defence" in capsys.readouterr().err
