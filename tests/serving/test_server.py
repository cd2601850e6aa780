"""A real server: `tritonclient` works as it is, broken HTTP does no harm, signals reload and end it without a loss."""

from __future__ import annotations

import http.client
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from antiadv.core.bounds import read_json
from antiadv.core.errors import BadInput
from antiadv.serving.keys import digest
from antiadv.serving.serve import listen
from tests.serving.live import PATIENCE, Live, serving
from tests.serving.nets import SHAPE, bare, binary_request, binary_scores, network, pictures

NET = ("--model", "tests.serving.nets:bare", "--defence", "anti_adversary:steps=1,step_size=0.1", "--shape", "3,8,8",
       "--name", "net")  # fmt: skip
X = pictures(3)
INFER = "/v2/models/net/infer"


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with serving(*NET, "--body-mb", "1") as server:
        yield server


def expected(x: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    scores: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = network()(torch.from_numpy(x)).detach().numpy()
    return scores


def check_alive(live: Live) -> None:
    host, _, port = live.host.partition(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=PATIENCE)) as connection:
        body, headers = binary_request(X)
        connection.request("POST", INFER, body, headers)
        answer = connection.getresponse()
        scores = binary_scores(answer.read(), answer.headers["Inference-Header-Content-Length"])
    assert np.allclose(scores, expected(X), atol=1e-5)


def test_tritonclient_works_as_it_is(live: Live) -> None:
    triton = pytest.importorskip("tritonclient.http")
    client = triton.InferenceServerClient(live.host, concurrency=4, network_timeout=PATIENCE)
    try:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("net")
        assert client.is_model_ready("net", "1")
        assert not client.is_model_ready("other")
        assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
        facts = client.get_model_metadata("net")
        assert facts["inputs"][0]["shape"] == [-1, *SHAPE]
        for binary in (True, False):
            images = triton.InferInput("images", list(X.shape), "FP32")
            images.set_data_from_numpy(X, binary_data=binary)
            plain = client.infer("net", [images], request_id="q7")
            assert plain.get_response()["id"] == "q7"
            assert np.allclose(plain.as_numpy("scores"), expected(X), atol=1e-5)
            assert plain.as_numpy("label").tolist() == expected(X).argmax(1).tolist()
            wanted = [triton.InferRequestedOutput("scores", binary_data=not binary)]
            other = client.infer("net", [images], outputs=wanted, model_version="1")
            assert np.allclose(other.as_numpy("scores"), expected(X), atol=1e-5)
            assert other.as_numpy("label") is None
        images.set_data_from_numpy(X, binary_data=True)
        pending = [client.async_infer("net", [images]) for _ in range(20)]
        for answer in pending:
            assert np.allclose(answer.get_result().as_numpy("scores"), expected(X), atol=1e-5)
        bad = triton.InferInput("images", list(X.shape), "FP32")
        bad.set_data_from_numpy(2 * X + 1)
        with pytest.raises(triton.InferenceServerException, match="row 0"):
            client.infer("net", [bad])
    finally:
        client.close()


RAW: dict[str, bytes] = {
    "too short": b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{}",
    "too long": b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}{}{}{}{}",
    "huge length": b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{}",
    "negative length": b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{}",
    "two lengths": b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "bad chunks": b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    "no http": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "half a line": b"POST /v2/mod",
    "gzip": b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("name", RAW)
def test_broken_http_gets_a_4xx_or_nothing_and_the_server_goes_on(live: Live, name: str) -> None:
    host, _, port = live.host.partition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as raw:
        raw.sendall(RAW[name])
        raw.shutdown(socket.SHUT_WR)
        answer = b""
        while part := raw.recv(65536):
            answer += part
            if b"\r\n\r\n" in answer and name != "too short":
                break
    status = int(answer.split()[1]) if answer else 400
    assert 400 <= status < 500
    assert status == {"huge length": 413}.get(name, 400)
    check_alive(live)


def test_a_body_beyond_the_limit_is_refused_while_it_comes(live: Live) -> None:
    host, _, port = live.host.partition(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=PATIENCE)) as connection:
        with suppress(ConnectionError):  # the server may close before all is sent
            parts, headers = iter([b"x" * 65536] * 1000), {"Transfer-Encoding": "chunked"}
            connection.request("POST", INFER, parts, headers, encode_chunked=True)
        with suppress(ConnectionError):
            assert connection.getresponse().status == 413
    check_alive(live)


