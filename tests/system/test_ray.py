"""`--runner ray` on a real cluster of two nodes, started here: the records of the local runner; a worker killed and a
node removed or joined in mid-run change nothing; workers are placed, replaced and given up as was said.

One test holds the cluster from beginning to end, so that it is started once however the suite is spread.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

import antiadv
from antiadv.cli.__main__ import main
from antiadv.core.errors import BadInput, BadSpec, MissingExtra, Unfinished
from antiadv.evaluation import Progress, Resources, Store, evaluate, parse_runner
from antiadv.evaluation.cell import Job
from antiadv.evaluation.plan import plan
from antiadv.evaluation.probe import ASKS
from antiadv.evaluation.runners.work import TRIES, Failure, Work
from tests.engine.probes import MODEL, bands, resources
from tests.system.actors import Placed, Stillborn
from tests.system.misfits import Kills, Locked, Poisons, Settled, resources_of
from tests.system.test_crash import files
from tests.system.test_processes import ASKED, JOBS, begin, ends_with_one_line, offspring, read, run, wait_for

ray = pytest.importorskip("ray")
ray_runner = pytest.importorskip("antiadv.evaluation.runners.ray")

# Ray's workers are of low priority; beside other work they would hardly get a core
QUICK = {"worker_niceness": 0, "health_check_initial_delay_ms": 0, "health_check_period_ms": 500,
         "health_check_failure_threshold": 3}  # fmt: skip
SIZE = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 80 * 2**20}
PATIENCE = 900.0  # a watchdog: beside other work everything takes longer


@contextmanager
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[object, object]]:
    """A cluster of two nodes with a core each, and the second of them; the first says that it has a GPU too."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    head = {**SIZE, "num_gpus": 1, "include_dashboard": False, "_system_config": QUICK}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        second = cluster.add_node(**SIZE)
        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster, second
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.mark.slow
def test_a_cluster_of_two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    evaluate(ASKED, tmp_path / "unbroken", shard=1000, resources=resources())
    unbroken = read(tmp_path / "unbroken")
    with two_nodes(monkeypatch) as (cluster, second):
        # equal to the local runner, with both nodes at work
        (tmp_path / "nodes").mkdir()
        with _watched(monkeypatch) as (put, in_flight):
            told = run(tmp_path / "equal", resources_of(Settled(tmp_path / "nodes")), "ray", keep_images=True)
        assert put == ["Settled", "Dataset"], "a network and its images are sent once, for all twelve shards"
        assert len(in_flight) == 12
        assert max(in_flight) == 2, "a job for each of the two workers, and none waits at Ray"
        assert read(tmp_path / "equal") == unbroken
        assert {p.name for p in (tmp_path / "nodes").iterdir()} == {n["NodeID"] for n in ray.nodes()}
        assert [len(load_file(p)["samples"]) for p in (tmp_path / "equal").rglob("*.safetensors")] == [10] * 12
        assert (told[-1].overall.done, told[-1].overall.total) == (120, 120)
        assert len({p.overall.done for p in told}) == 12, "told shard by shard"

        # what was planned here is refused where it would mean something else
        _refuses_another_version()

        # what a worker is, and where
        _workers_are_told_what_was_asked()
        _workers_are_placed_as_was_asked(monkeypatch)
        _a_network_that_cannot_be_sent_is_bad_input(tmp_path / "none")
        _workers_that_never_come_are_given_up(tmp_path / "none", monkeypatch)

        # one worker, though there are two places: replaced where an error may have hurt it
        with _watched(monkeypatch) as (_, in_flight), pytest.raises(Unfinished, match=r"1 of 6 shards.*poisoned\."):
            evaluate(
                ASKED[:1], tmp_path / "hurt", shard=10, resources=resources_of(Poisons(15)), runner="ray:workers=1"
            )
        assert in_flight == [1] * 6
        assert len(Store(tmp_path / "hurt").read(ASKED[0])) == 50

        # a job that no worker survives
        (tmp_path / "ends").mkdir()
        kills = resources_of(Kills(5, tmp_path / "ends", 99))
        with pytest.raises(Unfinished, match=rf"1 of 2 shards.*samples 0 … 29 of.*its worker died {TRIES} times"):
            evaluate(ASKED[:1], tmp_path / "most", shard=30, resources=kills, runner="ray:workers=1")
        assert len(list((tmp_path / "ends").iterdir())) == TRIES
        assert Store(tmp_path / "most").read(ASKED[0]) == unbroken[0][30:]  # type: ignore[index]

        # workers killed in mid-run, twice
        (tmp_path / "deaths").mkdir()
        run(tmp_path / "killed", resources_of(Kills(15, tmp_path / "deaths", 2)), "ray:workers=2")
        assert len(list((tmp_path / "deaths").iterdir())) == 2
        assert read(tmp_path / "killed") == unbroken

        # a node removed in mid-run, with a job on it that would never end
        folder, node = tmp_path / "trap", second.node_id  # type: ignore[attr-defined]
        folder.mkdir()
        fell = threading.Thread(target=_remove, args=(cluster, second, folder, node))
        fell.start()
        run(tmp_path / "removed", resources_of(Settled(folder, trap=node)), "ray")
        fell.join()
        assert (folder / node).exists(), "the node was at work, and only its end has freed the job"
        assert read(tmp_path / "removed") == unbroken

        # a node that joins in mid-run: from then on no job is done before it has one
        _a_node_that_joins_is_put_to_work(cluster, tmp_path, monkeypatch)
        assert read(tmp_path / "grown") == unbroken


