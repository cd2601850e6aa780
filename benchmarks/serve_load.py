"""The server under load: throughput compared with its engine, latency, overload, memory; beside a plain endpoint.

    python -m benchmarks.serve_load [--model compact:trades] [--defence anti_adversary | --bundle DIR] [--clients 64]
                                    [--seconds 15] [--minutes 0.1] [--threads 1] [--batch 0] [--out FILE]

    engine      the backend in a loop, without a server, at the batch size that is fastest
    closed      64 clients, one row each, each asks again as soon as it is answered: throughput of the server
    open        requests at 70 % of the engine's rate, at random times: latency
    overload    as many as the queue holds, twice: 503 for the rest, and the server recovers
    plain       the same clients against an endpoint without batching, which runs the network for each request
    memory      of the server during --minutes of the closed load

The clients are in a process of their own, on raw sockets with keep-alive and the binary protocol, so that they take
little of the processors. All of it is on this machine, at 127.0.0.1. Targets: at least 85 % of the engine's rows per
second, and a 99th percentile below three times the time of a batch. On a machine that other programs use too, rows per
second say little; `processor_ms_per_row` says what one row costs the engine, the event loop and the clients, and
`beside_a_busy_core` what the engine does while another program uses the rest of two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any  # what a JSON file holds

import numpy as np

from antiadv.engine.meter import revision, versions
from antiadv.serving.backend import Backend
from antiadv.serving.serve import keep_memory
from antiadv.serving.source import Source
from benchmarks.files import ROOT, put
from benchmarks.timing import OtherPrograms

SHARE, TIMES = 0.85, 3.0  # targets
LOAD = 0.7
PARTS = ("starlette", "uvicorn", "httptools")  # uvicorn uses httptools if it is there
BATCHES = (8, 16, 32, 64)
PATIENCE = 120.0

Facts = dict[str, Any]


# the engine alone


def engine_processor_time(backend: Backend, batch: int, seconds: float) -> float:
    """The processor seconds of one row."""
    images = np.random.default_rng(0).random((batch, *backend.shape), dtype=np.float32)
    backend.run(images)
    start, rows, end = time.process_time(), 0, time.perf_counter() + seconds
    while time.perf_counter() < end or rows < 3 * batch:
        backend.run(images)
        rows += batch
    return (time.process_time() - start) / rows


@contextmanager
def busy_core() -> Iterator[None]:
    """A process that computes all the time, so that the engine has one core and no more."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            yield
        finally:
            other.kill()


def engine_times(backend: Backend, seconds: float, batches: Sequence[int] = BATCHES) -> dict[int, float]:
    """The median seconds of a batch, for each size; the sizes take turns."""
    rng = np.random.default_rng(0)
    images = {n: rng.random((n, *backend.shape), dtype=np.float32) for n in batches}
    times: dict[int, list[float]] = {n: [] for n in batches}
    for n in batches:
        backend.run(images[n])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[batches[0]]) < 3:
        for n in batches:
            start = time.perf_counter()
            backend.run(images[n])
            times[n].append(time.perf_counter() - start)
    return {n: statistics.median(t) for n, t in times.items()}


# the clients: a process of their own


