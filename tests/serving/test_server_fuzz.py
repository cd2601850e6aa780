"""Fuzzed requests: each gets 200 or 4xx with one sentence, none is fatal, and none is answered wrong."""

from __future__ import annotations

import asyncio
import copy
import json
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any
from urllib.request import urlopen

import httpx2 as httpx
import numpy as np
import pytest

from antiadv.serving.app import make_app
from antiadv.serving.limits import Limits
from antiadv.serving.protocol import HEADER_LENGTH
from antiadv.serving.request_handler import RequestHandler
from antiadv.serving.source import Loaded
from tests.serving.live import PATIENCE, serving
from tests.serving.nets import SHAPE, Stoppable, binary_request, binary_scores, json_request, pictures, sums

INFER = "/v2/models/net/infer"
PATHS = [
    INFER,
    "/v2/models/net/versions/1/infer",
    "/v2/models/x/infer",
    "/v2",
    "/metrics",
    "/admin/reload",
    "/v2/models/%00",
]
ODD: list[Any] = [None, True, False, 0, -1, 1.5, 2**63, 10**40, 1e308, "", "x" * 2000, "\ud83d\ude00", [], {}, [[]],
                  [None], {"a": {}}, "FP32", "images", [0.5] * 9, float("nan"), float("inf")]  # fmt: skip

Request = tuple[str, str, bytes, dict[str, str]]  # method, path, body, headers


