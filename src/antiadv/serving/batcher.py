"""Dynamic batching: requests of any number of rows become batches of at most `batch` rows, run by engine threads.

    batcher = Batcher([backend], batch, wait, queue, watch)
    answer = await batcher.submit(images)      from the event loop        QueueFull if too many rows wait

    event loop ──▶ queue of pieces ──▶ one thread per backend ──▶ event loop

A request with more rows than a batch is cut into pieces. A thread takes the oldest pieces that fit together. When
it is idle, it waits up to `wait` seconds for more rows; rows that arrive while it computes need no extra wait. A piece
whose request was cancelled is dropped. `close` refuses new rows and finishes those that wait.

A batch is filled up with black images to one of a few sizes (`static_sizes`). On a CPU, PyTorch keeps small objects for
each size that it meets. They lie between the activations of a batch. With many sizes they cut the free memory into
pieces, no piece holds the next activation, and the process grows.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from antiadv.core.errors import BadInput, first_line
from antiadv.engine.cuda_graphs import static_size, static_sizes
from antiadv.serving.backend import Answer, Backend, Images


class QueueFull(Exception):
    """No more rows are taken now: too many wait, or the server is closing."""


@dataclass(frozen=True)
class Ran:
    """One batch that was run: for metrics. `waits` are the seconds that its pieces spent in the queue."""

    rows: int
    waits: list[float]
    seconds: float
    failed: bool  # the backend raised an error


@dataclass
class _Piece:
    images: Images
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Answer]
    since: float = field(default_factory=time.monotonic)


class Batcher:
    """See the head of this file. `watch` is called in an engine thread after each batch."""

    def __init__(
        self,
        backends: Sequence[Backend],
        batch: int = 32,
        wait: float = 0.002,
        queue: int = 512,
        watch: Callable[[Ran], None] | None = None,
    ) -> None:
        self.backends, self.batch, self._wait, self._most, self._watch = list(backends), batch, wait, queue, watch
        self._waiting: deque[_Piece] = deque()
        self._rows, self._closed = 0, False
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._engine, args=(b,), name=f"engine-{n}", daemon=True)
            for n, b in enumerate(self.backends)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def warm(self) -> None:
        """Run each backend on each size: what is made at the first call is made before requests.

        The largest comes first, so that the memory of the others has its place in that of the first.
        """
        for backend in self.backends:
            all_sizes = static_sizes(self.batch, 1)
            for rows in (self.batch, 1) if backend.kind == "graph" else all_sizes:  # capturing a graph takes seconds
                try:
                    backend.run(np.full((rows, *backend.shape), 0.5, np.float32))
                except Exception as error:  # whatever other code raises
                    raise BadInput(
                        f"the classifier fails on a batch of {rows}: {first_line(error)}. Lower --batch, or correct it."
                    ) from error

    @property
    def queued(self) -> int:
        """Rows that wait."""
        return self._rows

    def submit(self, images: Images) -> Awaitable[Answer]:
        """Queue these rows now. If the wait for the answer is cancelled, rows that were not run yet are dropped."""
        loop = asyncio.get_running_loop()
        parts = [images[k : k + self.batch] for k in range(0, len(images), self.batch)]
        pieces = [_Piece(part, loop, loop.create_future()) for part in parts]
        with self._changed:
            if self._closed:
                raise QueueFull("the server is closing; try another one.")
            if self._rows + len(images) > self._most:
                raise QueueFull(f"{self._rows} rows wait, and the queue holds {self._most}; try again soon.")
            self._waiting.extend(pieces)
            self._rows += len(images)
            self._changed.notify()
        return pieces[0].future if len(pieces) == 1 else _all(pieces)

    def close(self) -> None:
        """Take no more rows, run those that wait, and end the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _engine(self, backend: Backend) -> None:
        while pieces := self._take():
            start = time.monotonic()
            answer: Answer | Exception
            try:
                answer = backend.run(_stacked(pieces, self.batch))
            except Exception as error:
                answer = error
            end = time.monotonic()
            if self._watch is not None:  # before the answers go out, so that a client finds its own rows in the metrics
                waits = [start - piece.since for piece in pieces]
                failed = isinstance(answer, Exception)
                self._watch(Ran(sum(len(p.images) for p in pieces), waits, end - start, failed))
            _deliver(pieces, answer)

    def _take(self) -> list[_Piece]:
        """The oldest pieces that fit into a batch. Waits for the first, and a little for others; none at the end."""
        with self._changed:
            while True:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if not self._waiting:
                    return []
                deadline = self._waiting[0].since + self._wait
                while self._rows < self.batch and not self._closed and (left := deadline - time.monotonic()) > 0:
                    self._changed.wait(left)
                if pieces := self._fitting():
                    return pieces  # else another thread took them, or all were cancelled

    def _fitting(self) -> list[_Piece]:
        pieces: list[_Piece] = []
        room = self.batch
        while self._waiting and len(self._waiting[0].images) <= room:
            piece = self._waiting.popleft()
            self._rows -= len(piece.images)
            if not piece.future.cancelled():
                room -= len(piece.images)
                pieces.append(piece)
        return pieces


def _stacked(pieces: Sequence[_Piece], batch: int) -> Images:
    parts = [piece.images for piece in pieces]
    rows = sum(map(len, parts))
    black = np.zeros((static_size(rows, batch, 1) - rows, *parts[0].shape[1:]), np.float32)
    return np.concatenate([*parts, black])


def _deliver(pieces: Sequence[_Piece], answer: Answer | Exception) -> None:
    """Give each piece its rows, in its event loop; one call for each loop."""
    given: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Answer], Answer | Exception]]] = {}
    at = 0
    for piece in pieces:
        end = at + len(piece.images)
        rows = answer if isinstance(answer, Exception) else _rows(answer, at, end)
        given.setdefault(piece.loop, []).append((piece.future, rows))
        at = end
    for loop, results in given.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, results)


def _resolve(results: Sequence[tuple[asyncio.Future[Answer], Answer | Exception]]) -> None:
    for future, result in results:
        if future.done():
            continue  # the request was cancelled
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


async def _all(pieces: Sequence[_Piece]) -> Answer:
    return _joined(await asyncio.gather(*(piece.future for piece in pieces)))


def _rows(answer: Answer, start: int, stop: int) -> Answer:
    base = answer.base_scores
    return Answer(answer.scores[start:stop], None if base is None else base[start:stop])


def _joined(answers: Sequence[Answer]) -> Answer:
    bases = [a.base_scores for a in answers if a.base_scores is not None]
    joined = np.concatenate(bases) if len(bases) == len(answers) else None
    return Answer(np.concatenate([a.scores for a in answers]), joined)
