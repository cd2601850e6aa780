"""What happens to a valid request between HTTP and the engine: budget, queue, answer, counting. It knows no HTTP.

    handler = RequestHandler(limits, keys, log, load)
    handler.serve(handler.start(loaded))               serve this classifier
    await handler.infer(served, client, who, asked)    check the budget, queue, wait, count
    await handler.reload()                             load again and swap, without a gap

After a swap, new requests go to the new classifier. The old one answers the requests that it accepted; then its engine
ends.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from antiadv.core.errors import first_line
from antiadv.serving import logs
from antiadv.serving.backend import Answer, Images
from antiadv.serving.batcher import Batcher, QueueFull
from antiadv.serving.keys import Keys
from antiadv.serving.limits import Limits, Refused, Room
from antiadv.serving.metrics import Metrics
from antiadv.serving.near_duplicates import NearDuplicates
from antiadv.serving.protocol import Asked
from antiadv.serving.source import Loaded

ADMIN = "admin"  # the name of the key that may reload and read metrics


class Engine(Protocol):
    """What runs rows: a `Batcher` in this process, or a deployment of Ray."""

    @property
    def queued(self) -> int: ...

    def submit(self, images: Images) -> Awaitable[Answer]:
        """Queue rows at once, or raise QueueFull; the answer comes later."""

    def close(self) -> None:
        """Finish what was submitted; blocks."""


@dataclass(frozen=True)
class Served:
    """A classifier that is being served."""

    engine: Engine
    name: str
    version: str
    kind: str
    shape: tuple[int, ...]
    classes: int
    class_names: Sequence[str] | None = None
    near: NearDuplicates = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "near", NearDuplicates(self.shape))


class RequestHandler:
    """See the head of this file. `load` loads again what is served; None if that is not possible.

    `read` reads the keys again, for a reload.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        keys: Keys | None = None,
        log: logs.Log = logs.silent,
        load: Callable[[], Loaded] | None = None,
        read: Callable[[], Keys] | None = None,
    ) -> None:
        self.limits, self.keys = limits or Limits(), keys or Keys([])
        self.metrics, self.log, self.room = Metrics(), log, Room(self.limits)
        self.closing = False
        self._load, self._read, self._reloading = load, read, asyncio.Lock()
        self._served: Served | None = None
        self.metrics.watch(lambda: self._served.engine.queued if self._served else 0, lambda: self.room.taken)

    @property
    def ready(self) -> bool:
        return self._served is not None and not self.closing

    @property
    def served(self) -> Served:
        if self._served is None:
            raise Refused(503, "no classifier is loaded yet; try again soon.")
        return self._served

    def serve(self, served: Served) -> Served | None:
        """Serve this classifier from now on. Return the one before; the caller closes it."""
        before, self._served = self._served, served
        return before

    def start(self, loaded: Loaded) -> Served:
        """Start engine threads for a classifier, after a first pass of each backend."""
        first = loaded.backends[0]
        limits = self.limits
        engine = Batcher(loaded.backends, limits.batch, limits.wait, limits.queue, self.metrics.ran)
        engine.warm()
        engine.start()
        return Served(engine, loaded.name, loaded.version, first.kind, first.shape, first.classes, loaded.class_names)

    async def infer(self, served: Served, client: str | None, who: str, asked: Asked) -> Answer:
        """The answer to a valid request. `client` is the owner of a key, `who` the client in metrics."""
        rows = len(asked.images)
        self.keys.check(client, rows)
        try:
            pending = served.engine.submit(asked.images)
        except QueueFull as full:
            raise Refused(503, str(full)) from None
        self.keys.charge(client, rows)
        self.metrics.accepted(who, rows, served.near.seen(who, asked.images))
        try:
            async with asyncio.timeout(self.limits.answer):
                answer = await pending
        except TimeoutError:
            raise Refused(504, f"no answer within {math.ceil(self.limits.answer)} seconds; send fewer rows.") from None
        except QueueFull as full:
            raise Refused(503, str(full)) from None
        except Exception as error:
            self.log("engine_failed", error=first_line(error), rows=rows)
            raise Refused(500, "the classifier failed on this batch; the log of the server has the reason.") from None
        if not np.isfinite(answer.scores).all():
            self.log("unsound_scores", rows=rows)
            raise Refused(500, "the classifier answered NaN or infinity.")
        self.metrics.answered(answer)
        return answer

    async def reload(self) -> Served:
        """Load a second classifier and the keys, then swap both. If one of them is wrong, nothing changes."""
        load, read = self._load, self._read
        if load is None:
            raise Refused(404, "this server cannot reload.")
        if self._reloading.locked():
            raise Refused(409, "a reload is under way; wait for it.")
        async with self._reloading:
            try:
                keys = None if read is None else await asyncio.to_thread(read)
                fresh = await asyncio.to_thread(lambda: self.start(load()))
            except Exception as error:  # whatever is wrong with the new one, the old one goes on
                self.metrics.reloads.labels("failed").inc()
                self.log("reload_failed", error=first_line(error))
                raise Refused(409, "the new classifier or the keys cannot be loaded; the old ones stay.") from error
            if keys is not None:
                self.keys.renew(keys)
            before = self.serve(fresh)
            self.metrics.reloads.labels("done").inc()
            self.log("reloaded", model=fresh.name, version=fresh.version)
            if before is not None:
                await asyncio.to_thread(before.engine.close)  # after the rows that wait there
            return fresh

    def close(self) -> None:
        """Finish what was accepted and write the ledger."""
        self.closing = True
        if self._served is not None:
            self._served.engine.close()
        self.keys.save()