@contextmanager
def _watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[str], list[int]]]:
    """What is put into the object store, and how many jobs are in flight after each that is given out."""
    from antiadv.evaluation.runners.ray import _Team

    put, in_flight = list[str](), list[int]()
    really_put, really_give = ray.put, _Team.give

    def seen(value: object) -> object:
        put.append(type(value).__name__)
        return really_put(value)

    def give(team: _Team, job: Job) -> None:
        really_give(team, job)
        in_flight.append(len(team.busy))

    with monkeypatch.context() as here:
        here.setattr(ray, "put", seen)
        here.setattr(_Team, "give", give)
        yield put, in_flight


def _remove(cluster: object, node: object, folder: Path, name: str) -> None:
    """Remove the node once work has come to it."""
    end = time.monotonic() + PATIENCE
    while not (folder / name).exists() and time.monotonic() < end:
        time.sleep(0.01)
    cluster.remove_node(node, allow_graceful=False)  # type: ignore[attr-defined]


def _a_node_that_joins_is_put_to_work(cluster: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_runner, "LOOK", 0.2)
    folder, stand_in = tmp_path / "joined", tmp_path / "joined" / "stand-in"
    folder.mkdir()
    stand_in.touch()

    def join(p: Progress) -> None:
        if stand_in.exists():
            stand_in.unlink()
            cluster.add_node(**SIZE)  # type: ignore[attr-defined]

    there = resources_of(Settled(folder))
    evaluate(ASKED, tmp_path / "grown", shard=10, resources=there, runner="ray", progress=join)


def _workers_are_told_what_was_asked() -> None:
    asked = Resources("cpu", models={MODEL: bands()}, compiled=True)
    team = ray_runner._Team(Work(asked, 17, True), JOBS[:2], None)
    there = ray_runner._Worker(*team._arguments)._work
    assert (there.batch, there.images, there.watch) == (17, True, None)
    assert (there.resources.compiled, there.resources.device.type) == (True, "cpu")
    images = there.resources.data("cifar10:test")
    assert len(images.pixels.pixels) == 20, "those that any job asks for, and no more"  # type: ignore[attr-defined]
    assert images.images([19, 3]).equal(resources().data("cifar10:test").images([19, 3]))


def _workers_are_placed_as_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """To this cluster, a core at each node and one GPU, or what Ray takes for one."""
    cases = (
        (None, None, 5, [("cuda", 1)]),
        ("cpu", None, 5, [("cpu", 0)] * 2),
        ("cpu", None, 1, [("cpu", 0)]),
        ("cpu", 1, 5, [("cpu", 0)]),
    )
    for device, workers, todo, given in cases:
        here = Resources("cpu", models={MODEL: bands()})
        here.asked = device
        with monkeypatch.context() as now:
            now.setattr(ray_runner, "_Worker", Placed)
            team = ray_runner._Team(Work(here), JOBS, workers)
        team.grow(todo)
        coming = dict(team._starting)
        assert ray.get(list(coming), timeout=PATIENCE) == given
        team.dismiss()
        for actor in coming.values():
            _ends(actor)


