"""`--runner ray` on a real local cluster: equal answers, and none is lost when an engine is killed under load."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
import torch

from antiadv.core.errors import BadInput
from antiadv.serving.keys import Keys, digest
from antiadv.serving.limits import Limits
from antiadv.serving.source import Source
from tests.serving.live import ROOT, serving
from tests.serving.nets import bare, binary_request, binary_scores, pictures

ray = pytest.importorskip("ray")
pytest.importorskip("ray.serve")
on_ray = pytest.importorskip("antiadv.serving.on_ray")

INFER = "/v2/models/net/infer"
PATIENCE = 300.0
CLIENTS = 8
KEYS = f"ann {digest('key')} 100000"


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def cluster(port: int) -> Iterator[Any]:
    """Serve on a cluster of this machine; yields a handle to the engines."""
    from ray import serve

    source = Source(model="tests.serving.nets:Slow", defence="none", shape=(3, 8, 8), name="net", threads=1)
    ray.init("local", num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
             object_store_memory=80 * 2**20)  # fmt: skip
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        on_ray.deploy(source, Limits(batch=4, answer=120.0), Keys.read(KEYS), (2, 2))
        yield serve.get_deployment_handle(on_ray.ENGINE, on_ray.ENGINE)
        serve.shutdown()
    finally:
        ray.shutdown()


def processes(handle: Any) -> set[int]:
    """The processes of both engines."""
    found: set[int] = set()
    end = time.monotonic() + PATIENCE
    while len(found) < 2 and time.monotonic() < end:
        found |= {answer.result(timeout_s=PATIENCE) for answer in [handle.process.remote() for _ in range(8)]}
    return found


class Client(threading.Thread):
    """Asks one question after another on its own connection, until it is told to stop."""

    def __init__(self, port: int, seed: int, stop: threading.Event) -> None:
        super().__init__()
        self.port, self.seed, self.ended = port, seed, stop
        self.statuses: list[int] = []
        self.answers: list[Any] = []
        self.error: Exception | None = None

    def run(self) -> None:
        body, headers = binary_request(pictures(1, self.seed))
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
                while not self.ended.is_set():
                    connection.request("POST", INFER, body, {**headers, "X-API-Key": "key"})
                    answer = connection.getresponse()
                    content = answer.read()
                    self.statuses.append(answer.status)
                    if answer.status == 200:
                        length = answer.headers["Inference-Header-Content-Length"]
                        self.answers.append(binary_scores(content, length))
        except Exception as error:
            self.error = error


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray leaves sockets and subprocesses to the garbage collector
def test_answers_are_equal_and_none_is_lost_when_an_engine_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["src", ".", os.environ.get("PYTHONPATH", "")]))
    net, port, stop = bare(), free_port(), threading.Event()
    truth = [net(torch.from_numpy(pictures(1, seed))).detach().numpy() for seed in range(CLIENTS)]
    with cluster(port) as handle:
        first = processes(handle)
        assert len(first) == 2
        clients = [Client(port, seed, stop) for seed in range(CLIENTS)]
        try:
            for client in clients:
                client.start()
            wait_for(lambda: all(len(client.answers) >= 3 for client in clients))
            os.kill(min(first), signal.SIGKILL)  # with requests inside
            before = [len(client.answers) for client in clients]
            wait_for(lambda: all(len(c.answers) >= n + 5 for c, n in zip(clients, before, strict=True)))
        finally:
            stop.set()
            for client in clients:
                client.join(PATIENCE)
        assert [client.error for client in clients] == [None] * CLIENTS
        assert {status for client in clients for status in client.statuses} == {200}
        for client in clients:
            assert all(np.allclose(found, truth[client.seed], atol=1e-5) for found in client.answers)
        after = processes(handle)
        assert min(first) not in after  # another one was started
        assert len(after) == 2


@pytest.mark.slow
def test_the_command_counts_batches_and_ends_with_0_after_sigterm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    words = ("--model", "tests.serving.nets:bare", "--defence", "none", "--shape", "3,8,8", "--name", "net")
    body, headers = binary_request(pictures(3))
    with serving(*words, "--runner", "ray", "--quiet", port=free_port()) as live:
        name, _, port = live.host.partition(":")
        with closing(http.client.HTTPConnection(name, int(port), timeout=PATIENCE)) as connection:
            connection.request("POST", INFER, body, headers)
            assert connection.getresponse().status == 200
        metrics = urlopen(f"{live.url}/metrics", timeout=PATIENCE).read().decode()
        assert live.end() == 0
    numbers = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    for counted in ("batches_total", "batch_rows_count", "queue_seconds_count", "engine_seconds_count"):
        assert float(numbers[f"antiadv_{counted}"]) == 1
    texts = [line["text"] for line in live.lines if line["event"] == "text"]
    assert all("(raylet)" in text for text in texts), texts  # what Ray's node says of its own, no logger of ours sees
    assert [line["event"] for line in live.lines if line["event"] != "text"] == [
        "listening",
        "closing",
        "ended",
        "gone",
    ]


@pytest.mark.slow
def test_a_bundle_that_no_engine_can_load_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "antiadv", "serve", "nothing", "--runner", "ray", "--port", str(free_port())]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=PATIENCE)
    assert done.returncode == 2
    assert f"{tmp_path / 'nothing'} is no bundle" in done.stderr


def wait_for(true: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("text", ["0", "x", "3:1", "1:", ":", "-1:2"])
def test_strange_replicas_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        on_ray.parse_replicas(text)
