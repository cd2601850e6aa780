"""The jobs on a Ray cluster: the same `Work`, done by actors, each on a GPU or core that Ray's scheduler gave it.

    driver ── networks and images, once per node, through the object store
           ── a job at a time ──▶ actor ── Result or Failure ──▶ driver, the only one that writes

Networks and the images asked for are loaded here and put into the object store before any job is handed out: workers
need the package, not the files, and `run_shard` holds what they got against the cell's digests. A key that a worker
computes otherwise than we did means another version of an attack or defence there, and is refused.

The driver wants an actor for each GPU of the cluster (for each core, where there is none or `--device cpu` is said),
looks again every few seconds whether nodes have come, and gives jobs only to actors that have said they are there. So
one job each is in flight; the job of an actor that dies, alone or with its node, is given to another, `TRIES` times.

Where the raylet on the driver's own machine dies, Ray ends the driver itself some seconds later, without a word. So the
driver knocks at the raylet's port every second, and ends first, in a sentence. What was stored is kept.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import pickle
import signal
import socket
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar  # Ray's actors and references are untyped

import numpy as np
import torch

from antiadv.core.errors import BadInput, MissingExtra, Unfinished
from antiadv.core.validation import at_least
from antiadv.data.dataset import Bytes, Dataset, Ints
from antiadv.evaluation.cell import Job
from antiadv.evaluation.resources import Resources
from antiadv.evaluation.runners.processes import died
from antiadv.evaluation.runners.work import TRIES, Done, Failure, Runner, Work

try:
    import ray
except ImportError as error:
    raise MissingExtra("ray", "ray") from error

LOOK = 5.0  # seconds between two looks at what the cluster has
PULSE = 1.0  # seconds between two knocks at the raylet of this machine

T = TypeVar("T")


def on_ray(address: str | None, workers: int | None) -> Runner:
    """Checked before any work: that something listens at the address, which Ray itself takes minutes to doubt."""
    if workers is not None:
        at_least(1, workers=workers)
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon:
        try:
            socket.create_connection((host.strip("[]"), int(port)), LOOK).close()
        except (OSError, ValueError, OverflowError) as error:
            raise _nobody(address, error) from error
    return partial(_carry_out, address=address, workers=workers)


def _carry_out(work: Work, jobs: Iterable[Job], address: str | None, workers: int | None) -> Iterator[Done]:
    todo, tries = deque(jobs), Counter[Job]()
    if not todo:
        return
    with _connected(address):
        alive = _Pulse()
        team = _Team(work, list(todo), workers)
        try:
            while todo or team.busy:
                alive.check()
                team.grow(len(todo))
                while todo and team.idle:
                    team.give(todo.popleft())
                for job, done in team.hear():
                    if not isinstance(done, str):
                        yield done
                        continue
                    tries[job] += 1
                    if tries[job] < TRIES:
                        todo.appendleft(job)
                    else:
                        yield Failure(job, died(done))
        finally:
            team.dismiss()


class _Team:
    """The actors: those asked for that have not answered yet, those with nothing to do, and those with a job."""

    def __init__(self, work: Work, jobs: Sequence[Job], workers: int | None) -> None:
        said = work.resources.asked
        self._gpus = "GPU" in ray.cluster_resources() if said is None else torch.device(said).type == "cuda"
        self._asked, self._keys = workers, {job.cell: job.cell.key for job in jobs}
        nets = {name: _put_network(work.resources, name) for name in dict.fromkeys(job.cell.model for job in jobs)}
        sets = {name: ray.put(_part(work.resources.data(name), ids)) for name, ids in _samples(jobs).items()}
        self._actor = ray.remote(num_cpus=1, num_gpus=int(self._gpus), max_restarts=0)(_Worker)
        self._said = ("cuda" if self._gpus else "cpu", nets, sets, work.batch, work.images, work.resources.compiled)
        self._coming: dict[Any, Any] = {}
        self.idle: list[Any] = []
        self.busy: dict[Any, tuple[Any, Job]] = {}
        self._stillborn, self._places, self._looked = 0, 0, -LOOK

    def grow(self, todo: int) -> None:
        """As many as there are places for, and work."""
        if time.monotonic() - self._looked > LOOK:
            self._looked = time.monotonic()
            self._places = self._asked or int(ray.cluster_resources().get("GPU" if self._gpus else "CPU", 0))
        while len(self._coming) + len(self.idle) + len(self.busy) < min(max(1, self._places), todo + len(self.busy)):
            actor = self._actor.remote(*self._said)
            self._coming[actor.ready.remote()] = actor

    def give(self, job: Job) -> None:
        actor = self.idle.pop()
        self.busy[actor.run.remote(job, self._keys[job.cell])] = (actor, job)

    def hear(self) -> Iterator[tuple[Job, Done | str]]:
        """What came of jobs that are over; or, where an actor died, how. Waits for the first, but not for ever."""
        over, _ = ray.wait([*self.busy, *self._coming], num_returns=1, timeout=PULSE)
        for answer in over:
            actor, job = self.busy.pop(answer) if answer in self.busy else (self._coming.pop(answer), None)
            try:
                done = ray.get(answer)
            except ray.exceptions.RayError as error:  # it died, or its node did and took the answer along
                if job is not None:
                    yield job, _cause(error)
                else:
                    self._mourn(error)
                continue
            self._stillborn = 0
            if isinstance(done, Failure) and done.foreign:
                ray.kill(actor)
            else:
                self.idle.append(actor)
            if job is not None:
                yield job, done

    def _mourn(self, error: Exception) -> None:
        """An actor that never came; several in a row will not come either."""
        self._stillborn += 1
        if self._stillborn == TRIES:
            raise BadInput(
                f"no worker can begin on this Ray cluster ({_cause(error)}). Install the same antiadv on every node."
            )

    def dismiss(self) -> None:
        for actor in [*self._coming.values(), *self.idle, *(actor for actor, _ in self.busy.values())]:
            with contextlib.suppress(ray.exceptions.RayError):  # a cluster that is gone has no actors
                ray.kill(actor)


class _Pulse:
    """Whether the raylet of this machine lives: it takes connections. Where it took none at first, nobody knows."""

    def __init__(self) -> None:
        own = ray.get_runtime_context().get_node_id()
        where = [(n["NodeManagerAddress"], n["NodeManagerPort"]) for n in ray.nodes() if n["NodeID"] == own]
        self._where = where[0] if where and self._answers(where[0]) else None
        self._asked = time.monotonic()

    def check(self) -> None:
        if self._where is None or time.monotonic() - self._asked < PULSE:
            return
        self._asked = time.monotonic()
        if not self._answers(self._where):
            raise Unfinished(
                "Ray's raylet on this machine died in the middle of the run. What was finished is kept, and the same "
                "command, or call, goes on from there; if memory ran out, ask for fewer workers."
            )

    def _answers(self, where: tuple[str, int]) -> bool:
        """One that is too busy to answer in time is not dead."""
        try:
            socket.create_connection(where, LOOK).close()
        except TimeoutError:
            return True
        except OSError:
            return False
        return True


class _Worker:
    """An actor: one `Work`, with a world that fetches what it needs from the object store of its node."""

    def __init__(
        self, device: str, nets: Mapping[str, Any], sets: Mapping[str, Any], batch: int, images: bool, compiled: bool
    ) -> None:
        self._work = Work(Resources(device, Fetched(nets), Fetched(sets), compiled), batch, images)

    def ready(self) -> None:
        """Answered once this actor has its place."""

    def run(self, job: Job, key: str) -> Done:
        if job.cell.key != key:
            sentence = "a worker has another version of this attack or defence. Install the same antiadv on every node."
            return Failure(job, sentence)
        return self._work(job)


class Fetched(Mapping[str, T]):
    """Things by name, each taken out of the object store when it is asked for."""

    def __init__(self, references: Mapping[str, Any]) -> None:
        self._references = references

    def __getitem__(self, name: str) -> T:
        found: T = ray.get(self._references[name])
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._references  # without fetching it

    def __iter__(self) -> Iterator[str]:
        return iter(self._references)

    def __len__(self) -> int:
        return len(self._references)


# ---------------------------------------------------------------- what is sent


def _put_network(resources: Resources, name: str) -> Any:
    net = resources.model(name)
    try:
        return ray.put(net if resources.device.type == "cpu" else copy.deepcopy(net).cpu())
    except (TypeError, pickle.PicklingError, AttributeError) as error:
        raise BadInput(
            f"the network {name} cannot be sent to other machines ({_first_line(error)}). "
            "Leave what cannot be pickled out of it, or use --runner local."
        ) from error


def _samples(jobs: Iterable[Job]) -> dict[str, Ints]:
    """The samples that any job asks for, by data set, in order."""
    found: dict[str, set[int]] = {}
    for job in jobs:
        found.setdefault(job.cell.data, set()).update(job.ids)
    return {name: np.array(sorted(ids), dtype=np.int64) for name, ids in found.items()}


def _part(dataset: Dataset, ids: Ints) -> Dataset:
    """The data set with the pixels of these samples only, as an array that all workers of a node share."""
    return replace(dataset, pixels=Rows(ids, dataset.pixels[ids]))


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of an array, asked for by their numbers in the whole."""

    ids: Ints
    pixels: Bytes

    def __getitem__(self, rows: Ints) -> Bytes:
        return self.pixels[np.searchsorted(self.ids, rows)]


# ---------------------------------------------------------------- the cluster


@contextlib.contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """In the cluster that this process is in already; else in the one asked for, until the work is done.

    What workers print stays in Ray's logs, and no usage is reported to Ray's makers.
    """
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    heard = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ImportError, RuntimeError, ValueError, TimeoutError) as error:
        raise _nobody(address, error) from error
    if callable(heard):  # whoever wanted to hear it still does; Ray took it, and would show a stack and leave
        with contextlib.suppress(ValueError):  # only the first thread may say so, as for Ray
            signal.signal(signal.SIGTERM, heard)
    try:
        yield
    finally:
        ray.shutdown()


def _nobody(address: str | None, error: Exception) -> BadInput:
    return BadInput(
        f"no Ray cluster answers at {address or 'this machine'} ({_first_line(error)}). "
        "Start one with ray start --head, or say --runner ray to start one here."
    )


def _cause(error: Exception) -> str:
    """Of what Ray says, which is long, the sentence that says why: it begins the last line."""
    return (str(error).strip() or type(error).__name__).splitlines()[-1].partition(". ")[0].rstrip(".")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or "no message").splitlines()[0].rstrip(".")