def request(host: str, path: str, shape: Sequence[int], seed: int) -> bytes:
    """A whole HTTP request for one row."""
    image = np.random.default_rng(seed).random((1, *shape), dtype=np.float32).tobytes()
    entry = {"name": "images", "datatype": "FP32", "shape": [1, *shape], "parameters": {"binary_data_size": len(image)}}
    outputs = [{"name": "scores", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": [entry], "outputs": outputs}).encode()
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Inference-Header-Content-Length: {len(head)}"]
    lines += [f"Content-Length: {len(head) + len(image)}", "", ""]
    return "\r\n".join(lines).encode() + head + image


class Client:
    """One connection."""

    def __init__(self, host: str, content: bytes) -> None:
        self._host, self._content = host, content
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self) -> int:
        """Send the request and read the answer; its status."""
        if self._streams is None:
            name, _, port = self._host.partition(":")
            self._streams = await asyncio.open_connection(name, int(port))
        reader, writer = self._streams
        writer.write(self._content)
        head = await reader.readuntil(b"\r\n\r\n")
        low = head.lower()
        at = low.index(b"\r\ncontent-length:") + 17
        await reader.readexactly(int(low[at : low.index(b"\r\n", at)]))
        if b"connection: close" in low:
            self.close()
        return int(head[9:12])

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Tally:
    """Statuses and latencies of answers, after a time to warm up."""

    def __init__(self, warm: float, seconds: float) -> None:
        self.start = time.perf_counter() + warm
        self.end = self.start + seconds
        self.statuses: Counter[int] = Counter()
        self.latencies: list[float] = []

    def add(self, status: int, since: float) -> None:
        now = time.perf_counter()
        if self.start <= now < self.end:
            self.statuses[status] += 1
            if status == 200:
                self.latencies.append(now - since)

    def facts(self) -> Facts:
        cuts = statistics.quantiles(self.latencies, n=100) if len(self.latencies) > 1 else [0.0] * 99
        return {
            "rows_per_second": round(self.statuses[200] / (self.end - self.start), 2),
            "statuses": {str(status): n for status, n in sorted(self.statuses.items())},
            "milliseconds": {name: round(1e3 * cuts[k], 1) for name, k in (("p50", 49), ("p90", 89), ("p99", 98))},
        }


async def closed(clients: list[Client], tally: Tally) -> None:
    async def loop(client: Client) -> None:
        while time.perf_counter() < tally.end:
            since = time.perf_counter()
            status = await client.ask()
            tally.add(status, since)
            if status == 503:
                await asyncio.sleep(0.05)

    await asyncio.gather(*map(loop, clients))


async def open_loop(clients: list[Client], tally: Tally, rate: float) -> None:
    """Requests at random times, at this mean rate, whether or not earlier ones are answered."""
    rng, idle, tasks = random.Random(0), list(clients), set[asyncio.Task[None]]()

    async def one(client: Client, since: float) -> None:
        tally.add(await client.ask(), since)
        idle.append(client)

    due = time.perf_counter()
    while due < tally.end:
        due += rng.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        client = idle.pop() if idle else Client(clients[0]._host, clients[0]._content)
        task = asyncio.create_task(one(client, due))  # late requests count from when they were due
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    clients[:] = idle


async def generate(order: Facts) -> Facts:
    """What the process of the clients does."""
    contents = [request(order["host"], order["path"], order["shape"], seed) for seed in range(order["clients"])]
    clients = [Client(order["host"], content) for content in contents]
    tally, start = Tally(order["warm"], order["seconds"]), time.process_time()
    if order.get("rate"):
        await open_loop(clients, tally, order["rate"])
    else:
        await closed(clients, tally)
    for client in clients:
        client.close()
    return {**tally.facts(), "client_seconds": round(time.process_time() - start, 2)}


def load(**order: object) -> Facts:
    """Run the clients in another process."""
    command = [sys.executable, "-m", "benchmarks.serve_load", "--generate", json.dumps(order)]
    limit = PATIENCE + float(str(order["seconds"])) + float(str(order["warm"]))
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(), timeout=limit)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: Facts = json.loads(done.stdout)
    return found


# the servers: a process each


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


@contextmanager
def process(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A server; yields its process and its host and port, which it logs."""
    with tempfile.NamedTemporaryFile("w+") as log:
        server = subprocess.Popen(command, stderr=log, cwd=ROOT, env=environment())
        try:
            end = time.monotonic() + PATIENCE
            url = None
            while url is None and time.monotonic() < end and server.poll() is None:
                time.sleep(0.1)
                lines = [line for line in Path(log.name).read_text().splitlines() if line.startswith("{")]
                url = next((json.loads(line)["url"] for line in lines if '"listening"' in line), None)
            if url is None:
                raise SystemExit(f"the server did not start: {Path(log.name).read_text()}")
            yield server, url.removeprefix("http://")
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                server.kill()


def memory(pid: int) -> float:
    """The resident memory of a process in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def processor_time(pid: int) -> tuple[float, float]:
    """The processor seconds so far of a process, and of its main thread, which runs the event loop."""

    def seconds(path: str) -> float:
        fields = Path(path).read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    return seconds(f"/proc/{pid}/stat"), seconds(f"/proc/{pid}/task/{pid}/stat")


def rows_answered(host: str) -> float:
    text = urllib.request.urlopen(f"http://{host}/metrics", timeout=PATIENCE).read().decode()
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith("antiadv_rows_total"))