def nodes(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every part of a JSON value; of a long list, of its first few."""
    found = [path]
    if isinstance(value, dict):
        for name in value:
            found += nodes(value[name], (*path, name))
    elif isinstance(value, list):
        for k in range(min(len(value), 4)):
            found += nodes(value[k], (*path, k))
    return found


def mutated(value: Any, rng: random.Random) -> Any:
    """The value with one part replaced, removed or doubled."""
    value = copy.deepcopy(value)
    path = rng.choice(nodes(value))
    if not path:
        return rng.choice(ODD)
    inner = value
    for step in path[:-1]:
        inner = inner[step]
    match rng.randrange(3):
        case 0:
            del inner[path[-1]]
        case 1 if isinstance(inner, list):
            inner.append(inner[path[-1]])
        case _:
            inner[path[-1]] = rng.choice(ODD)
    return value


def of_json(rng: random.Random) -> tuple[bytes, dict[str, str]]:
    value: Any = json_request(pictures(rng.randint(1, 2), rng.randrange(99)), id="x", outputs=[{"name": "scores"}])
    for _ in range(rng.randint(0, 2)):
        value = mutated(value, rng)
    return json.dumps(value).encode(), {}


def of_bytes(rng: random.Random) -> tuple[bytes, dict[str, str]]:
    """A binary request, with odd pixels, a changed head, or a wrong length."""
    images = pictures(rng.randint(1, 3), rng.randrange(99))
    if rng.random() < 0.3:
        images.flat[rng.randrange(images.size)] = rng.choice([np.nan, np.inf, -np.inf, -1.0, 3e38, 1e-45])
    body, headers = binary_request(images)
    length = int(headers[HEADER_LENGTH])
    if rng.random() < 0.4:
        head = json.dumps(mutated(json.loads(body[:length]), rng)).encode()
        body, headers = head + body[length:], {HEADER_LENGTH: str(len(head))}
    if rng.random() < 0.2:
        odd = [length - 1, length + 1, -length, 10**30, 0, "x", "", "1e2"]
        headers = {HEADER_LENGTH: str(rng.choice(odd))}
    return body, headers


def bomb(rng: random.Random) -> tuple[bytes, dict[str, str]]:
    """Nesting, long numbers, repeated keys, noise."""
    n = rng.choice([10, 1000, 50_000])
    head = b'{"inputs":[{"name":"images","datatype":"FP32","shape":[1,3,8,8],"data":'
    bodies = [b"[" * n, b'{"a":' * n, head + b"[" * n + b"]" * n + b"}]}", head + b"9" * n + b"}]}",
              head + b"[" + b"1e" + b"9" * n + b"]}]}", head + b"[" + b"[]," * n + b"0]}]}", b'{"id":"' + b"\\u0" * n,
              b'{"inputs":1,' * 3 + b'"inputs":[]}', rng.randbytes(n), b"", b"\x00" * n, b"\xef\xbb\xbf{}",
              b"[" * 33 + b'"\\' * n, b"[" * 33 + b'"' + b"a" * n, b"[" * 33 + b'""' * n,
              head + b"[" + b"0.1," * n]  # fmt: skip
    return rng.choice(bodies), {}


def broken(rng: random.Random) -> tuple[bytes, dict[str, str]]:
    """Another request, cut or with some bytes changed."""
    body, headers = rng.choice([of_json, of_bytes])(rng)
    if rng.random() < 0.5:
        return body[: rng.randrange(len(body) + 1)], headers
    raw = bytearray(body)
    for _ in range(rng.randint(1, 8)):
        if raw:
            raw[rng.randrange(len(raw))] = rng.randrange(256)
    return bytes(raw), headers


KINDS: list[Callable[[random.Random], tuple[bytes, dict[str, str]]]] = [of_json, of_bytes, bomb, broken]


def fuzzed(rng: random.Random) -> Request:
    body, headers = rng.choice(KINDS)(rng)
    if rng.random() < 0.1:
        odd = {"Content-Length": str(rng.choice([0, -1, 3, 10**12, 10**30, "x"])), "Content-Encoding": "gzip",
               "Authorization": "Bearer \xff", "Content-Type": "text/\x7f", "X-API-Key": "x" * 5000}  # fmt: skip
        name = rng.choice(list(odd))
        headers[name] = odd[name]
    method = rng.choice(["POST"] * 30 + ["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "BREW"])
    return method, rng.choice(PATHS) if rng.random() < 0.1 else INFER, body, headers


async def _parts(body: bytes, rng: random.Random) -> AsyncIterator[bytes]:
    cut = rng.randrange(len(body) + 1)
    yield body[:cut]
    yield body[cut:]


def check(answer: httpx.Response, body: bytes, headers: dict[str, str]) -> None:
    assert answer.status_code == 200 or 400 <= answer.status_code < 500, (answer.status_code, body[:500], headers)
    if answer.status_code != 200:
        if answer.request.method != "HEAD":
            assert answer.json()["error"].count("\n") == 0
        return
    if answer.request.method != "POST" or "inputs" not in str(body[:500]):
        return
    raw = np.frombuffer(body[int(headers[HEADER_LENGTH]) :], "<f4") if HEADER_LENGTH in headers else None
    data = json.loads(body)["inputs"][0]["data"] if raw is None else raw
    images = np.asarray(data, np.float32).reshape(-1, *SHAPE)
    if HEADER_LENGTH in answer.headers:
        assert np.allclose(binary_scores(answer.content, answer.headers[HEADER_LENGTH]), sums(images), rtol=1e-4)
        return
    for output in answer.json()["outputs"]:
        if output["name"] == "scores":
            assert np.allclose(np.reshape(output["data"], output["shape"]), sums(images), rtol=1e-4)


async def fuzz(handler: RequestHandler, requests: int) -> Counter[int]:
    rng = random.Random(20)
    seen: Counter[int] = Counter()
    transport = httpx.ASGITransport(make_app(handler))  # an error inside the application is raised here
    async with httpx.AsyncClient(transport=transport, base_url="http://here", timeout=60) as client:
        for _ in range(requests):
            method, path, body, headers = fuzzed(rng)
            raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
            content = _parts(body, rng) if rng.random() < 0.5 else body
            answer = await client.request(method, path, content=content, headers=raw)
            check(answer, body, headers)
            seen[answer.status_code] += 1
        sound, headers = binary_request(pictures(2))
        last = await client.post(INFER, content=sound, headers=headers)
        assert np.allclose(binary_scores(last.content, last.headers[HEADER_LENGTH]), sums(pictures(2)), rtol=1e-4)
    return seen


def run(requests: int) -> Counter[int]:
    handler = RequestHandler(Limits(body=2**18, wait=0))
    handler.serve(handler.start(Loaded([Stoppable()], "net")))
    try:
        seen = asyncio.run(fuzz(handler, requests))
        assert (handler.room.taken, handler.served.engine.queued) == (0, 0)
    finally:
        handler.close()
    return seen


def test_five_hundred_fuzzed_requests() -> None:
    seen = run(500)
    assert seen[200] > 50  # else nothing but the first check is tested
    assert seen[400] > 200


@pytest.mark.slow
def test_ten_thousand_fuzzed_requests() -> None:
    assert sum(run(10_000).values()) == 10_000


def over_the_wire(host: str, request: Request) -> int | None:
    """Send these bytes as they are, on a connection of their own. The status, or None if there is no answer."""
    method, path, body, headers = request
    stated = {"Host": "x", "Connection": "close", "Content-Length": str(len(body))} | headers
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in stated.items()), "", ""]
    name, _, port = host.partition(":")
    answer = b""
    with socket.create_connection((name, int(port)), PATIENCE) as raw, suppress(ConnectionError):
        raw.sendall("\r\n".join(lines).encode("latin-1") + body)
        if "Content-Length" in headers:  # it may announce more than comes
            with suppress(OSError):  # the server may have answered and closed already
                raw.shutdown(socket.SHUT_WR)
        while part := raw.recv(65536):
            answer += part
    return int(answer.split()[1]) if answer else None


def on_a_server(requests: int) -> Counter[int | None]:
    """Send fuzzed requests to a real server, which must be as sound after them as before."""
    rng = random.Random(21)
    words = ("--model", "tests.serving.nets:bare", "--defence", "none", "--shape", "3,8,8", "--name", "net")
    with serving(*words, "--body-mb", "1", "--quiet") as live:
        seen = Counter(over_the_wire(live.host, fuzzed(rng)) for _ in range(requests))
        sound, headers = binary_request(pictures(2))
        assert over_the_wire(live.host, ("POST", INFER, sound, headers)) == 200
        metrics = urlopen(f"{live.url}/metrics", timeout=PATIENCE).read().decode()
        assert live.end() == 0
    assert 'status="5' not in metrics
    said = {(line["event"], line.get("level", "")) for line in live.lines}  # `text` is a line that is no JSON
    assert said <= {(event, "") for event in ("listening", "closing", "ended", "gone")} | {("library", "warning")}
    return seen


@pytest.mark.slow
def test_ten_thousand_fuzzed_requests_over_the_wire() -> None:
    seen = on_a_server(10_000)
    assert all(status is None or status == 200 or 400 <= status < 500 for status in seen), seen
    assert seen[200] > 800
    assert seen[None] < 500  # connections that broke off, by what the request itself said
