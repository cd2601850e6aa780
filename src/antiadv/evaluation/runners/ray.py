"""The Ray runner: the same `Work`, done by actors, each on a GPU or core that Ray gave it.

    driver ── networks and images, once per node, through the object store
           ── one job at a time ──▶ actor ── Result or Failure ──▶ driver, the only writer

The driver loads networks and images and puts them into the object store before the first job. So workers need the
package and not the files; `run_shard` checks the digests. A worker that computes another key for a cell has another
version of an attack or defence, and refuses the job.

The driver wants one actor for each GPU of the cluster (each core, if there is no GPU or with `--device cpu`), looks for
new nodes every few seconds, and gives jobs only to actors that have started. If an actor dies, alone or with its node,
its job goes to another, `TRIES` times in all.

If the raylet of the driver's machine dies, Ray ends the driver without a message some seconds later. So the driver
connects to the raylet's port every second, and ends first with a message. What was stored is kept.
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

from antiadv.core.errors import BadInput, MissingExtra, Unfinished, reason
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

LOOK = 5.0  # seconds between two queries of the cluster's resources
PULSE = 1.0  # seconds between two checks of the raylet

T = TypeVar("T")


def on_ray(address: str | None, workers: int | None) -> Runner:
    """Check first that something listens at the address: Ray itself would try for minutes."""
    if workers is not None:
        at_least(1, workers=workers)
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon:
        try:
            socket.create_connection((host.strip("[]"), int(port)), LOOK).close()
        except (OSError, ValueError, OverflowError) as error:
            raise _no_cluster(address, error) from error
    return partial(_run_jobs, address=address, workers=workers)


def _run_jobs(work: Work, jobs: Iterable[Job], address: str | None, workers: int | None) -> Iterator[Done]:
    todo, tries = deque(jobs), Counter[Job]()
    if not todo:
        return
    with _connected(address):
        raylet = _RayletCheck()
        team = _Team(work, list(todo), workers)
        try:
            while todo or team.busy:
                raylet.check()
                team.grow(len(todo))
                while todo and team.idle:
                    team.give(todo.popleft())
                for job, done in team.results():
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
    """The actors: starting, idle and busy."""

    def __init__(self, work: Work, jobs: Sequence[Job], workers: int | None) -> None:
        device = work.resources.asked
        self._gpus = "GPU" in ray.cluster_resources() if device is None else torch.device(device).type == "cuda"
        self._size, self._keys = workers, {job.cell: job.cell.key for job in jobs}
        nets = {name: _put_network(work.resources, name) for name in dict.fromkeys(job.cell.model for job in jobs)}
        sets = {name: ray.put(_part(work.resources.data(name), ids)) for name, ids in _samples(jobs).items()}
        self._actor = ray.remote(num_cpus=1, num_gpus=int(self._gpus), max_restarts=0)(_Worker)
        self._arguments = (
            "cuda" if self._gpus else "cpu",
            nets,
            sets,
            work.batch,
            work.images,
            work.resources.compiled,
        )
        self._starting: dict[Any, Any] = {}  # by their answer to `ready`
        self.idle: list[Any] = []
        self.busy: dict[Any, tuple[Any, Job]] = {}
        self._failed_starts, self._places, self._looked = 0, 0, -LOOK

    def grow(self, todo: int) -> None:
        """Start actors, as many as there are jobs and places for."""
        if time.monotonic() - self._looked > LOOK:
            self._looked = time.monotonic()
            self._places = self._size or int(ray.cluster_resources().get("GPU" if self._gpus else "CPU", 0))
        while len(self._starting) + len(self.idle) + len(self.busy) < min(max(1, self._places), todo + len(self.busy)):
            actor = self._actor.remote(*self._arguments)
            self._starting[actor.ready.remote()] = actor

    def give(self, job: Job) -> None:
        actor = self.idle.pop()
        self.busy[actor.run.remote(job, self._keys[job.cell])] = (actor, job)

    def results(self) -> Iterator[tuple[Job, Done | str]]:
        """The results of finished jobs; the cause for a job whose actor died. Waits at most PULSE for the first."""
        over, _ = ray.wait([*self.busy, *self._starting], num_returns=1, timeout=PULSE)
        for answer in over:
            actor, job = self.busy.pop(answer) if answer in self.busy else (self._starting.pop(answer), None)
            try:
                done = ray.get(answer)
            except ray.exceptions.RayError as error:  # the actor died, or its node died with the answer
                if job is not None:
                    yield job, _cause(error)
                else:
                    self._count_failed_start(error)
                continue
            self._failed_starts = 0
            if isinstance(done, Failure) and done.foreign:
                ray.kill(actor)
            else:
                self.idle.append(actor)
            if job is not None:
                yield job, done

    def _count_failed_start(self, error: Exception) -> None:
        """Give up after several actors in a row that did not start."""
        self._failed_starts += 1
        if self._failed_starts == TRIES:
            raise BadInput(
                f"no worker can start on this Ray cluster ({_cause(error)}). Install the same antiadv on every node."
            )

    def dismiss(self) -> None:
        for actor in [*self._starting.values(), *self.idle, *(actor for actor, _ in self.busy.values())]:
            with contextlib.suppress(ray.exceptions.RayError):  # the cluster may be gone
                ray.kill(actor)


class _RayletCheck:
    """Checks that the raylet of this machine takes connections. Does nothing if it took none at the start."""

    def __init__(self) -> None:
        own = ray.get_runtime_context().get_node_id()
        ports = [(n["NodeManagerAddress"], n["NodeManagerPort"]) for n in ray.nodes() if n["NodeID"] == own]
        self._port = ports[0] if ports and self._answers(ports[0]) else None
        self._checked = time.monotonic()

    def check(self) -> None:
        if self._port is None or time.monotonic() - self._checked < PULSE:
            return
        self._checked = time.monotonic()
        if not self._answers(self._port):
            raise Unfinished(
                "Ray's raylet on this machine died during the run. What was finished is kept, and the same command, or "
                "call, continues from there; if memory ran out, ask for fewer workers."
            )

    def _answers(self, port: tuple[str, int]) -> bool:
        """A raylet that is too busy to answer in time counts as alive."""
        try:
            socket.create_connection(port, LOOK).close()
        except TimeoutError:
            return True
        except OSError:
            return False
        return True


class _Worker:
    """An actor: one `Work` whose resources are fetched from the object store of its node."""

    def __init__(
        self,
        device: str,
        nets: Mapping[str, Any],
        sets: Mapping[str, Any],
        batch: int | None,
        images: bool,
        compiled: bool | str,
    ) -> None:
        self._work = Work(Resources(device, Fetched(nets), Fetched(sets), compiled), batch, images)

    def ready(self) -> None:
        """Answered once this actor has started."""

    def run(self, job: Job, key: str) -> Done:
        if job.cell.key != key:
            reason = "a worker has another version of this attack or defence. Install the same antiadv on every node."
            return Failure(job, reason)
        return self._work(job)


class Fetched(Mapping[str, T]):
    """A mapping whose values are fetched from the object store when they are asked for."""

    def __init__(self, references: Mapping[str, Any]) -> None:
        self._references = references

    def __getitem__(self, name: str) -> T:
        value: T = ray.get(self._references[name])
        return value

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
            f"the network {name} cannot be sent to other machines ({reason(error)}). "
            "Leave what cannot be pickled out of it, or use --runner local."
        ) from error


def _samples(jobs: Iterable[Job]) -> dict[str, Ints]:
    """The samples that the jobs ask for, by data set, in order."""
    samples: dict[str, set[int]] = {}
    for job in jobs:
        samples.setdefault(job.cell.data, set()).update(job.ids)
    return {name: np.array(sorted(ids), dtype=np.int64) for name, ids in samples.items()}


def _part(dataset: Dataset, ids: Ints) -> Dataset:
    """The data set with the pixels of these samples only. All workers of a node share the array."""
    return replace(dataset, pixels=Rows(ids, dataset.pixels[ids]))


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of an array, indexed by their numbers in the full array."""

    ids: Ints
    pixels: Bytes

    def __getitem__(self, rows: Ints) -> Bytes:
        return self.pixels[np.searchsorted(self.ids, rows)]