LONG = {
    "one header": [b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nA: ", b"x" * 65536],
    "many headers": [b"GET /v2 HTTP/1.1\r\nHost: x\r\n", b"A: b\r\n" * 10_000],
    "path": [b"GET /", b"x" * 65536],
    "trailers": [b"POST /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n" * 10_000],
}


@pytest.mark.parametrize("name", LONG)
def test_headers_and_trailers_without_an_end_are_cut(live: Live, name: str) -> None:
    host, _, port = live.host.partition(":")
    begin, more = LONG[name]
    answer = b""
    with socket.create_connection((host, int(port)), PATIENCE) as raw:
        raw.sendall(begin)
        try:
            for _ in range(1000):
                raw.sendall(more)
        except ConnectionError:
            pass
        else:
            pytest.fail("65 MB were taken")
        with suppress(ConnectionError):
            answer = raw.recv(100)
    assert not answer or 400 <= int(answer.split()[1]) < 500
    check_alive(live)


def test_long_headers_that_end_and_many_small_chunks_are_taken(live: Live) -> None:
    host, _, port = live.host.partition(":")
    body, headers = binary_request(X)
    with closing(http.client.HTTPConnection(host, int(port), timeout=PATIENCE)) as connection:
        for _ in range(3):
            parts = iter([body[k : k + 1] for k in range(len(body))])
            more = headers | {"Transfer-Encoding": "chunked", "X-Long": "x" * 60_000}
            connection.request("POST", INFER, parts, more, encode_chunked=True)
            answer = connection.getresponse()
            assert answer.status == 200
            answer.read()


def test_sighup_reloads_and_sigterm_answers_every_accepted_request() -> None:
    slow = ("--model", "tests.serving.nets:Slow", "--defence", "none", "--shape", "3,8,8", "--name", "net")
    with serving(*slow, "--batch", "2", "--quiet") as server:
        net = bare()
        truth = [net(torch.from_numpy(pictures(1, seed))).detach().numpy() for seed in range(8)]
        statuses: list[int] = []
        failures: list[Exception] = []
        asked = threading.Semaphore(0)

        def client(seed: int) -> None:
            """Ask on one connection until the server says that it closes."""
            name, _, port = server.host.partition(":")
            connection = http.client.HTTPConnection(name, int(port), timeout=PATIENCE)
            body, headers = binary_request(pictures(1, seed))
            try:
                while True:
                    connection.request("POST", INFER, body, headers)
                    asked.release()
                    answer = connection.getresponse()
                    content = answer.read()
                    statuses.append(answer.status)
                    found = binary_scores(content, answer.headers["Inference-Header-Content-Length"])
                    assert np.allclose(found, truth[seed], atol=1e-5)
                    if answer.headers.get("Connection") == "close":
                        return
            except Exception as error:
                failures.append(error)
            finally:
                connection.close()

        clients = [threading.Thread(target=client, args=(seed,)) for seed in range(8)]
        for thread in clients:
            thread.start()
        for _ in range(16):
            assert asked.acquire(timeout=PATIENCE)
        server.process.send_signal(signal.SIGHUP)
        assert server.wait_for("reloaded")["event"] == "reloaded"
        for _ in range(8):
            assert asked.acquire(timeout=PATIENCE)
        code = server.end()
        for thread in clients:
            thread.join(PATIENCE)
    assert failures == []
    assert code == 0
    assert set(statuses) == {200}
    assert len(statuses) >= 24
    assert [line["event"] for line in server.lines][-3:] == ["closing", "ended", "gone"]


def test_a_port_in_use_is_one_sentence(live: Live) -> None:
    with pytest.raises(BadInput, match=live.host.partition(":")[2]):
        listen("127.0.0.1", int(live.host.partition(":")[2]))
    with pytest.raises(BadInput):
        listen("no such host", 0)


def test_sighup_reads_the_keys_again_and_a_wrong_file_changes_nothing(tmp_path: Path) -> None:
    file, ledger = tmp_path / "keys", tmp_path / "spent.json"
    file.write_text(f"ann {digest('a')} 4\nbob {digest('b')}")
    with serving(*NET, "--keys", str(file), "--ledger", str(ledger)) as server:

        def status(key: str) -> int:
            """Ask for three rows."""
            name, _, port = server.host.partition(":")
            with closing(http.client.HTTPConnection(name, int(port), timeout=PATIENCE)) as connection:
                body, headers = binary_request(X)
                connection.request("POST", INFER, body, headers | {"X-API-Key": key})
                return connection.getresponse().status

        assert [status("a"), status("b"), status("c")] == [200, 200, 401]
        file.write_text(f"ann {digest('a')} many")
        server.process.send_signal(signal.SIGHUP)
        assert "line 1" in server.wait_for("reload_failed")["error"]
        assert [status("a"), status("b")] == [429, 200]
        file.write_text(f"ann {digest('a')} 6\ncid {digest('c')}")
        server.process.send_signal(signal.SIGHUP)
        assert server.wait_for("reloaded")["event"] == "reloaded"
        assert [status("a"), status("b"), status("c")] == [200, 401, 200]
        assert [status("a"), server.end()] == [429, 0]
    assert read_json(ledger) == {"ann": 6, "bob": 6, "cid": 3}