def _ends(actor: object) -> None:
    """Soon, and not only once nobody refers to it any more."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            ray.get(actor.ready.remote(), timeout=PATIENCE)  # type: ignore[attr-defined]
        except ray.exceptions.RayActorError:
            return
        time.sleep(0.01)
    raise AssertionError("an actor works on though it was dismissed")


def _a_network_that_cannot_be_sent_is_bad_input(store: Path) -> None:
    with pytest.raises(BadInput, match=rf"{MODEL} cannot be sent to other machines.*or use --runner local"):
        run(store, resources_of(Locked().eval()), "ray")


def _workers_that_never_come_are_given_up(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as now:
        now.setattr(ray_runner, "_Worker", Stillborn)
        with pytest.raises(BadInput, match=r"no worker can begin .*no such package.* the same antiadv on every node"):
            run(store, resources(), "ray")


def _refuses_another_version() -> None:
    from antiadv.evaluation.runners.ray import _Worker

    (job, *_) = plan(ASKED, lambda cell: set(), 10)
    images = ray.put(resources().data("cifar10:test"))
    worker = _Worker("cpu", {}, {"cifar10:test": images}, 256, False, False)
    refused = worker.run(job, "another key")
    assert isinstance(refused, Failure)
    assert "Install the same antiadv on every node" in refused.sentence
    unknown = worker.run(job, job.cell.key)
    assert isinstance(unknown, Failure), "and a network that was not sent is not there"


@pytest.mark.slow
def test_sigterm_ends_a_run_on_ray_with_one_line(tmp_path: Path):
    """Ray would take the signal, show a stack and leave with 15; and it would show what the network prints."""
    process = begin(tmp_path, "ray:workers=1", "tests.system.misfits:make_chatty")
    wait_for(process, lambda: len(files(tmp_path)) >= 1)
    below = [Path("/proc", pid) for pid in offspring(str(process.pid))]
    reporting = [_bytes(p / "environ") for p in below if b"dashboard.py" in _bytes(p / "cmdline")]
    process.terminate()
    ends_with_one_line(process, 143, ["hello from the network"] * ASKS)  # for its probes, which are asked here
    assert reporting, "Ray's own, who would report its use to its makers"
    assert all(b"RAY_USAGE_STATS_ENABLED=0" in said.split(b"\0") for said in reporting)


@pytest.mark.slow
def test_a_raylet_that_is_killed_ends_the_run_in_a_sentence_and_loses_nothing(tmp_path: Path):
    """Ray ends a driver without its raylet, some seconds later and without a word; we are there first."""
    process = begin(tmp_path, "ray:workers=1")
    wait_for(process, lambda: len(files(tmp_path)) >= 1)
    below = {pid: _bytes(Path("/proc", pid, "cmdline")) for pid in offspring(str(process.pid))}
    (raylet,) = (pid for pid, said in below.items() if said.split(b"\0")[0].endswith(b"/raylet"))
    os.kill(int(raylet), signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (2, "")
    said = [line for line in err.splitlines() if line.startswith("antiadv: ")]
    assert len(said) == 1, "beside what Ray itself shows of its raylet"
    assert "raylet" in said[0]
    assert err.splitlines()[-1] == said[0]
    (cell,) = Store(tmp_path).cells()
    assert len(Store(tmp_path).read(cell)) >= 10


def _bytes(file: Path) -> bytes:
    """Nothing of a process that is gone meanwhile."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


# ---------------------------------------------------------------- without a cluster


def test_only_the_rows_asked_for_are_sent():
    from antiadv.evaluation.runners.ray import _part

    whole, ids = antiadv.data.load("cifar10:test"), np.array([3, 7, 900])
    part = _part(whole, ids)
    assert part.pixels.pixels.shape == (3, 32, 32, 3)  # type: ignore[attr-defined]
    assert part.digest == whole.digest
    assert part.images([900, 3]).equal(whole.images([900, 3]))
    assert part.labels([7]).equal(whole.labels([7]))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "head:port"])
def test_an_address_where_nobody_listens_is_bad_input_before_ray_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, address: str
):
    def asked(*words: object, **more: object) -> None:
        raise AssertionError("Ray itself would take minutes")

    monkeypatch.setattr(ray, "init", asked)
    words = ["evaluate", "--model", "tests.toys:make_rule", "--attack", "pgd", "--threat", "linf:4/255"]
    assert main([*words, "--runner", f"ray:{address}", "--store", str(tmp_path / "store")]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"antiadv: no Ray cluster answers at {address} (")
    assert said.err.count("\n") == 1
    assert not (tmp_path / "store").exists(), "nothing was begun"


def test_an_address_that_ray_cannot_read_is_bad_input_too():
    with pytest.raises(BadInput, match=r"no Ray cluster answers at nobody \(Invalid address.*or say --runner ray"):
        list(parse_runner("ray:nobody")(Work(resources()), JOBS))


def test_where_nothing_is_missing_no_cluster_is_asked_or_started(monkeypatch: pytest.MonkeyPatch):
    def start(*words: object, **more: object) -> None:
        raise AssertionError("there is nothing to do")

    monkeypatch.setattr(ray, "init", start)
    assert list(parse_runner("ray")(Work(resources()), [])) == []


def test_bad_options():
    with pytest.raises(BadSpec, match="workers must be at least 1; found 0"):
        parse_runner("ray:workers=0")
    with pytest.raises(BadInput, match="no Ray cluster answers"):
        parse_runner("ray:127.0.0.1:1,workers=3")


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "antiadv.evaluation.runners.ray", raising=False)
    with pytest.raises(MissingExtra, match=r"pip install 'antiadv\[ray\]'"):
        parse_runner("ray")