# ---------------------------------------------------------------- the cluster


@contextlib.contextmanager
def _connected(address: str | None) -> Iterator[None]:
    """Use the cluster that this process is connected to, or connect to the one asked for until the work is done.

    The output of workers stays in Ray's logs, and usage statistics are off.
    """
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    handler = signal.getsignal(signal.SIGTERM)
    try:
        _start(address)
    except Exception as error:  # Ray raises a plain Exception if its node starts too slowly
        raise _no_cluster(address, error) from error
    if callable(handler):  # put it back: Ray's own handler would print a stack and exit
        with contextlib.suppress(ValueError):  # only the main thread may set handlers
            signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        ray.shutdown()


HERE = "local"  # a new cluster; without an address Ray would join one that happens to run, and end with it


def _start(address: str | None) -> None:
    """Connect to Ray, or start it here. It is started a second time if its node is not up within Ray's 30 seconds."""
    options = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    try:
        ray.init(address or HERE, **options)
    except Exception as error:
        if address is not None or "timed out during startup" not in str(error):
            raise
        ray.shutdown()
        ray.init(HERE, **options)


def _no_cluster(address: str | None, error: Exception) -> BadInput:
    return BadInput(
        f"no Ray cluster answers at {address or 'this machine'} ({reason(error)}). "
        "Start one with ray start --head, or use --runner ray to start one here."
    )


def _cause(error: Exception) -> str:
    """The cause in a message of Ray, which is long: the first sentence of its last line."""
    return (str(error).strip() or type(error).__name__).splitlines()[-1].partition(". ")[0].rstrip(".")
