"""What Prometheus reads at /metrics.

    metrics.ran(batch)            after each batch, from an engine thread
    metrics.answered(...)         after each request, from the event loop

Gated rows are those whose scores are exactly those of the bare network. They, and changed labels, are known only where
the backend returns the scores of the bare network; `antiadv_compared_rows_total` counts these rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from antiadv.core.errors import MissingExtra
from antiadv.serving.backend import Answer
from antiadv.serving.batcher import Ran

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
except ImportError as error:
    raise MissingExtra("prometheus-client", "serve") from error

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CLIENTS_NAMED = 100  # other clients share one label, so that a flood of clients cannot fill the memory
OTHERS = "others"


class Metrics:
    """See the head of this file. Each server has a registry of its own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter("antiadv_requests", "Requests by HTTP status.", ["status"], registry=registry)
        self.rows = Counter("antiadv_rows", "Rows answered.", registry=registry)
        self.batches = Counter("antiadv_batches", "Batches run.", registry=registry)
        self.failed = Counter("antiadv_failed_batches", "Batches that the backend failed on.", registry=registry)
        self.reloads = Counter("antiadv_reloads", "Reloads by result.", ["result"], registry=registry)
        self.queue = Gauge("antiadv_queue_rows", "Rows that wait.", registry=registry)
        self.bodies = Gauge("antiadv_body_bytes", "Bytes of request bodies in memory.", registry=registry)
        self.batch_rows = Histogram("antiadv_batch_rows", "Rows of a batch.", buckets=ROWS, registry=registry)
        self.waits = Histogram("antiadv_queue_seconds", "Time in the queue.", buckets=SECONDS, registry=registry)
        self.engine = Histogram("antiadv_engine_seconds", "Time of a batch.", buckets=SECONDS, registry=registry)
        self.total = Histogram("antiadv_request_seconds", "Time of a request.", buckets=SECONDS, registry=registry)
        self.compared = Counter("antiadv_compared_rows", "Rows with the scores of the bare network.", registry=registry)
        self.gated = Counter("antiadv_gated_rows", "Rows that the defence left alone.", registry=registry)
        self.changed = Counter("antiadv_changed_labels", "Rows whose label the defence changed.", registry=registry)
        self.queries = Counter("antiadv_queries", "Rows accepted, by client.", ["client"], registry=registry)
        self.near = Counter(
            "antiadv_near_duplicates", "Rows near an earlier query of the client.", ["client"], registry=registry
        )
        self._named: set[str] = set()

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def watch(self, queued: Callable[[], float], bodies: Callable[[], float]) -> None:
        """Read these when the metrics are read."""
        self.queue.set_function(queued)
        self.bodies.set_function(bodies)

    def ran(self, batch: Ran) -> None:
        self.batches.inc()
        self.batch_rows.observe(batch.rows)
        self.engine.observe(batch.seconds)
        for wait in batch.waits:
            self.waits.observe(wait)
        if batch.failed:
            self.failed.inc()

    def accepted(self, client: str, rows: int, near: int) -> None:
        label = self._label(client)
        self.queries.labels(label).inc(rows)
        self.near.labels(label).inc(near)

    def answered(self, answer: Answer) -> None:
        self.rows.inc(len(answer.scores))
        base = answer.base_scores
        if base is not None:
            self.compared.inc(len(base))
            self.gated.inc(int((answer.scores == base).all(1).sum()))
            self.changed.inc(int(np.count_nonzero(answer.scores.argmax(1) != base.argmax(1))))

    def finished(self, status: int, seconds: float) -> None:
        self.requests.labels(str(status)).inc()
        self.total.observe(seconds)

    def _label(self, client: str) -> str:
        if client not in self._named and len(self._named) >= CLIENTS_NAMED:
            return OTHERS
        self._named.add(client)
        return client
