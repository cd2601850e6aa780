"""The batcher joins and cuts requests, keeps rows apart, refuses what is too much, and drops nothing at the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable

import numpy as np
import pytest

from antiadv.serving.backend import Answer
from antiadv.serving.batcher import Batcher, QueueFull, Ran
from tests.serving.nets import Stoppable, pictures, sums

BLINK = 0.01


async def begun(backend: Stoppable) -> None:
    """Wait until a batch is in the engine."""
    assert await asyncio.to_thread(backend.begun.wait, 60)


def test_requests_become_batches_of_at_most_the_limit_and_rows_stay_in_their_requests() -> None:
    backend, seen = Stoppable(), list[Ran]()
    batcher = Batcher([backend], batch=8, wait=0, queue=100, watch=seen.append)
    parts = [pictures(rows, seed) for seed, rows in enumerate((1, 3, 20, 4, 4, 5, 1))]

    async def run() -> list[Answer]:
        backend.go.clear()
        first = batcher.submit(parts[0])
        await begun(backend)  # the others wait together while it runs
        others = [batcher.submit(part) for part in parts[1:]]
        assert batcher.queued == sum(map(len, parts[1:]))
        backend.go.set()
        return list(await asyncio.gather(first, *others))

    batcher.start()
    answers = asyncio.run(run())
    batcher.close()
    for part, answer in zip(parts, answers, strict=True):
        assert np.allclose(answer.scores, sums(part))
        assert answer.base_scores is not None
        assert np.allclose(answer.base_scores, sums(part))
    assert sum(backend.sizes) == sum(map(len, parts))
    assert max(backend.sizes) <= 8
    assert backend.sizes[:3] == [1, 3, 8]  # 3 + 8 do not fit together: pieces are taken in order
    assert [ran.rows for ran in seen] == backend.sizes
    assert batcher.queued == 0


def test_a_backend_meets_a_few_sizes_all_of_them_before_the_first_request() -> None:
    backend, seen = Stoppable(), list[Ran]()
    batcher = Batcher([backend], batch=24, wait=0, watch=seen.append)
    batcher.warm()
    known = backend.sizes.copy()
    assert known == sorted(known, reverse=True)
    assert (known[0], known[-1], len(known)) == (24, 1, 14)
    backend.sizes.clear()

    async def run() -> None:
        for rows in range(1, 25):
            images = pictures(rows)
            answer = await batcher.submit(images)
            assert np.allclose(answer.scores, sums(images))  # and no rows of the images that fill up

    batcher.start()
    asyncio.run(run())
    batcher.close()
    assert set(backend.sizes) == set(known)
    assert [ran.rows for ran in seen] == list(range(1, 25))


def test_an_idle_engine_waits_for_more_rows_but_not_for_ever() -> None:
    backend = Stoppable()
    batcher = Batcher([backend], batch=4, wait=600.0)

    async def run() -> None:
        await asyncio.gather(*(batcher.submit(pictures(1, seed)) for seed in range(4)))  # full: it does not wait

    batcher.start()
    asyncio.run(asyncio.wait_for(run(), 300))
    batcher.close()
    assert backend.sizes == [4]
    quick = Batcher([backend], batch=4, wait=BLINK)

    async def alone() -> Answer:
        return await quick.submit(pictures(1))

    quick.start()
    assert len(asyncio.run(alone()).scores) == 1
    quick.close()


def test_a_full_queue_refuses_and_recovers() -> None:
    backend = Stoppable()
    batcher = Batcher([backend], batch=4, wait=0, queue=6)

    async def run() -> None:
        backend.go.clear()
        pending: list[Awaitable[Answer]] = [batcher.submit(pictures(1))]
        await begun(backend)
        pending.append(batcher.submit(pictures(6)))
        with pytest.raises(QueueFull):
            batcher.submit(pictures(1))
        backend.go.set()
        await asyncio.gather(*pending)
        assert len((await batcher.submit(pictures(6))).scores) == 6

    batcher.start()
    asyncio.run(run())
    batcher.close()


def test_cancelled_requests_are_dropped_before_they_run() -> None:
    backend = Stoppable()
    batcher = Batcher([backend], batch=4, wait=0)

    async def run() -> None:
        backend.go.clear()
        first = batcher.submit(pictures(1))
        await begun(backend)
        gone = [asyncio.ensure_future(batcher.submit(pictures(rows))) for rows in (2, 9)]
        await asyncio.sleep(0)
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        last = batcher.submit(pictures(3))
        backend.go.set()
        await asyncio.gather(first, last)

    batcher.start()
    asyncio.run(run())
    batcher.close()
    assert backend.sizes == [1, 3]


def test_a_failing_backend_fails_its_batch_and_the_engine_goes_on() -> None:
    backend, seen = Stoppable(), list[Ran]()
    batcher = Batcher([backend], watch=seen.append)

    async def run() -> None:
        backend.fails = True
        with pytest.raises(RuntimeError, match="out of order"):
            await batcher.submit(pictures(2))
        backend.fails = False
        assert len((await batcher.submit(pictures(2))).scores) == 2

    batcher.start()
    asyncio.run(run())
    batcher.close()
    assert [ran.failed for ran in seen] == [True, False]


def test_closing_answers_what_waits_and_refuses_what_comes() -> None:
    backend = Stoppable()
    batcher = Batcher([backend], batch=4, wait=0)

    async def run() -> None:
        backend.go.clear()
        pending = [batcher.submit(pictures(3, seed)) for seed in range(10)]
        await begun(backend)
        closing = threading.Thread(target=batcher.close)
        closing.start()
        while not batcher._closed:
            await asyncio.sleep(BLINK)
        with pytest.raises(QueueFull):
            batcher.submit(pictures(1))
        backend.go.set()
        answers = await asyncio.gather(*pending)
        assert all(np.allclose(a.scores, sums(pictures(3, seed))) for seed, a in enumerate(answers))
        await asyncio.to_thread(closing.join)

    batcher.start()
    asyncio.run(run())


def test_two_devices_share_the_queue() -> None:
    backends = [Stoppable(), Stoppable()]
    batcher = Batcher(backends, batch=1, wait=0)

    async def run() -> None:
        for backend in backends:
            backend.go.clear()
        pending = [batcher.submit(pictures(1, seed)) for seed in range(6)]
        for backend in backends:
            await begun(backend)  # both are at work at once
            backend.go.set()
        answers = await asyncio.gather(*pending)
        assert all(np.allclose(a.scores, sums(pictures(1, seed))) for seed, a in enumerate(answers))

    batcher.start()
    asyncio.run(run())
    batcher.close()
    assert sum(len(backend.sizes) for backend in backends) == 6
