"""Work: what a worker of any runner does with a job.

    work = Work(resources, batch, images)     work(job)  →  Result, or a Failure with the reason
    runner(work, jobs)                        →  Results and Failures in any order

`work` never raises for a job: a network that fails on one sample loses one shard, and the run continues. Work is
pickled to other processes without its `watch` callback. Workers write nothing; the process that called the runner
stores what they return.
"""

from __future__ import annotations

import dataclasses
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from antiadv import attacks
from antiadv.core.draws import Draws
from antiadv.core.engine import Eager
from antiadv.core.errors import AntiadvError, Unfinished, first_line
from antiadv.core.ledger import Ledger
from antiadv.core.validation import in_float32
from antiadv.defences import BARE
from antiadv.engine.fast import Fast
from antiadv.evaluation.automatic import most_queries
from antiadv.evaluation.cell import Job
from antiadv.evaluation.journals import Journals
from antiadv.evaluation.judge import predict_repeated
from antiadv.evaluation.resources import Resources
from antiadv.evaluation.shard import JUDGE, Result, run_shard

TRIES = 3  # how often a job is started if its workers die
WATCH_INTERVAL = 0.1  # seconds between two reports on a running shard
NAMED = 3  # reasons in the final message


@dataclass(frozen=True)
class Failure:
    """A job that failed: the reason in a sentence, and the traceback.

    A `foreign` error is not an AntiadvError. It may leave a process, or its CUDA, in any state, so the worker is
    replaced. `error` is the exception without its frames, which hold images. It is not pickled.
    """

    job: Job
    sentence: str
    trace: str = ""
    foreign: bool = False
    error: BaseException | None = field(default=None, compare=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "error": None}

    def __str__(self) -> str:
        cell = self.job.cell
        defence = "" if cell.defence == BARE else f" with {cell.defence}"
        what = f"{cell.attack} on {cell.model}{defence} in {cell.threat}"
        return f"{what}, {name_samples(self.job.ids)} of {cell.data}: {self.sentence}"


Done = Result | Failure
Watch = Callable[[Job, int], None]  # called with a running job and its queries so far


@dataclass(frozen=True)
class Work:
    """Runs one job when called. With `images`, the attacked images are returned with the records."""

    resources: Resources
    batch: int | None = None
    images: bool = False
    watch: Watch | None = None
    journals: Journals | None = None

    def __call__(self, job: Job) -> Done:
        try:
            if self.journals is not None:
                self.journals.open(job.cell, self.resources)
            with torch.inference_mode(False):  # the caller may be in inference mode, which has no gradients
                result = run_shard(job, self.resources, self._engine(job), self._watcher(job))
        except (Exception, SystemExit) as error:  # a network that calls sys.exit failed, and must not end the run
            trace, foreign = "".join(traceback.format_exception(error)), not isinstance(error, AntiadvError)
            return Failure(job, self._sentence(job, error), trace, foreign, _without_frames(error))
        if self.images:
            return result
        return dataclasses.replace(result, images=result.images.new_empty(0))  # a view would be pickled in full

    def _engine(self, job: Job) -> Fast:
        """The engine of the cell. The length of a job is known from its text, never from a clock."""
        cell = job.cell
        model = self.resources.defended(cell.model, cell.defence)
        queries = len(cell.samples) * most_queries(attacks.parse(cell.attack), model, cell.threat)
        return self.resources.engine(cell.precision, self.batch, queries)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "watch": None, "journals": None}

    def _watcher(self, job: Job) -> Callable[[Ledger], None] | None:
        """Calls `watch` at most ten times a second, because adding up the queries takes time."""
        if self.watch is None:
            return None
        watch, last = self.watch, time.monotonic()

        def watcher(ledger: Ledger) -> None:
            nonlocal last
            if time.monotonic() - last > WATCH_INTERVAL:
                last = time.monotonic()
                watch(job, int(ledger.queries.sum()))

        return watcher

    def _sentence(self, job: Job, error: BaseException) -> str:
        """The message of an AntiadvError. For other errors also the samples that raise by themselves."""
        if isinstance(error, AntiadvError):
            return f"{str(error).rstrip('.')}."  # another sentence follows, so it needs its full stop
        bad = self._raising_samples(job)
        if 0 < len(bad) < len(job.ids):
            return (
                f"{first_line(error)}; sent alone, {name_samples(bad)} raised too. "
                "Fix the network, or leave these samples out."
            )
        other = "" if bad else in_float32(job.cell.precision)  # they raise in float32
        return f"{first_line(error)}. Fix the cause (--debug shows where it was raised){other}."

    def _raising_samples(self, job: Job) -> list[int]:
        """The samples whose clean image makes the model raise when it is sent alone."""
        try:
            model = self.resources.defended(job.cell.model, job.cell.defence)
            x, ids = self.resources.data(job.cell.data).images(job.ids), torch.tensor(job.ids)
        except Exception:  # then the samples are not the reason
            return []
        return [i for i, row in zip(job.ids, x.split(1), strict=True) if self._raises(model, row, ids[ids == i], job)]

    def _raises(self, model: torch.nn.Module, x: torch.Tensor, i: torch.Tensor, job: Job) -> bool:
        device = self.resources.device
        draws = Draws.of(job.cell.seed, i.to(device)).fold(JUDGE)
        try:
            predict_repeated(model, x.to(device), Eager(1), draws, job.cell.looks)
        except (Exception, SystemExit):
            return True
        return False


Runner = Callable[[Work, Iterable[Job]], Iterator[Done]]


def unfinished(failures: Sequence[Failure], shards: int) -> Unfinished:
    """The error at the end of a run with failures. It names each reason once, with the first shard that had it."""
    cells = len({failure.job.cell for failure in failures})
    where = f", of {cells} cells," if cells > 1 else ""
    kept = "; the others are stored" if len(failures) < shards else ""
    first = list({failure.sentence: failure for failure in reversed(failures)}.values())[::-1]
    more = f" And {len(first) - NAMED} other reasons." if len(first) > NAMED else ""
    error = Unfinished(
        f"{len(failures)} of {shards} shards{where} failed{kept}. {' '.join(map(str, first[:NAMED]))}{more} "
        "Then run the same command, or call, again: it runs what is missing."
    )
    for failure in first[:NAMED]:
        error.add_note(failure.trace)
    error.__cause__ = next((failure.error for failure in first if failure.error is not None), None)
    return error


def _without_frames(error: BaseException) -> BaseException:
    """The same error and its causes, without their frames, which would keep images in memory."""
    link: BaseException | None = error
    while link is not None and link.__traceback__ is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


def name_samples(ids: Sequence[int]) -> str:
    """
    >>> name_samples([7]), name_samples([0, 1, 2]), name_samples([3, 9, 12, 40, 41])
    ('sample 7', 'samples 0 … 2', 'samples 3, 9, 12 and 2 more')
    """
    if len(ids) == 1:
        return f"sample {ids[0]}"
    if ids[-1] - ids[0] + 1 == len(ids):
        return f"samples {ids[0]} … {ids[-1]}"
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    return f"samples {', '.join(map(str, ids[:3]))}{more}"
