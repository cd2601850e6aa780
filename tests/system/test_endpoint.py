"""Runs against an endpoint: what was answered is not asked again after a kill, and a changed model is noticed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from antiadv import data
from antiadv.cli.__main__ import main
from antiadv.core.errors import AccessDenied, BadInput, StoreMismatch, Unfinished
from antiadv.evaluation import Cell, Store, evaluate, make_cell
from antiadv.evaluation.probe import ASKS, OF_DATA
from tests.models.endpoint import Endpoint, Raw
from tests.toys import make_rule

ROOT = Path(__file__).resolve().parents[2]
PROBE = ASKS * (OF_DATA + 2)  # images that check an endpoint before a run
ASKED: dict[str, Any] = {"attack": "square", "threat": "linf:4/255,queries=30", "samples": range(12)}


@pytest.fixture
def server() -> Iterator[Endpoint]:
    with Endpoint(make_rule()) as made:
        yield made


@pytest.fixture
def images(tmp_path: Path) -> str:
    """Images that the network classifies correctly, so that all of them are attacked."""
    x = data.load("cifar10:test").images(range(40))
    y = make_rule()(x).argmax(1)
    pixels = (255 * x.permute(0, 2, 3, 1)).round().to(torch.uint8).numpy()
    np.savez(tmp_path / "mine.npz", images=pixels, labels=y.numpy())
    return f"arrays:{tmp_path}/mine.npz"


def cell(server: Endpoint, images: str, **more: Any) -> Cell:
    return make_cell(model=f"{server.url},connections=1,backoff=0.001", data=images, **{**ASKED, **more})


def test_a_killed_run_does_not_ask_again_what_was_answered(server: Endpoint, images: str, tmp_path: Path) -> None:
    asked = cell(server, images)
    evaluate(asked, tmp_path / "unbroken")
    whole = server.rows
    assert whole == 2 * PROBE + sum(r.queries + 2 for r in Store(tmp_path / "unbroken").read(asked))
    words = ["--model", f"{server.url},connections=1", "--data", images, "--attack", "square", "--samples", "0:12"]
    words += ["--threat", "linf:4/255,queries=30", "--store", str(tmp_path / "killed"), "--device", "cpu"]
    process = subprocess.Popen([sys.executable, "-m", "antiadv", "evaluate", *words], cwd=ROOT)

    def kill(number: int) -> Raw | None:
        if number != 15:
            return None
        process.kill()
        process.wait()
        return Raw(drop=True)

    server.posts = server.rows = 0
    server.trouble = kill
    assert process.wait(timeout=300) != 0
    answered = server.rows
    store = Store(tmp_path / "killed")
    assert PROBE < answered < whole - PROBE
    assert not store.done(asked)
    assert store.answers(asked).exists()
    evaluate(asked, store)
    assert store.read(asked) == Store(tmp_path / "unbroken").read(asked)
    assert server.rows == whole + PROBE, "only the check was asked twice"
    assert not store.answers(asked).exists()
    assert store.receipts(asked)[0].sent == whole - PROBE - answered


def test_a_failure_in_the_middle_keeps_the_answers_too(server: Endpoint, images: str, tmp_path: Path) -> None:
    asked = cell(server, images)
    server.trouble = lambda number: Raw(500) if number == 10 else None
    with pytest.raises(Unfinished, match="500"):
        evaluate(asked, tmp_path, shard=6)
    assert len(Store(tmp_path).done(asked)) == 6, "the shard after it was run"
    server.trouble = lambda number: None
    evaluate(asked, tmp_path, shard=6)
    assert server.rows == 4 * PROBE + sum(r.queries + 2 for r in Store(tmp_path).read(asked))


def test_shards_of_another_size_use_the_same_answers(server: Endpoint, images: str, tmp_path: Path) -> None:
    asked = cell(server, images)
    server.trouble = lambda number: Raw(500) if number >= 20 else None
    with pytest.raises(Unfinished):
        evaluate(asked, tmp_path)
    server.trouble = lambda number: None
    evaluate(asked, tmp_path, shard=5)
    assert server.rows == 5 * PROBE + sum(r.queries + 2 for r in Store(tmp_path).read(asked))


def test_an_endpoint_that_answers_otherwise_is_not_resumed(server: Endpoint, images: str, tmp_path: Path) -> None:
    asked = cell(server, images)
    server.trouble = lambda number: Raw(500) if number == 10 else None
    with pytest.raises(Unfinished):
        evaluate(asked, tmp_path)
    server.trouble = lambda number: None
    net = server.net
    server.net = torch.nn.Sequential(torch.nn.Hardtanh(0.2, 0.7), net)
    with pytest.raises(StoreMismatch):
        evaluate(asked, tmp_path)
    server.net = net
    evaluate(asked, tmp_path)
    server.net = torch.nn.Sequential(torch.nn.Hardtanh(0.2, 0.7), net)
    with pytest.raises(StoreMismatch):
        evaluate(asked, tmp_path)


@pytest.mark.parametrize("post", [12, 25])
def test_an_endpoint_that_is_replaced_during_a_run_is_noticed(
    post: int, server: Endpoint, images: str, tmp_path: Path
) -> None:
    """It starts again with other weights in the middle of the first shard, and answers go on as before."""
    asked, store, net = cell(server, images), Store(tmp_path), server.net

    def swap(number: int) -> None:
        if number == post:
            server.net = torch.nn.Sequential(torch.nn.Hardtanh(0.2, 0.7), net)

    server.trouble = swap
    for _ in range(2):  # the answers of both networks in the journal are not used either
        with pytest.raises(StoreMismatch, match="has changed"):
            evaluate(asked, store)
        assert not store.done(asked)


def test_an_endpoint_is_asked_from_one_process_and_without_gradients(
    server: Endpoint, images: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="local"):
        evaluate(cell(server, images), tmp_path, runner="processes:2")
    with pytest.raises(AccessDenied):
        cell(server, images, attack="pgd", threat="linf:4/255")
    assert server.received == 0


# ---------------------------------------------------------------- the command line


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([*map(str, words), "--device", "cpu"])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_verdict_on_an_endpoint(
    server: Endpoint, images: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["verdict", "--model", server.url, "--data", images, "--samples", "0:12", "--threat"]
    words += ["linf:2/255,queries=40", "--store", str(tmp_path)]
    code, out, _ = run(capsys, *words)
    assert code == 0
    sent = server.rows
    assert f"sent {sent} images" in out
    code, out, _ = run(capsys, *words, "--json")
    said = json.loads(out)
    assert (said["samples"], said["sent"]) == (12, PROBE), "all is stored; only the check is asked"
    assert server.rows == sent + PROBE
    assert {r["attack"]: r["threat"] for r in said["rows"]} == {
        "rays": "linf:2/255,access=labels,queries=40",
        "square": "linf:2/255,access=scores,queries=40",
    }
    assert all(r["robust"]["n"] == 12 for r in said["rows"])
    (sentence,) = said["verdict"]
    assert sentence.count("at most 40 queries") == 2


def test_a_verdict_on_labels_in_another_norm(
    server: Endpoint, images: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.kind = "labels"
    words = ["verdict", "--model", f"{server.url},output=labels,classes=10", "--data", images, "--samples", "0:6"]
    code, out, _ = run(capsys, *words, "--threat", "l2:0.5,queries=20", "--store", tmp_path, "--json")
    assert code == 0
    assert [r["attack"] for r in json.loads(out)["rows"]] == ["hop_skip_jump"]


@pytest.mark.parametrize("verb", ["evaluate", "verdict"])
def test_another_machine_is_refused_in_one_line(
    verb: str, images: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [verb, "--model", "http://192.0.2.1/v2/models/net,timeout=0.001,retries=0", "--data", images]
    words += ["--threat", "linf:2/255,queries=40", "--store", str(tmp_path)]
    words += ["--attack", "square"] if verb == "evaluate" else []
    code, out, err = run(capsys, *words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "--authorised" in err


def test_a_stored_command_says_authorised_only_where_it_is_needed(server: Endpoint, images: str) -> None:
    command = cell(server, "cifar10:test").command
    assert command is not None
    assert server.url in command
    assert "--authorised" not in command
