"""Batch size, shard size, order, and stopping and resuming change nothing. On the toys the records are equal; on a real
network the predicted classes are equal except for borderline samples, which are counted."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import torch

import antiadv
from antiadv.core.errors import Unfinished
from antiadv.evaluation import Cell, Progress, Resources, Store, Tally, evaluate
from antiadv.evaluation.cell import Job, Record
from antiadv.evaluation.progress import Count
from antiadv.evaluation.runners.work import WATCH_INTERVAL, Done, Failure, Work
from antiadv.evaluation.shard import Result
from tests.engine.probes import MODEL, cell, resources
from tests.toys import Bands, small_net

SAMPLES = range(300)  # 26 of them are right, and about half of these fall
ATTACKS = ("pgd:steps=5", "square:steps=30", "transfer:attack=(pgd:steps=5)")
DEFENCES = ("none", "anti_adversary")
THREAT = "linf:4/255"


def asked(attack: str, defence: str, samples: range = SAMPLES) -> Cell:
    return cell(attack, samples, defence=defence, threat=THREAT)


def run(root: Path, cells: list[Cell], **words: object) -> list[list[Record]]:
    evaluate(cells, root, resources=resources(), **words)  # type: ignore[arg-type]
    return [Store(root).read(c) for c in cells]


Unbroken = dict[tuple[str, str], list[Record]]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    """Every cell in one shard and one batch."""
    cells = {(a, d): asked(a, d) for a in ATTACKS for d in DEFENCES}
    found = run(tmp_path_factory.mktemp("unbroken"), list(cells.values()), shard=1000, batch=1000)
    return dict(zip(cells, found, strict=True))


def test_the_toy_is_worth_comparing_on(unbroken: Unbroken) -> None:
    """Otherwise equal records would mean nothing."""
    for (attack, _), records in unbroken.items():
        assert [r.sample for r in records] == list(SAMPLES)
        right = [r for r in records if r.clean == r.label]
        fell = [r for r in right if r.attacked != r.label]
        assert len(right) > 20
        assert 5 < len(fell) < len(right) - 5
        if not attack.startswith("transfer"):
            assert len({r.queries for r in right}) > 3
    bare, defended = unbroken["pgd:steps=5", "none"], unbroken["pgd:steps=5", "anti_adversary"]
    assert [r.clean_confidence for r in bare] != [r.clean_confidence for r in defended]


@pytest.mark.parametrize("defence", DEFENCES)
@pytest.mark.parametrize("attack", ATTACKS)
class TestExactly:
    @pytest.mark.parametrize(("shard", "batch"), [(300, 7), (37, 256), (100, 1), (11, 3)])
    def test_batch_and_shard(
        self, tmp_path: Path, unbroken: Unbroken, attack: str, defence: str, shard: int, batch: int
    ) -> None:
        assert run(tmp_path, [asked(attack, defence)], shard=shard, batch=batch) == [unbroken[attack, defence]]

    def test_order(self, tmp_path: Path, unbroken: Unbroken, attack: str, defence: str) -> None:
        backwards = asked(attack, defence, SAMPLES[::-1])
        (found,) = run(tmp_path, [backwards], shard=64)
        assert found == unbroken[attack, defence][::-1]
        assert Store(tmp_path).read(asked(attack, defence)) == unbroken[attack, defence]

    def test_every_third_first(self, tmp_path: Path, unbroken: Unbroken, attack: str, defence: str) -> None:
        for samples in (SAMPLES[::3], SAMPLES[100:140], SAMPLES):
            run(tmp_path, [asked(attack, defence, samples)], shard=50)
        assert Store(tmp_path).read(asked(attack, defence)) == unbroken[attack, defence]

    def test_stop_and_resume(self, tmp_path: Path, unbroken: Unbroken, attack: str, defence: str) -> None:
        with pytest.raises(Stopped):
            run(tmp_path, [asked(attack, defence)], shard=60, runner=dies_on(3))
        assert Store(tmp_path).done(asked(attack, defence)) == set(range(120))
        assert run(tmp_path, [asked(attack, defence)], shard=45) == [unbroken[attack, defence]]


def test_threads(tmp_path: Path, unbroken: Unbroken) -> None:
    torch.set_num_threads(2)
    try:
        assert run(tmp_path, [asked("pgd:steps=5", "none")], shard=150) == [unbroken["pgd:steps=5", "none"]]
    finally:
        torch.set_num_threads(1)


class Stopped(Exception):
    pass


def dies_on(count: int) -> Callable[[Callable[[Job], Result], Iterable[Job]], Iterator[Result]]:
    """A runner that raises during its count-th job."""

    def runner(run: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        for number, job in enumerate(jobs, 1):
            found = run(job)
            if number == count:
                raise Stopped
            yield found

    return runner


def backwards(run: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
    """A runner that yields its results in reverse order."""
    return iter([run(job) for job in jobs][::-1])


# ---------------------------------------------------------------- runners and resumption


@pytest.mark.parametrize("defence", ["none", "anti_adversary:steps=1,step_size=0.1+0.1+0.1"])
def test_where_gradients_are_off(tmp_path: Path, defence: str) -> None:
    """A cell may be made and run in inference mode."""

    def records(root: Path) -> list[Record]:
        here = Resources("cpu")
        words = {"model": "compact:trades", "threat": THREAT, "resources": here, "defence": defence}
        made = cell("pgd:steps=2", range(3), **words)
        evaluate([made], root, resources=here)
        return Store(root).read(made)

    with torch.inference_mode():
        inside = records(tmp_path / "inside")
    assert inside == records(tmp_path / "outside")


def test_results_may_come_in_any_order(tmp_path: Path, unbroken: Unbroken) -> None:
    cells = [asked("pgd:steps=5", d) for d in DEFENCES]
    found = run(tmp_path, cells, shard=70, runner=backwards)
    assert found == [unbroken["pgd:steps=5", d] for d in DEFENCES]


def test_a_runner_that_dies_loses_only_what_was_not_done(tmp_path: Path) -> None:
    first, second = asked("pgd:steps=5", "none", range(20)), asked("square:steps=30", "none", range(20))
    with pytest.raises(Stopped):
        run(tmp_path, [first, second], shard=10, runner=dies_on(4))
    store = Store(tmp_path)
    assert store.done(first) == set(range(20))
    assert store.done(second) == set(range(10))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json.?z")}
    again: list[Job] = []
    run(tmp_path, [first, second], shard=10, runner=spy(again))
    assert [(job.cell.attack, job.ids) for job in again] == [("square:steps=30", tuple(range(10, 20)))]
    assert all(path.read_bytes() == content for path, content in before.items()), "stored files are never changed"


def spy(seen: list[Job]) -> Callable[[Callable[[Job], Done], Iterable[Job]], Iterator[Done]]:
    def runner(run: Callable[[Job], Done], jobs: Iterable[Job]) -> Iterator[Done]:
        for job in jobs:
            seen.append(job)
            yield run(job)

    return runner


def test_stored_samples_are_not_run_again(tmp_path: Path) -> None:
    asked_for = [asked("pgd:steps=5", "none", range(20))]
    run(tmp_path, asked_for, shard=10)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    seen: list[Job] = []
    run(tmp_path, asked_for, shard=7, runner=spy(seen))
    assert seen == []
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_more_samples_are_a_resume(tmp_path: Path, unbroken: Unbroken) -> None:
    run(tmp_path, [asked("pgd:steps=5", "none", range(50))], shard=50)
    seen: list[Job] = []
    (found,) = run(tmp_path, [asked("pgd:steps=5", "none")], shard=125, runner=spy(seen))
    assert [job.ids for job in seen] == [tuple(range(50, 175)), tuple(range(175, 300))]
    assert found == unbroken["pgd:steps=5", "none"]


def test_a_cell_that_fails_does_not_affect_the_others(tmp_path: Path) -> None:
    """The first cell's network is not the one it was planned with."""
    good = asked("pgd:steps=5", "none", range(10))
    strange = cell("pgd:steps=5", range(10), resources=Resources("cpu", models={MODEL: small_net()}))
    with pytest.raises(Unfinished, match=r"1 of 2 shards.*weights"):
        run(tmp_path, [strange, good])
    assert len(Store(tmp_path).read(good)) == 10
    assert Store(tmp_path).cells() == [good]