def plain(order: Facts) -> None:
    """The plain endpoint: Starlette without a queue or batches; the network runs in a thread for each request."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from antiadv.serving.serve import listen

    backend = source(order).load(1).backends[0]
    lock = asyncio.Lock()  # a backend is called from one thread at a time

    async def infer(request: Request) -> Response:
        body = await request.body()
        length = int(request.headers["Inference-Header-Content-Length"])
        shape = json.loads(body[:length])["inputs"][0]["shape"]
        images = np.frombuffer(body[length:], "<f4").reshape(shape)
        async with lock:
            answer = await asyncio.to_thread(backend.run, images)
        return Response(answer.scores.tobytes())

    app = Starlette(routes=[Route("/infer", infer, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    listener = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.listen(2048)
    print(json.dumps({"event": "listening", "url": url}), file=sys.stderr, flush=True)
    asyncio.run(server.serve([listener]))


def source(a: Facts) -> Source:
    if a["bundle"]:
        return Source(Path(a["bundle"]), threads=a["threads"], name="net")
    return Source(None, a["model"], a["defence"], devices=("cpu",), threads=a["threads"], name="net")


def weights(a: Facts) -> str:
    """The digest of the network."""
    from antiadv import models
    from antiadv.serving.bundle import open_bundle

    return str(open_bundle(a["bundle"]).card["weights"]) if a["bundle"] else models.digest(models.load(a["model"]))


def serve_command(a: Facts, batch: int, *more: str) -> list[str]:
    chosen = [a["bundle"]] if a["bundle"] else ["--model", a["model"], "--defence", a["defence"], "--device", "cpu"]
    return [sys.executable, "-m", "antiadv", "serve", *chosen, "--name", "net", "--port", "0", "--quiet",
            "--threads", str(a["threads"]), "--batch", str(batch), *more]  # fmt: skip


# the measurement


def measure(a: Facts) -> Facts:
    keep_memory()  # as the server does
    with OtherPrograms() as others:
        backend = source(a).load(max(BATCHES)).backends[0]
        shape = list(backend.shape)
        first = engine_times(backend, a["seconds"] / 2)
        best = a["batch"] or max(first, key=lambda n: n / first[n])
        with busy_core():
            beside = engine_times(backend, a["seconds"] / 4, [best])[best]
    order = {"path": "/v2/models/net/infer", "shape": shape, "clients": a["clients"], "warm": 2.0}
    found: Facts = {}
    with process(serve_command(a, best)) as (server, host):
        before = (*processor_time(server.pid), rows_answered(host))
        found["closed"] = load(host=host, seconds=a["seconds"], **order)
        after = (*processor_time(server.pid), rows_answered(host))
        whole, loop, rows = (y - x for x, y in zip(before, after, strict=True))
        # the engine again, directly after: other programs share the machine, and the server is idle now
        second = engine_times(backend, a["seconds"] / 2, [best])
        alone = engine_processor_time(backend, best, a["seconds"] / 2)
        seconds = statistics.mean([first[best], second[best]])
        found["open"] = load(host=host, seconds=a["seconds"], rate=LOAD * best / seconds, **order)
    queue = a["clients"] // 2
    with process(serve_command(a, best, "--queue", str(queue), "--rows", "1")) as (_, host):
        found["overload"] = load(host=host, seconds=a["seconds"] / 2, **{**order, "clients": 4 * a["clients"]})
        found["recovered"] = load(host=host, seconds=3.0, **{**order, "clients": queue // 2})
    with process([sys.executable, "-m", "benchmarks.serve_load", "--plain", json.dumps(a)]) as (_, host):
        found["plain"] = load(host=host, seconds=a["seconds"], **{**order, "path": "/infer"})
    with process(serve_command(a, best)) as (server, host):  # last: the figure does not need a quiet machine
        found["memory"] = watched(server.pid, a["minutes"], order, host)
    row = {"engine alone": alone, "engine in the server": (whole - loop) / rows, "event loop": loop / rows,
           "clients": found["closed"]["client_seconds"] / rows}  # fmt: skip
    engine = {"batch": best, "seconds": seconds, "rows_per_second": round(best / seconds, 2),
              "beside_a_busy_core": round(best / beside, 2),
              "milliseconds": {str(n): round(1e3 * t, 2) for n, t in first.items()}}  # fmt: skip
    machine = {"cores": os.cpu_count(), "other_programs_before": others.share, "load_average": os.getloadavg()}
    used = versions() | {name: version(name) for name in PARTS if find_spec(name)}
    facts = {"command": shlex.join(["python", "-m", "benchmarks.serve_load", *sys.argv[1:]]), "weights": weights(a),
             "versions": used, "revision": revision(), "backend": backend.kind, "machine": machine}  # fmt: skip
    return {**facts, "engine": engine, "processor_ms_per_row": {name: round(1e3 * t, 3) for name, t in row.items()},
            **found, "verdict": verdict(engine, found)}  # fmt: skip


def watched(pid: int, minutes: float, order: Facts, host: str) -> Facts:
    """The memory of the server during the closed load, in tenths of the time."""
    sizes = [memory(pid)]
    for _ in range(10):
        load(host=host, seconds=max(0.5, 6 * minutes), **{**order, "warm": 0.0})
        sizes.append(memory(pid))
    return {"minutes": minutes, "mebibytes": [round(size, 1) for size in sizes]}


def verdict(engine: Facts, found: Facts) -> Facts:
    share = found["closed"]["rows_per_second"] / engine["rows_per_second"]
    times = found["open"]["milliseconds"]["p99"] / (1e3 * engine["seconds"])
    sizes = found["memory"]["mebibytes"]
    refused = found["overload"]["statuses"]
    return {
        "share_of_engine": round(share, 3),
        "share_of_engine_beside_a_busy_core": round(
            found["closed"]["rows_per_second"] / engine["beside_a_busy_core"], 3
        ),
        "throughput": share >= SHARE,
        "p99_in_batches": round(times, 2),
        "latency": times < TIMES,
        "memory": sizes[-1] <= 1.02 * sizes[5],  # after the first half, in which caches and arenas fill
        "overload": set(refused) <= {"200", "503"} and refused.get("503", 0) > 0,
        "recovers": set(found["recovered"]["statuses"]) == {"200"},
        "times_plain": round(found["closed"]["rows_per_second"] / max(1e-9, found["plain"]["rows_per_second"]), 2),
    }


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="compact:trades")
    p.add_argument("--defence", default="anti_adversary")
    p.add_argument("--bundle", default="")
    p.add_argument("--clients", type=int, default=64)
    p.add_argument("--seconds", type=float, default=15.0)
    p.add_argument("--minutes", type=float, default=0.1)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--batch", type=int, default=0, help="rows of a batch; 0: the fastest of the engine")
    p.add_argument("--generate", help=argparse.SUPPRESS)
    p.add_argument("--plain", help=argparse.SUPPRESS)
    p.add_argument("--out", type=Path)
    a = p.parse_args()
    if a.generate:
        print(json.dumps(asyncio.run(generate(json.loads(a.generate)))))
        return
    if a.plain:
        plain(json.loads(a.plain))
        return
    asked = {name: value for name, value in vars(a).items() if name not in ("generate", "plain", "out")}
    found = measure(asked)
    print(json.dumps(found, indent=1))
    if a.out:
        put(found, a.out)


if __name__ == "__main__":
    main()
