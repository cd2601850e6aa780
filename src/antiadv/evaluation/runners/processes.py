"""The jobs in processes of this machine: a driver, which is this process, and its workers.

    driver ── the work, once; then a job at a time ──▶ worker
    driver ◀── queries so far, at times; Result or Failure ── worker

Each worker has one job in hand, so what is in flight is bounded by their number. One that dies is replaced, and its
job begun again, `TRIES` times in all; then it is a Failure like any other. One whose network raised is replaced too:
its CUDA may be of no more use. Workers are forked from a server that has imported everything and done nothing (a fork
of the driver could not use CUDA), share the cores among them, take the GPUs in turn, hear no Ctrl-C, and end with their
driver. Networks are loaded by name where they are needed; those in hand are sent once to each worker.
"""

from __future__ import annotations

import contextlib
import dataclasses
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any  # of contexts, which differ by start method, and of what is heard

import torch

from antiadv.core.errors import BadInput
from antiadv.core.validation import at_least
from antiadv.evaluation.cell import Job
from antiadv.evaluation.runners.work import TRIES, Done, Failure, Runner, Work

PATIENCE = 5.0  # seconds that an idle worker may take to leave


def processes(workers: int) -> Runner:
    """In so many processes of this machine; where there are GPUs, give one for each."""
    at_least(1, workers=workers)
    return partial(_carry_out, workers=workers)


def _carry_out(work: Work, jobs: Iterable[Job], workers: int) -> Iterator[Done]:
    todo, said = deque(jobs), _pickled(work)
    threads = max(1, torch.get_num_threads() // max(1, min(workers, len(todo))))
    tries, stillborn = Counter[Job](), 0
    team: list[_Worker] = []
    try:
        while todo or any(worker.job for worker in team):
            while len(team) < min(workers, len(todo) + sum(worker.job is not None for worker in team)):
                team.append(_Worker(min(set(range(workers)) - {worker.number for worker in team}), threads))
            for worker in team:
                if worker.ready and worker.job is None and todo:
                    worker.take(todo.popleft())
            for worker in _speaking(team):
                word, value = worker.hear()
                if word == "ready":
                    worker.begin(said)
                    stillborn = 0
                elif word == "asked" and work.watch is not None and worker.job is not None:
                    work.watch(worker.job, value)
                elif word == "done":
                    worker.job = None
                    if isinstance(value, Failure) and value.foreign:
                        worker.bury()
                        team.remove(worker)
                    yield value
                elif word == "lost":
                    raise BadInput(f"a network in hand cannot be used in another process ({value}); {_INSTEAD}")
                elif word == "died":
                    team.remove(worker)
                    stillborn += not worker.ready
                    if stillborn == TRIES:
                        raise BadInput(
                            f"the workers of --runner processes died before they were ready ({value}). In a script, "
                            "put what it does under if __name__ == '__main__':, or use --runner local."
                        )
                    if worker.job is not None:
                        tries[worker.job] += 1
                        if tries[worker.job] < TRIES:
                            todo.appendleft(worker.job)
                        else:
                            yield Failure(worker.job, died(value))
        for worker in team:
            worker.dismiss()
    finally:
        for worker in team:
            worker.bury()


def died(how: str) -> str:
    """What is said of a job that no worker survives."""
    return f"its worker died {TRIES} times ({how}). If memory ran out, give a smaller --batch or fewer workers."


_INSTEAD = "name a function that makes it, such as my.module:make, or use --runner local."


def _pickled(work: Work) -> bytes:
    here = work.resources.device
    work = work if here.index is None else dataclasses.replace(work, resources=work.resources.on(here.type))
    try:
        return pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise BadInput(f"a network in hand cannot be sent to another process ({error}); {_INSTEAD}") from error


def _speaking(team: Sequence[_Worker]) -> list[_Worker]:
    """Those that have something to say, or have died; waits for the first."""
    heard = wait([worker.pipe for worker in team])
    return [worker for worker in team if worker.pipe in heard]


class _Worker:
    """A process as its driver sees it: the pipe to it, whether it has the work, and the job in its hand."""

    def __init__(self, number: int, threads: int) -> None:
        context = _context()
        self.number, self.ready = number, False
        self.job: Job | None = None
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, number, threads), daemon=True)
        self._process.start()
        theirs.close()  # so that its death is the end of the pipe

    def begin(self, said: bytes) -> None:
        self.ready = True
        self._send(said)

    def take(self, job: Job) -> None:
        self.job = job
        self._send(pickle.dumps(job))

    def _send(self, said: bytes) -> None:
        with contextlib.suppress(OSError):  # it died meanwhile, and the pipe will say so
            self.pipe.send_bytes(said)

    def hear(self) -> tuple[str, Any]:
        try:
            heard: tuple[str, Any] = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            self._process.join(PATIENCE)  # it is on its way out: let it say how
            return "died", self.bury()
        return heard

    def dismiss(self) -> None:
        """Let it leave by itself: the end of the pipe is the end of its work."""
        self.pipe.close()
        self._process.join(PATIENCE)

    def bury(self) -> str:
        """End it, if it lives still; → how it ended."""
        self.pipe.close()
        self._process.kill()
        self._process.join()
        code = self._process.exitcode or 0
        self._process.close()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _context() -> Any:
    """How processes are started; where there is no fork (Windows), each imports everything itself."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    _start_server()
    return context


def _start_server() -> None:
    """With Ctrl-C blocked, which it inherits: one that comes while it imports is the driver's alone."""
    from multiprocessing import forkserver, resource_tracker  # here, for not every system has them

    resource_tracker.ensure_running()  # first: it would take the block away
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# ---------------------------------------------------------------- in the worker


def _serve(pipe: Connection, number: int, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is sent to all; the driver hears it, and ends us
    sys.stdout = sys.stderr  # what a network prints must not end up in the driver's result
    threading.Thread(target=_leave_with_driver, daemon=True).start()
    torch.set_num_threads(threads)
    _take_gpu(number)

    def say(word: str, value: object = None) -> None:
        pipe.send_bytes(pickle.dumps((word, value)))

    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the driver wants no more
        say("ready")
        said = pipe.recv_bytes()
        try:
            work: Work = pickle.loads(said)
        except Exception as error:
            say("lost", f"{type(error).__name__}: {error}")
            return
        work = dataclasses.replace(work, watch=lambda _, queries: say("asked", queries))
        while True:
            job = pickle.loads(pipe.recv_bytes())
            say("done", work(job))


def _take_gpu(number: int) -> None:
    """Of several GPUs this process sees one, each in turn; said before CUDA wakes, or it would wake on all of them."""
    if count := torch.cuda.device_count():
        seen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
        os.environ["CUDA_VISIBLE_DEVICES"] = seen.split(",")[number % count]


def _leave_with_driver() -> None:
    """However the driver ended: a worker without one would work for nobody."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)