def test_progress_agrees_with_the_records(tmp_path: Path) -> None:
    told: list[Progress] = []
    cells = [asked("pgd:steps=5", "none"), asked("square:steps=30", "none")]
    found = run(tmp_path, cells, shard=100, progress=told.append)
    assert [p.overall.done for p in told] == sorted(p.overall.done for p in told)
    last = {p.cell: p for p in told}
    for c, records in zip(cells, found, strict=True):
        fooled = sum(r.clean == r.label != r.attacked for r in records)
        standing = sum(r.clean == r.label == r.attacked for r in records)
        assert last[c].here == Tally(300, 300, fooled, standing, 0, sum(r.queries for r in records))
        assert fooled > 0 < standing
    overall, parts = told[-1].overall, [last[c].here for c in cells]
    assert overall == Tally(*map(sum, zip(*map(dataclasses.astuple, parts), strict=True)))
    assert overall.over
    assert told[-1].seconds > 0


def test_progress_counts_no_success_outside_the_ball(tmp_path: Path) -> None:
    def far(run: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        for found in map(run, jobs):
            moved = [dataclasses.replace(r, distance=1.0) for r in found.records]
            yield dataclasses.replace(found, records=moved)

    told: list[Progress] = []
    run(tmp_path, [asked("pgd:steps=5", "none")], runner=far, progress=told.append)
    overall = told[-1].overall
    assert (overall.done, overall.fooled, overall.standing) == (300, 0, 26)


def test_progress_shows_queries_before_the_first_shard_is_done(tmp_path: Path) -> None:
    told: list[Progress] = []
    run(tmp_path, [asked("square:steps=4000", "none")], shard=300, progress=told.append)
    early = [p.overall for p in told if p.overall.done == 0]
    assert early, "the run takes well over a tenth of a second"
    assert early[-1].queries > early[0].queries
    assert early[-1].queries <= told[-1].overall.queries


def test_progress_adds_up_the_queries_of_running_shards() -> None:
    """Workers report in turns, each time all queries of their shard so far."""
    cells = [asked(attack, "none", range(20)) for attack in ("pgd:steps=5", "square:steps=30")]
    first, second, other = jobs = [Job(cells[0], (0, 1)), Job(cells[0], (2, 3)), Job(cells[1], (0, 1))]
    told: list[Progress] = []
    count = Count(jobs, told.append)
    for job, queries in ((first, 10), (other, 500), (second, 3), (first, 12)):
        count.queried(job, queries)
    assert [(p.cell.attack, p.here.queries, p.overall.queries) for p in told] == [
        ("pgd:steps=5", 10, 10),
        ("square:steps=30", 500, 510),
        ("pgd:steps=5", 13, 513),
        ("pgd:steps=5", 15, 515),
    ]
    count.failed(Failure(other, "why"))
    assert (told[-1].here.queries, told[-1].overall.queries) == (0, 15), "queries of a failed shard are not counted"
    assert (told[-1].here.failed, told[-1].here.over, told[-1].overall.over) == (2, True, False)


def test_progress_counts_the_seconds_of_the_run() -> None:
    job, told = Job(asked("pgd:steps=5", "none"), (0, 1)), list[Progress]()
    start = time.monotonic()
    count = Count([job], told.append)
    for queries in range(3):
        time.sleep(0.01)
        count.queried(job, queries)
    assert 0.03 <= told[-1].seconds <= time.monotonic() - start
    assert told[0].seconds < told[1].seconds < told[2].seconds


def test_watch_is_called_at_most_ten_times_a_second() -> None:
    """On a GPU each call waits for all requests before it."""
    told: list[int] = []
    work = Work(resources(), watch=lambda job, queries: told.append(queries))
    start = time.monotonic()
    work(Job(asked("square:steps=1000", "none"), tuple(range(40))))
    assert len(told) <= (time.monotonic() - start) / WATCH_INTERVAL
    assert WATCH_INTERVAL >= 0.1


class Listening(Bands):
    """Records its batch sizes and whether autocast was on."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = list[tuple[int, bool]]()
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.asked.append((len(x), torch.is_autocast_enabled("cpu")))
        return super().forward(x)


@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_batch_and_precision_are_those_asked_for(tmp_path: Path, precision: str) -> None:
    net = Listening()
    here = Resources("cpu", models={MODEL: net})
    made = cell("square:steps=3", range(40), threat=THREAT, precision=precision, resources=here)
    evaluate([made], tmp_path, batch=7, shard=20, resources=here)
    assert max(size for size, _ in net.asked) == 7
    assert {short for _, short in net.asked} == {False, precision == "mixed"}, "the judge uses float32"


# ---------------------------------------------------------------- a real network


BORDERLINE = 0.02  # share of samples that may change class with the batch size, which selects the kernels


def network() -> torch.nn.Module:
    """An untrained convolutional network. All classes occur, and many images are near the boundary."""
    net = small_net()
    head = net.get_submodule("7")
    assert isinstance(head, torch.nn.Linear)
    with torch.no_grad():
        head.bias.sub_(net(IMAGES).mean(0))
    return net


IMAGES = antiadv.data.load("cifar10:test").images(range(250))


@pytest.mark.slow
@pytest.mark.parametrize("defence", [None, 0.01])
@pytest.mark.parametrize("attack", ["pgd:steps=5", "square:steps=10", "transfer:attack=(pgd:steps=5)"])
def test_a_network_gives_the_same_classes_except_for_borderline_samples(attack: str, defence: float | None) -> None:
    net, x = network(), IMAGES
    y = net(x).argmax(1)  # its own labels, so that every sample is attacked
    model = net if defence is None else antiadv.AntiAdversary(net, step_size=defence)
    ids, order = torch.arange(250), torch.randperm(250, generator=torch.Generator().manual_seed(0))

    def classes(batch: int, rows: torch.Tensor) -> dict[int, tuple[int, ...]]:
        outcome = antiadv.attack(model, x[rows], y[rows], attack, antiadv.Linf(2 / 255), ids=ids[rows], batch=batch)
        return {r.sample: (r.clean, r.attacked, r.base_clean, r.base_attacked) for r in outcome.records}

    whole = classes(250, ids)
    fell = sum(a != b for a, b, _, _ in whole.values())
    assert 25 < fell < 225, "otherwise the comparison means nothing"
    for cut in (classes(7, ids), classes(64, order)):
        borderline = sum(whole[i] != cut[i] for i in whole)
        assert borderline <= BORDERLINE * len(whole)


@pytest.mark.parametrize("defence", DEFENCES)
def test_shards_of_a_network_give_the_same_classes_except_for_borderline_samples(tmp_path: Path, defence: str) -> None:
    here = Resources("cpu", models={"toys:net": network()})
    asked_for = cell("pgd:steps=5", range(250), model="toys:net", defence=defence, threat="linf:2/255", resources=here)
    found = []
    for name, shard, batch in (("one", 250, 256), ("many", 23, 5)):
        evaluate([asked_for], tmp_path / name, shard=shard, batch=batch, resources=here)
        found.append(Store(tmp_path / name).read(asked_for))
    pairs = zip(*found, strict=True)
    borderline = sum((a.sample, a.clean, a.attacked) != (b.sample, b.clean, b.attacked) for a, b in pairs)
    assert borderline <= BORDERLINE * 250
