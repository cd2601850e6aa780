"""`evaluate`: run the missing samples of some cells and store their records."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from antiadv import models
from antiadv.core.deprecated import renamed
from antiadv.core.errors import BadInput, StoreUnwritable
from antiadv.core.notebook import Show, bar
from antiadv.evaluation.cell import Cell, Job
from antiadv.evaluation.freshness import check_fresh
from antiadv.evaluation.journals import Journals
from antiadv.evaluation.plan import make_cell, plan
from antiadv.evaluation.progress import Count, Progress
from antiadv.evaluation.resources import Resources
from antiadv.evaluation.runners import parse_runner
from antiadv.evaluation.runners.work import Done, Failure, Runner, Work, unfinished
from antiadv.evaluation.store import Store

SHARD, SHARD_ON_GPU = 250, 1000

__all__ = ["evaluate", "make_cell"]  # make_cell for the example below


@renamed(world="resources")
def evaluate(
    cells: Cell | Iterable[Cell],
    store: Store | str | Path,
    *,
    shard: int | None = None,
    batch: int | None = None,
    runner: Runner | str = "local",
    resources: Resources | None = None,
    keep_images: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Run the missing samples of these cells and store them shard by shard. Stopped and called again, it continues.

    First each network answers a few fixed images. If its answers differ from those of the network that made the stored
    records, `StoreMismatch` is raised and nothing is run (`evaluation/freshness.py`). An endpoint is asked again after
    each shard, and a shard during which it changed is not stored.

    `shard` samples are stored together, and `batch` images pass through the network at once; by default as many as suit
    the device.

    `runner` is where the shards run: `"local"`, `"processes:4"`, `"ray"` or `"ray:ADDRESS"`. A shard that fails is left
    out. `Unfinished` is raised at the end and names it; all other shards are stored. `progress` is called after each
    change; a notebook shows a bar without it.

    >>> import tempfile
    >>> net = {"model": "compact:trades", "precision": "float32"}
    >>> cell = make_cell(**net, attack="pgd:steps=5", threat="linf:16/255", samples=range(4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     evaluate([cell], folder, shard=2)
    ...     [(r.sample, r.label, r.attacked, r.queries) for r in Store(folder).read(cell)]
    [(0, 3, 6, 5), (1, 8, 8, 6), (2, 8, 1, 6), (3, 0, 8, 4)]
    """
    run_jobs = parse_runner(runner) if isinstance(runner, str) else runner
    store = Store.of(store)
    resources = Resources() if resources is None else resources
    cells = [cells] if isinstance(cells, Cell) else list(cells)
    _check_runner(cells, run_jobs)
    jobs = plan(cells, store.done, default_shard(runner, resources) if shard is None else shard)
    if keep_images:
        _warn_of_missing_images(cells, store)
    _prepare(cells, jobs, store, resources)
    with bar() as show:
        tell = partial(_tell, show) if show is not None and progress is None else progress
        _run(run_jobs, jobs, store, Work(resources, batch, keep_images), tell)


def _tell(show: Show, p: Progress) -> None:
    show(str(p.overall), p.overall.done + p.overall.failed, p.overall.total)


def _run(
    run_jobs: Runner, jobs: list[Job], store: Store, work: Work, progress: Callable[[Progress], None] | None
) -> None:
    """Run the jobs and store each result. A job that fails is left out, and named at the end."""
    count, failures, journals = Count(jobs, progress), list[Failure](), Journals(store)
    work = replace(work, watch=None if progress is None else count.queried, journals=journals)
    with contextlib.closing(journals), contextlib.closing(_closable(run_jobs(work, jobs))) as results:
        for done in results:
            if isinstance(done, Failure):
                failures.append(done)
                count.failed(done)
            else:
                _check_unchanged(done.job.cell, store, work.resources, journals)
                store.append(done.job.cell, done.records, done.receipt, done.images if work.images else None)
                journals.settle()
                count.finished(done)
    if failures:
        raise unfinished(failures, len(jobs))


def default_shard(runner: Runner | str, resources: Resources) -> int:
    """Large enough for a GPU in this process; else small, so that there is work for several workers."""
    return SHARD_ON_GPU if runner == "local" and resources.device.type == "cuda" else SHARD


def _check_runner(cells: list[Cell], run_jobs: Runner) -> None:
    """Refuse to ask an endpoint from several processes: its rate and its journal belong to one."""
    if run_jobs is not map and any(models.is_remote(cell.model) for cell in cells):
        raise BadInput(
            "an endpoint is asked from one process; found another runner. Use --runner local, and more connections: "
            "http://HOST/PATH,connections=8."
        )


def _prepare(cells: list[Cell], jobs: list[Job], store: Store, resources: Resources) -> None:
    """Check the store and the networks before any work, so that no work is lost to a store that cannot be used."""
    to_run = dict.fromkeys(job.cell for job in jobs)
    for cell in to_run:
        store.prepare(cell)
    for cell, probe in check_fresh(cells, store, resources).items():
        with contextlib.nullcontext() if cell in to_run else contextlib.suppress(StoreUnwritable):
            store.keep_probe(cell, probe)


def _check_unchanged(cell: Cell, store: Store, resources: Resources, journals: Journals) -> None:
    """Ask an endpoint the probe images again: it may have been replaced while the shard ran. Then nothing is stored."""
    with journals.paused() as endpoint:
        if endpoint is not None:
            check_fresh([cell], store, resources)


def _warn_of_missing_images(cells: Iterable[Cell], store: Store) -> None:
    """Stored samples are not run again, so images that were not kept then are not made now."""
    missing = sum(len((store.done(cell) - store.pictured(cell)).intersection(cell.samples)) for cell in cells)
    if missing:
        warnings.warn(
            f"{missing} of the samples were stored in {store.root} without images, and are not attacked again. "
            "Name another folder with --store to get the images of all samples.",
            stacklevel=1,  # always this line, so that Python shows it once
        )


def _closable(results: Iterator[Done]) -> Generator[Done]:
    """The same results as a generator. Closing it ends the runner's workers."""
    yield from results
