"""The processes runner: jobs run in worker processes of this machine. This process is their driver.

    driver ── the work once, then one job at a time ──▶ worker
    driver ◀── queries so far; Result or Failure ────── worker

Each worker has one job at a time. If a worker dies it is replaced and its job is started again, `TRIES` times in all;
then the job is a Failure. A worker whose network raised is replaced too, since its CUDA may be broken.

Workers are forked from a server that has imported everything and done nothing else: a fork of the driver could not use
CUDA. They share the cores, take the GPUs in turn, ignore Ctrl-C, and end with their driver. Networks are loaded by
name in each worker; networks in hand are sent once to each.
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
from collections.abc import Iterable, Iterator
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any  # contexts differ by start method; messages hold any value

import torch

from antiadv.core.errors import BadInput
from antiadv.core.validation import at_least
from antiadv.evaluation.cell import Job
from antiadv.evaluation.runners.work import TRIES, Done, Failure, Runner, Work

PATIENCE = 5.0  # seconds that an idle worker may take to end


def in_processes(workers: int) -> Runner:
    """In this many processes of this machine. With GPUs, use one process for each."""
    at_least(1, workers=workers)
    return partial(_run_jobs, workers=workers)


def _run_jobs(work: Work, jobs: Iterable[Job], workers: int) -> Iterator[Done]:
    team = _Team(work, jobs, workers)
    try:
        while team.busy:
            team.hire()
            team.hand_out()
            for worker in team.wait():
                yield from team.receive(worker)
        for worker in team.workers:
            worker.dismiss()
    finally:
        for worker in team.workers:
            worker.end()


class _Team:
    """The driver's workers, and the jobs that are not done."""

    def __init__(self, work: Work, jobs: Iterable[Job], size: int) -> None:
        self._watch, self._work = work.watch, _pickled(work)
        self._todo, self._size = deque(jobs), size
        self._threads = max(1, torch.get_num_threads() // max(1, min(size, len(self._todo))))
        self._tries, self._failed_starts = Counter[Job](), 0
        self.workers: list[_Worker] = []

    @property
    def busy(self) -> bool:
        return bool(self._todo) or any(worker.job for worker in self.workers)

    def hire(self) -> None:
        """Start workers until there are enough for the jobs. A replacement gets the number, so the GPU, of the dead."""
        needed = min(self._size, len(self._todo) + sum(worker.job is not None for worker in self.workers))
        while len(self.workers) < needed:
            free = min(set(range(self._size)) - {worker.number for worker in self.workers})
            self.workers.append(_Worker(free, self._threads))

    def hand_out(self) -> None:
        for worker in self.workers:
            if worker.ready and worker.job is None and self._todo:
                worker.take(self._todo.popleft())

    def wait(self) -> list[_Worker]:
        """Wait for the first message or death. → the workers that have one."""
        ready = wait([worker.pipe for worker in self.workers])
        return [worker for worker in self.workers if worker.pipe in ready]

    def receive(self, worker: _Worker) -> Iterator[Done]:
        """Handle one message of a worker."""
        kind, value = worker.receive()
        if kind == "ready":
            worker.begin(self._work)
            self._failed_starts = 0
        elif kind == "queried" and self._watch is not None and worker.job is not None:
            self._watch(worker.job, value)
        elif kind == "done":
            worker.job = None
            if isinstance(value, Failure) and value.foreign:
                worker.end()
                self.workers.remove(worker)
            yield value
        elif kind == "lost":
            raise BadInput(f"a network in hand cannot be used in another process ({value}); {_INSTEAD}")
        elif kind == "died":
            self.workers.remove(worker)
            yield from self._replace(worker, value)

    def _replace(self, worker: _Worker, how: str) -> Iterator[Failure]:
        """Put the job of a dead worker back, or give it up after TRIES deaths."""
        self._failed_starts += not worker.ready
        if self._failed_starts == TRIES:
            raise BadInput(
                f"the workers of --runner processes died before they were ready ({how}). In a script, "
                "put the call under if __name__ == '__main__':, or use --runner local."
            )
        if worker.job is not None:
            self._tries[worker.job] += 1
            if self._tries[worker.job] < TRIES:
                self._todo.appendleft(worker.job)
            else:
                yield Failure(worker.job, died(how))


def died(how: str) -> str:
    """The reason of a job that is given up because its workers died."""
    return f"its worker died {TRIES} times ({how}). If memory ran out, give a smaller --batch or fewer workers."


_INSTEAD = "name a function that makes it, such as my.module:make, or use --runner local."


def _pickled(work: Work) -> bytes:
    device = work.resources.device
    work = work if device.index is None else dataclasses.replace(work, resources=work.resources.on(device.type))
    try:
        return pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise BadInput(f"a network in hand cannot be sent to another process ({error}); {_INSTEAD}") from error


class _Worker:
    """A worker process as the driver sees it: its pipe, whether it has the work, and its job."""

    def __init__(self, number: int, threads: int) -> None:
        context = _context()
        self.number, self.ready = number, False
        self.job: Job | None = None
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, number, threads), daemon=True)
        self._process.start()
        theirs.close()  # so that the pipe ends when the worker dies

    def begin(self, work: bytes) -> None:
        self.ready = True
        self._send(work)

    def take(self, job: Job) -> None:
        self.job = job
        self._send(pickle.dumps(job))

    def _send(self, content: bytes) -> None:
        with contextlib.suppress(OSError):  # it died: the next message of the pipe is its end
            self.pipe.send_bytes(content)

    def receive(self) -> tuple[str, Any]:
        """The next message: its kind and its value."""
        try:
            message: tuple[str, Any] = pickle.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            self._process.join(PATIENCE)  # it is ending: wait for its exit code
            return "died", self.end()
        return message

    def dismiss(self) -> None:
        """Let the worker end by itself, which it does when the pipe is closed."""
        self.pipe.close()
        self._process.join(PATIENCE)

    def end(self) -> str:
        """Kill the process if it still runs. → how it ended."""
        self.pipe.close()
        self._process.kill()
        self._process.join()
        code = self._process.exitcode or 0
        self._process.close()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _context() -> Any:
    """How processes are started. Without fork (Windows), each imports everything itself."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    _start_server()
    return context


def _start_server() -> None:
    """Start the fork server with Ctrl-C blocked: one that comes while it imports is for the driver only."""
    from multiprocessing import forkserver, resource_tracker  # imported here: Windows lacks them

    resource_tracker.ensure_running()  # first: it would remove the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# ---------------------------------------------------------------- in the worker


def _serve(pipe: Connection, number: int, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the driver handles it and ends its workers
    sys.stdout = sys.stderr  # output of a network must not be mixed into the driver's result
    threading.Thread(target=_leave_with_driver, daemon=True).start()
    torch.set_num_threads(threads)
    _take_gpu(number)

    def send(kind: str, value: object = None) -> None:
        pipe.send_bytes(pickle.dumps((kind, value)))

    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the driver closed the pipe
        send("ready")
        content = pipe.recv_bytes()
        try:
            work: Work = pickle.loads(content)
        except Exception as error:
            send("lost", f"{type(error).__name__}: {error}")
            return
        work = dataclasses.replace(work, watch=lambda _, queries: send("queried", queries))
        while True:
            job = pickle.loads(pipe.recv_bytes())
            send("done", work(job))


def _take_gpu(number: int) -> None:
    """Let this process see one GPU, by its number. Set before CUDA starts, which would otherwise use all of them."""
    if count := torch.cuda.device_count():
        seen = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
        os.environ["CUDA_VISIBLE_DEVICES"] = seen.split(",")[number % count]


def _leave_with_driver() -> None:
    """End this worker when its driver ends, for any reason."""
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os._exit(1)
