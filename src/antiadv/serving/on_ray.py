"""The same application on a Ray cluster, with Ray Serve.

    proxy of Ray ──▶ front (one replica: the application of app.py) ──▶ engines (replicas: a Batcher each)

The front checks, counts and limits as in one process, so budgets, metrics and near duplicates hold for the whole
cluster. The engines load the classifier and batch rows. Their number is fixed or scales with the load.

Batches are made by the `Batcher` and not by `serve.batch`: it counts rows, cuts large requests, and runs the network in
a thread, so that a replica stays responsive. An engine accepts twice as many requests as a batch has rows: one batch
runs while the next one fills. Ray's default of 5 would keep every batch small.

If an engine dies, the front asks another one. A classifier has no state, so asking twice does no harm, and the accepted
request is answered.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any  # Ray's handles are untyped

from antiadv.core.errors import BadInput, MissingExtra, reason
from antiadv.core.signals import handling
from antiadv.serving import logs
from antiadv.serving.app import make_app
from antiadv.serving.backend import Answer, Images
from antiadv.serving.batcher import Batcher, QueueFull, Ran
from antiadv.serving.keys import Keys
from antiadv.serving.limits import Limits
from antiadv.serving.request_handler import RequestHandler, Served
from antiadv.serving.source import Source

try:
    import ray
    from ray import serve
    from ray.exceptions import RayActorError
    from ray.serve.exceptions import RayServeException
except ImportError as error:
    raise MissingExtra("ray[serve]", "ray") from error

ENGINE, FRONT = "antiadv-engine", "antiadv"
PAUSE = 0.1  # seconds before another engine is asked
KEPT = 1024  # batches whose numbers wait for an answer that takes them to the front
SLACK = 10.0  # seconds more than a request may take, until Ray ends a replica by force

Replicas = tuple[int, int]  # the fewest and the most


def parse_replicas(text: str) -> Replicas:
    """Both `2` and `1:8`; the second one scales with the load.

    >>> parse_replicas("2"), parse_replicas("1:8")
    ((2, 2), (1, 8))
    """
    first, colon, last = text.partition(":")
    try:
        least, most = int(first), int(last if colon else first)
    except ValueError:
        least, most = 0, 0
    if not 1 <= least <= most <= 10_000:
        raise BadInput(f"--replicas is a number such as 2, or FEWEST:MOST such as 1:8; found {text!r}.")
    return least, most


def serve_on_ray(
    source: Source,
    limits: Limits,
    keys: Keys,
    host: str,
    port: int,
    address: str | None,
    replicas: Replicas,
    log: logs.Log,
    quiet: bool = False,
) -> None:
    """Deploy on the cluster at this address, or on one of its own, and remove it after SIGTERM or Ctrl-C."""
    source = source.resolved()
    with (
        logs.libraries(log),
        _cluster(address, host, port),
        _stopping() as stop,
    ):  # in this order: ray.init sets a handler of SIGTERM too
        try:
            deploy(source, limits, keys, replicas, quiet)
        except RuntimeError as error:
            raise BadInput(f"Ray could not start the server: {_failure() or reason(error)}") from error
        log("listening", url=f"http://{host}:{port}", runner="ray")
        try:
            while not stop.wait(1.0):
                pass
            log("closing")
        finally:
            serve.delete(FRONT)  # it finishes its requests first
            serve.delete(ENGINE)
    log("ended")


def _failure() -> str:
    """Why a replica did not start: the last line of its traceback."""
    texts = [d.message for app in serve.status().applications.values() for d in app.deployments.values()]
    last = [text.strip().splitlines()[-1] for text in texts if "Traceback" in text]
    return last[0].removeprefix(f"{BadInput.__module__}.{BadInput.__name__}: ")[:500] if last else ""


def deploy(source: Source, limits: Limits, keys: Keys, replicas: Replicas, quiet: bool = False) -> None:
    """Start engines, ask one of them what it serves, and start the front."""
    least, most = replicas
    cuda = any(name.startswith("cuda") for name in source.devices)
    patience = limits.answer + SLACK
    scale: dict[str, Any] = {"num_replicas": least}
    if most > least:
        scale = {"autoscaling_config": {
            "min_replicas": least, "max_replicas": most, "target_ongoing_requests": limits.batch,
        }}  # fmt: skip
    engine = serve.deployment(
        Engine,
        name=ENGINE,
        max_ongoing_requests=2 * limits.batch,
        ray_actor_options={"num_cpus": source.threads or 1, "num_gpus": len(source.devices) if cuda else 0},
        graceful_shutdown_timeout_s=patience,
        **scale,
    )
    handle = serve.run(engine.bind(source, limits), name=ENGINE, route_prefix=None)
    facts = handle.facts.remote().result(timeout_s=patience)

    def application() -> Any:
        return make_front_app(limits, keys, facts, quiet)

    front = serve.deployment(
        serve.ingress(application)(),
        name=FRONT,
        max_ongoing_requests=2 * limits.queue,
        max_queued_requests=limits.queue,
        ray_actor_options={"num_cpus": 0},  # so that a cluster with one core can hold an engine too
        graceful_shutdown_timeout_s=patience,
    )
    serve.run(front.bind(), name=FRONT, route_prefix="/")


def make_front_app(limits: Limits, keys: Keys, facts: dict[str, Any], quiet: bool = False) -> Any:
    """The application in the replica of the front."""
    log = logs.to()
    handler = RequestHandler(limits, keys, logs.without_requests(log) if quiet else log)
    engine = Remote(serve.get_deployment_handle(ENGINE, ENGINE), limits.queue, handler.metrics.ran)
    handler.serve(Served(engine, **facts))
    return make_app(handler)


class Engine:
    """One replica: the classifier and its batcher."""

    def __init__(self, source: Source, limits: Limits) -> None:
        loaded = source.load(limits.batch)
        first = loaded.backends[0]
        self._facts = {
            "name": loaded.name, "version": loaded.version, "kind": first.kind, "shape": first.shape,
            "classes": first.classes, "class_names": loaded.class_names,
        }  # fmt: skip
        most = 2 * limits.batch * limits.rows  # all that Ray may send: the front has limited it
        self._ran: deque[Ran] = deque(maxlen=KEPT)
        self._batcher = Batcher(loaded.backends, limits.batch, limits.wait, most, self._ran.append)
        self._batcher.warm()
        self._batcher.start()

    async def __call__(self, images: Images) -> tuple[Answer, list[Ran]]:
        """The answer, and the batches that ran since the last one, for the metrics of the front."""
        answer = await self._batcher.submit(images)
        return answer, [self._ran.popleft() for _ in range(len(self._ran))]

    async def facts(self) -> dict[str, Any]:
        return self._facts

    async def process(self) -> int:
        """The id of the process of this replica."""
        return os.getpid()


class Remote:
    """The engines, as the front sees them."""

    def __init__(self, handle: Any, queue: int, watch: Callable[[Ran], None]) -> None:
        self._handle, self._most, self._watch, self.queued = handle, queue, watch, 0

    def submit(self, images: Images) -> Awaitable[Answer]:
        if self.queued + len(images) > self._most:
            raise QueueFull(f"{self.queued} rows are at work, and the limit is {self._most}; try again soon.")
        self.queued += len(images)
        return self._ask(images)

    async def _ask(self, images: Images) -> Answer:
        """Ask engines until one answers; the request handler ends it when the time of the request is up."""
        try:
            while True:
                try:
                    answer: Answer
                    answer, batches = await self._handle.remote(images)
                    for batch in batches:
                        self._watch(batch)
                    return answer
                except (RayActorError, RayServeException):  # the engine died, or all are busy or starting
                    await asyncio.sleep(PAUSE)
        finally:
            self.queued -= len(images)

    def close(self) -> None:
        """Ray ends the engines."""


@contextmanager
def _cluster(address: str | None, host: str, port: int) -> Iterator[None]:
    """A connection to a cluster with Serve on it; a cluster that was started here is ended too."""
    try:
        ray.init(
            address or "local",  # a new one: with None Ray would join a cluster that happens to run
            log_to_driver=False,
            logging_level="ERROR",
            include_dashboard=False if address is None else None,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise BadInput(f"no Ray cluster at {address}: {reason(error)}. Start one with ray start.") from error
    logging.getLogger("ray.serve").setLevel(logging.ERROR)  # its lines are no JSON
    try:
        serve.start(http_options={"host": host, "port": port})
        yield
        if address is None:
            serve.shutdown()
    finally:
        ray.shutdown()


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set."""
    stop = threading.Event()
    with handling(dict.fromkeys((signal.SIGTERM, signal.SIGINT), lambda *_: stop.set())):
        yield stop
