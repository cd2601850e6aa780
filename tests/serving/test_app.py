"""The application over ASGI: paths, answers, keys, budgets, limits, metrics and reload."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx2 as httpx
import numpy as np
import pytest
import torch

from antiadv.core.errors import BadInput
from antiadv.serving import logs
from antiadv.serving.app import make_app
from antiadv.serving.backend import Backend
from antiadv.serving.keys import Keys, digest
from antiadv.serving.limits import Limits
from antiadv.serving.request_handler import RequestHandler
from antiadv.serving.source import Loaded
from tests.serving.nets import (
    CLASSES,
    SHAPE,
    Stoppable,
    backend,
    binary_request,
    binary_scores,
    json_request,
    network,
    pictures,
)

INFER = "/v2/models/net/infer"
X = pictures(3)
KEYS = f"ann {digest('ann-key')} 5\nadmin {digest('admin-key')}"


@asynccontextmanager
async def client_of(handler: RequestHandler) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(make_app(handler))
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        yield client


def with_client(handler: RequestHandler, act: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    async def run() -> None:
        async with client_of(handler) as client:
            await act(client)

    try:
        asyncio.run(run())
    finally:
        handler.close()


def handler_of(
    engine: Backend, limits: Limits | None = None, keys: str = "", log: logs.Log = logs.silent
) -> RequestHandler:
    handler = RequestHandler(limits, Keys.read(keys), log)
    handler.serve(handler.start(Loaded([engine], "net", "1", ["a", "b", "c", "d", "e"])))
    return handler


def metric(text: str, name: str) -> float:
    (value,) = re.findall(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(value)


def test_answers_are_those_of_the_network() -> None:
    expected = network()(torch.from_numpy(X)).detach().numpy()

    async def act(client: httpx.AsyncClient) -> None:
        answer = await client.post(INFER, json=json_request(X, id="q1"))
        found = answer.json()
        assert (answer.status_code, found["id"], found["model_name"]) == (200, "q1", "net")
        assert np.allclose(np.reshape(found["outputs"][0]["data"], (3, CLASSES)), expected, atol=1e-5)
        assert found["outputs"][1]["data"] == expected.argmax(1).tolist()
        body, headers = binary_request(X)
        raw = await client.post("/v2/models/net/versions/1/infer", content=body, headers=headers)
        assert np.allclose(
            binary_scores(raw.content, raw.headers["Inference-Header-Content-Length"]), expected, atol=1e-5
        )

    with_client(handler_of(backend()), act)


def test_metadata_and_health() -> None:
    handler = handler_of(backend())

    async def act(client: httpx.AsyncClient) -> None:
        assert (await client.get("/v2/health/live")).status_code == 200
        assert (await client.get("/v2/health/ready")).status_code == 200
        assert (await client.get("/v2")).json()["extensions"] == ["binary_tensor_data"]
        for path in ("/v2/models/net", "/v2/models/net/versions/1"):
            facts = (await client.get(path)).json()
            assert facts["inputs"] == [{"name": "images", "datatype": "FP32", "shape": [-1, *SHAPE]}]
            assert facts["outputs"][0]["shape"] == [-1, CLASSES]
            assert facts["class_names"] == ["a", "b", "c", "d", "e"]
            assert (await client.get(path + "/ready")).status_code == 200
        for path in ("/v2/models/other", "/v2/models/net/versions/2", "/v2/models/net/config", "/nothing"):
            answer = await client.get(path)
            assert answer.status_code == 404
            assert answer.json()["error"]
        assert (await client.get(INFER)).status_code == 405
        assert (await client.post("/v2/models/other/infer", json=json_request(X))).status_code == 404
        assert (await client.post("/admin/reload")).status_code == 404
        handler.closing = True
        assert (await client.get("/v2/health/ready")).status_code == 503
        assert (await client.get("/v2/health/live")).status_code == 200
        assert (await client.post(INFER, json=json_request(X))).headers["Connection"] == "close"

    with_client(handler, act)


def test_keys_and_budgets_before_the_engine() -> None:
    handler = handler_of(backend(), keys=KEYS)
    ann, admin = {"Authorization": "Bearer ann-key"}, {"X-API-Key": "admin-key"}

    async def act(client: httpx.AsyncClient) -> None:
        assert (await client.get("/v2/health/ready")).status_code == 200
        for path in ("/v2", "/v2/models/net", "/metrics"):
            assert (await client.get(path)).status_code == 401
        assert (await client.post(INFER, json=json_request(X))).status_code == 401
        assert (await client.get("/v2/models/net", headers=ann)).status_code == 200
        assert (await client.post(INFER, json=json_request(X), headers=ann)).status_code == 200
        bad = await client.post(INFER, json=json_request(2 * X), headers=ann)
        assert bad.status_code == 400  # and charged nothing
        assert (await client.post(INFER, json=json_request(X), headers=ann)).status_code == 429
        assert (await client.post(INFER, json=json_request(X[:2]), headers=ann)).status_code == 200
        assert (await client.post(INFER, json=json_request(X[:1]), headers=ann)).status_code == 429
        assert (await client.post(INFER, json=json_request(X), headers=admin)).status_code == 200
        assert (await client.get("/metrics", headers=ann)).status_code == 403
        text = (await client.get("/metrics", headers=admin)).text
        assert metric(text, 'antiadv_queries_total{client="ann"}') == 5
        assert metric(text, 'antiadv_near_duplicates_total{client="ann"}') == 2

    with_client(handler, act)
    assert handler.keys.spent == {"ann": 5, "admin": 3}


def test_metrics_count_rows_batches_gated_rows_and_changed_labels() -> None:
    engine = Stoppable()  # its two scores are equal, so every row counts as left alone by the defence

    async def act(client: httpx.AsyncClient) -> None:
        await asyncio.gather(*(client.post(INFER, json=json_request(X)) for _ in range(4)))
        assert (await client.post(INFER, json={})).status_code == 400
        text = (await client.get("/metrics")).text
        assert metric(text, "antiadv_rows_total") == 12
        assert metric(text, "antiadv_gated_rows_total") == metric(text, "antiadv_compared_rows_total") == 12
        assert metric(text, "antiadv_changed_labels_total") == 0
        assert metric(text, "antiadv_batch_rows_sum") == 12
        assert metric(text, "antiadv_batches_total") == metric(text, "antiadv_engine_seconds_count") <= 4
        assert metric(text, "antiadv_queue_seconds_count") == 4
        assert metric(text, "antiadv_request_seconds_count") == 5
        assert metric(text, 'antiadv_requests_total{status="400"}') == 1
        assert metric(text, "antiadv_queue_rows") == metric(text, "antiadv_body_bytes") == 0

    with_client(handler_of(engine), act)


def test_logs_are_one_json_object_per_line() -> None:
    stream = io.StringIO()

    async def act(client: httpx.AsyncClient) -> None:
        await client.post(INFER, json=json_request(X, id="two\nlines"))
        await client.post(INFER, content=b"{")

    with_client(handler_of(backend(), log=logs.to(stream)), act)
    good, bad = map(json.loads, stream.getvalue().splitlines())
    assert (good["event"], good["status"], good["rows"], good["id"]) == ("request", 200, 3, "two\nlines")
    assert bad["status"] == 400
    assert bad["error"]


def test_bodies_are_limited_before_they_are_read() -> None:
    handler = handler_of(backend(), Limits(body=1000, rows=4, bodies=2500))
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        for _ in range(1000):
            read += 1
            yield b"x" * 100

    async def act(client: httpx.AsyncClient) -> None:
        stated = await client.post(INFER, content=endless(), headers={"Content-Length": "100000"})
        assert (stated.status_code, read) == (413, 0)
        assert (await client.post(INFER, content=endless())).status_code == 413
        for length in ("-5", "many", "9" * 40):
            answer = await client.post(INFER, content=endless(), headers={"Content-Length": length})
            assert answer.status_code == 400

    with_client(handler, act)
    assert handler.room.taken == 0


def test_bodies_of_all_requests_together_are_limited() -> None:
    handler = handler_of(backend(), Limits(body=1000, bodies=1500))
    gate = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"x" * 900
        await gate.wait()

    async def act(client: httpx.AsyncClient) -> None:
        first = asyncio.create_task(client.post(INFER, content=slow()))
        while not handler.room.taken:
            await asyncio.sleep(0.001)
        second = await client.post(INFER, content=b"x" * 900)
        assert second.status_code == 503
        assert int(second.headers["Retry-After"]) > 0
        gate.set()
        assert (await first).status_code == 400

    with_client(handler, act)
    assert handler.room.taken == 0


def test_a_full_queue_answers_503_with_retry_after_and_recovers() -> None:
    engine = Stoppable()
    handler = handler_of(engine, Limits(batch=3, rows=3, queue=3, wait=0), keys=KEYS)
    ann = {"X-API-Key": "ann-key"}

    async def act(client: httpx.AsyncClient) -> None:
        engine.begun.clear()
        engine.go.clear()
        first = asyncio.create_task(client.post(INFER, json=json_request(X[:1]), headers=ann))
        assert await asyncio.to_thread(engine.begun.wait, 60)
        second = asyncio.create_task(client.post(INFER, json=json_request(X), headers=ann))
        while handler.served.engine.queued < 3:
            await asyncio.sleep(0.001)
        full = await client.post(INFER, json=json_request(X[:1]), headers=ann)
        assert full.status_code == 503
        assert int(full.headers["Retry-After"]) > 0
        assert handler.keys.spent["ann"] == 4  # what is refused is not charged
        engine.go.set()
        assert (await first).status_code == (await second).status_code == 200
        assert (await client.post(INFER, json=json_request(X[:1]), headers=ann)).status_code == 200

    with_client(handler, act)


def test_a_body_that_does_not_come_times_out() -> None:
    async def stuck() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async def act(client: httpx.AsyncClient) -> None:
        assert (await client.post(INFER, content=stuck())).status_code == 408

    with_client(handler_of(Stoppable(), Limits(read=0.01)), act)


def test_an_answer_that_does_not_come_times_out() -> None:
    engine = Stoppable()

    async def act(client: httpx.AsyncClient) -> None:
        engine.go.clear()
        assert (await client.post(INFER, json=json_request(X))).status_code == 504
        engine.go.set()

    with_client(handler_of(engine, Limits(answer=0.01)), act)


def test_a_failing_or_unsound_classifier_is_the_fault_of_the_server() -> None:
    engine = Stoppable()

    async def act(client: httpx.AsyncClient) -> None:
        engine.fails = True
        assert (await client.post(INFER, json=json_request(X))).status_code == 500
        engine.fails = False
        assert (await client.post(INFER, json=json_request(X))).status_code == 200

    with_client(handler_of(engine), act)


def test_reload_swaps_without_a_gap_and_keeps_the_old_one_if_it_fails() -> None:
    old, new = Stoppable(), backend(1)
    fresh: list[Loaded | Exception] = [RuntimeError("no such file"), Loaded([new], "net", "2")]

    def load() -> Loaded:
        match fresh.pop(0):
            case Loaded() as loaded:
                return loaded
            case error:
                raise error

    handler = RequestHandler(Limits(), Keys.read(KEYS), load=load)
    handler.serve(handler.start(Loaded([old], "net", "1")))
    admin = {"X-API-Key": "admin-key"}

    async def act(client: httpx.AsyncClient) -> None:
        assert (await client.post("/admin/reload", headers={"X-API-Key": "ann-key"})).status_code == 403
        assert (await client.post("/admin/reload", headers=admin)).status_code == 409
        assert (await client.get("/v2/models/net", headers=admin)).json()["versions"] == ["1"]
        old.begun.clear()
        old.go.clear()
        before = asyncio.create_task(client.post(INFER, json=json_request(X), headers=admin))
        assert await asyncio.to_thread(old.begun.wait, 60)
        reload = asyncio.create_task(client.post("/admin/reload", headers=admin))
        while handler.served.version == "1":
            await asyncio.sleep(0.001)
        after = (await client.post(INFER, json=json_request(X), headers=admin)).json()  # while the old one works
        assert after["model_version"] == "2"
        assert after["outputs"][0]["shape"] == [3, CLASSES]
        assert not before.done()
        old.go.set()
        assert (await before).json()["outputs"][0]["shape"] == [3, 2]
        assert (await reload).json() == {"model_name": "net", "model_version": "2"}

    with_client(handler, act)


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"wait": -1.0}, {"rows": 600}, {"answer": 0.0}, {"drain": 1e9}])
def test_impossible_limits_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        Limits(**wrong)  # type: ignore[arg-type]
