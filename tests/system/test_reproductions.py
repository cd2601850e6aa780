"""Six ways in which version 0.1.0 gave a wrong number or ran code, without a word. Each failed on its last commit.

Only the command line and public names are used, so that the file runs against any version:

    PYTHONPATH=OLD/src pytest --noconftest tests/system/test_reproductions.py
"""

from __future__ import annotations

import http.server
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv.cli.__main__ import main

HEAD = """
import json, urllib.request
from pathlib import Path
import torch
from torch import nn

def bands(x):
    return x.flatten(1)[:, :3070].reshape(len(x), 10, 307).mean(2) * 10

class Net(nn.Module):
    def forward(self, x):
        return {answer}

def make():
    return Net().eval()
"""
SQUARE = ["evaluate", "--model", "mine:make", "--attack", "square:steps=5", "--threat", "linf:4/255,queries=10"]
SQUARE += ["--samples", "0:8"]
VERDICT = ["verdict", "--model", "mine:make", "--threat", "linf:4/255,queries=10", "--samples", "0:8"]

Write = Callable[[str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes the user's module `mine.py` into the current folder; the next command imports it again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def module(answer: str) -> None:
        sys.modules.pop("mine", None)
        Path("mine.py").write_text(HEAD.format(answer=answer))

    yield module
    sys.modules.pop("mine", None)


def shows_no_number(capsys: pytest.CaptureFixture[str], words: list[str]) -> bool:
    capsys.readouterr()
    return main(words) != 0 and "%" not in capsys.readouterr().out


def test_a_fix_in_forward(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("bands((x - 0.5) / 0.25)")
    assert main(VERDICT) == 0
    write("bands((x - 0.45) / 0.25)")
    assert shows_no_number(capsys, VERDICT)


def linear(path: str, by: float) -> None:
    """An ONNX file: bands times `by`."""
    from onnx import TensorProto, helper, save

    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "by"], ["s"])],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 10])],
        [helper.make_tensor_value_info("s", TensorProto.FLOAT, ["n", 10])],
        [helper.make_tensor("by", TensorProto.FLOAT, [], [by])],
    )
    save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)


def test_a_swapped_onnx_file(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    linear("net.onnx", 1.0)
    run = "__import__('onnxruntime').InferenceSession('net.onnx').run(None, {{'x': bands(x).numpy()}})[0]"
    write(f"torch.from_numpy({run.replace('{{', '{').replace('}}', '}')})")
    assert main(SQUARE) == 0
    linear("net.onnx", -1.0)
    assert shows_no_number(capsys, SQUARE)


class Echo(http.server.BaseHTTPRequestHandler):
    """A model served by HTTP: returns the scores that it was sent."""

    def do_POST(self) -> None:
        said = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *args: object) -> None:
        pass


def test_a_stopped_server(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        asked = f"'http://127.0.0.1:{server.server_address[1]}', json.dumps(bands(x).tolist()).encode(), timeout=30"
        write(f"torch.tensor(json.loads(urllib.request.urlopen({asked}).read()))")
        assert main(SQUARE) == 0
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert shows_no_number(capsys, SQUARE)


class NanAt(nn.Module):
    """Two classes: brighter or darker than grey. The n-th answer is NaN."""

    def __init__(self, call: int) -> None:
        super().__init__()
        self.call, self.calls = call, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        m = x.flatten(1).mean(1) - 0.5
        return torch.stack([m, -m], 1) * (torch.nan if self.calls == self.call else 1)


def grey(n: int = 8) -> tuple[Tensor, Tensor]:
    return torch.full((n, 3, 8, 8), 0.6), torch.zeros(n, dtype=torch.int64)


def test_nan_at_call_50_of_square() -> None:
    x, y = grey()
    model = NanAt(50).eval()
    with pytest.raises(antiadv.errors.AntiadvError, match="NaN"):
        antiadv.attack(model, x, y, "square", antiadv.Linf(0.01), queries=100)
    assert model.calls >= 50


def test_nes_with_too_few_queries() -> None:
    x, y = grey()
    outcome = antiadv.attack(NanAt(0).eval(), x, y, "nes", antiadv.Linf(0.2), queries=100)
    assert sum(r.queries for r in outcome.records) == 0
    with pytest.raises(antiadv.errors.AntiadvError, match="not attacked"):
        _ = outcome.robust_accuracy


def test_a_foreign_store(write: Write) -> None:
    """Its kept images made `report --out` import and call the network that it names."""
    write("bands(x)")
    assert main([*SQUARE, "--defence", "anti_adversary", "--keep-images", "--store", "store"]) == 0
    sys.modules.pop("mine", None)
    Path("mine.py").write_text(f"{HEAD.format(answer='bands(x)')}\nPath('imported').touch()\n")
    assert main(["report", "--store", "store", "--out", "out"]) == 0
    assert not Path("imported").exists()
