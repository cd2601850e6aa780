"""What a worker does with a job, wherever it works, and what comes of it.

    work = Work(world, batch, images)         work(job)  →  Result, or a Failure that says why
    runner(work, jobs)                        →  what came of each, in any order: shaped like `map`

`work` never raises for a job: a network that fails on one sample costs the shard that holds it, and the night goes on.
It crosses process borders by pickling, as its world does; who watches stays where it is. Workers write nothing: what
they return is stored by the one process that asked.
"""

from __future__ import annotations

import dataclasses
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from antiadv.core.draws import Draws
from antiadv.core.engine import Eager
from antiadv.core.errors import AntiadvError, Unfinished
from antiadv.core.ledger import Ledger
from antiadv.defences import BARE
from antiadv.evaluation.cell import Job
from antiadv.evaluation.judge import predict_repeated
from antiadv.evaluation.resources import Resources
from antiadv.evaluation.shard import JUDGE, Result, run_shard

TRIES = 3  # how often a job is begun whose worker dies
REPEATS_FOR_OWN_SIZE = 0.1  # seconds between two words on a shard in hand
NAMED = 3  # reasons told at the end


@dataclass(frozen=True)
class Failure:
    """A job that could not be done: why, in a sentence, and where it was raised.

    A `foreign` error is none of ours. It may leave a process, or its CUDA, in any state: a worker then makes room for
    another. `error` is the exception itself, without its frames, which hold images; it stays in its process.
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
        defence = "" if cell.defence == BARE else f" behind {cell.defence}"
        what = f"{cell.attack} on {cell.model}{defence} in {cell.threat}"
        return f"{what}, {name_samples(self.job.ids)} of {cell.data}: {self.sentence}"


Done = Result | Failure
Watch = Callable[[Job, int], None]  # a job in hand, and the queries made for it so far


@dataclass(frozen=True)
class Work:
    """See the head of this file. `images` says whether the attacked images are wanted with the records."""

    resources: Resources
    batch: int = 256
    images: bool = False
    watch: Watch | None = None

    def __call__(self, job: Job) -> Done:
        try:
            with torch.inference_mode(False):  # whoever calls may be in it, and there are no gradients inside
                engine = self.resources.engine(job.cell.precision, self.batch)
                result = run_shard(job, self.resources, engine, self._seen(job))
        except (Exception, SystemExit) as error:  # a network that calls sys.exit has failed, and ends no night
            trace, foreign = "".join(traceback.format_exception(error)), not isinstance(error, AntiadvError)
            return Failure(job, self._sentence(job, error), trace, foreign, _without_frames(error))
        if self.images:
            return result
        return dataclasses.replace(result, images=result.images.new_empty(0))  # no view: it would travel as a whole

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "watch": None}

    def _seen(self, job: Job) -> Callable[[Ledger], None] | None:
        """Tells who watches, ten times a second at most: counting what was asked is not free."""
        if self.watch is None:
            return None
        tell, last = self.watch, time.monotonic()

        def seen(ledger: Ledger) -> None:
            nonlocal last
            if time.monotonic() - last > REPEATS_FOR_OWN_SIZE:
                last = time.monotonic()
                tell(job, int(ledger.queries.sum()))

        return seen

    def _sentence(self, job: Job, error: BaseException) -> str:
        """Our own errors speak for themselves; of others we say what they are, and on which samples alone they come."""
        if isinstance(error, AntiadvError):
            return f"{str(error).rstrip('.')}."  # some end without a stop, and another sentence follows
        said = (str(error).strip() or "no message").splitlines()[0].rstrip(".")
        bad = self._culprits(job)
        found = f"{type(error).__name__}: {said}"
        if 0 < len(bad) < len(job.ids):
            return f"{found}; shown alone, {name_samples(bad)} raised too. Mend the network, or leave that out."
        return f"{found}. Mend what raised it; --debug shows where that is."

    def _culprits(self, job: Job) -> list[int]:
        """The samples on which the model raises when each is shown to it alone, untouched."""
        try:
            model = self.resources.defended(job.cell.model, job.cell.defence)
            x, ids = self.resources.data(job.cell.data).images(job.ids), torch.tensor(job.ids)
        except Exception:  # then it is not the samples
            return []
        return [i for i, row in zip(job.ids, x.split(1), strict=True) if self._raises(model, row, ids[ids == i], job)]

    def _raises(self, model: torch.nn.Module, x: torch.Tensor, i: torch.Tensor, job: Job) -> bool:
        here = self.resources.device
        try:
            predict_repeated(
                model, x.to(here), Eager(1), Draws.of(job.cell.seed, i.to(here)).fold(JUDGE), job.cell.looks
            )
        except (Exception, SystemExit):
            return True
        return False


Runner = Callable[[Work, Iterable[Job]], Iterator[Done]]


def complaint(failures: Sequence[Failure], shards: int) -> Unfinished:
    """What is said at the end of a run that had these failures: each reason once, with the first shard it came with."""
    cells = len({failure.job.cell for failure in failures})
    where = f", of {cells} cells," if cells > 1 else ""
    kept = "; the others are stored" if len(failures) < shards else ""
    first = list({failure.sentence: failure for failure in reversed(failures)}.values())[::-1]
    more = f" And {len(first) - NAMED} other reasons." if len(first) > NAMED else ""
    error = Unfinished(
        f"{len(failures)} of {shards} shards{where} could not be done{kept}. {' '.join(map(str, first[:NAMED]))}{more} "
        "Then run the same command, or call, again: it does what is missing."
    )
    for failure in first[:NAMED]:
        error.add_note(failure.trace)
    error.__cause__ = next((failure.error for failure in first if failure.error is not None), None)
    return error


def _without_frames(error: BaseException) -> BaseException:
    """The same error and those that led to it, without what their frames hold."""
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
