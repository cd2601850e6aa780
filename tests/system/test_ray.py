"""`--runner ray` on a real cluster of two nodes gives the records of the local runner. Killed workers and removed
or added nodes change nothing. Workers are placed, replaced and given up as documented.

One test uses the cluster for everything, so that it is started once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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
from tests.system.actors import FailsToStart, Placed
from tests.system.misfits import Kills, Locked, Poisons, Settled, resources_of
from tests.system.test_crash import files
from tests.system.test_processes import ASKED, JOBS, begin, ends_with_one_line, offspring, read, run, wait_for

ray = pytest.importorskip("ray")
ray_runner = pytest.importorskip("antiadv.evaluation.runners.ray")

# Ray gives its workers a low priority; on a busy machine they would hardly run
QUICK = {"worker_niceness": 0, "health_check_initial_delay_ms": 0, "health_check_period_ms": 500,
         "health_check_failure_threshold": 3}  # fmt: skip
SIZE = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 80 * 2**20}
PATIENCE = 900.0  # a watchdog: on a busy machine everything takes longer


@contextmanager
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[object, object]]:
    """A cluster of two nodes with one core each, and its second node. The first claims to have a GPU."""
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
def test_a_cluster_of_two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate(ASKED, tmp_path / "unbroken", shard=1000, resources=resources())
    unbroken = read(tmp_path / "unbroken")
    with two_nodes(monkeypatch) as (cluster, second):
        # equal to the local runner, with both nodes at work
        (tmp_path / "nodes").mkdir()
        with _watched(monkeypatch) as (put, in_flight):
            told = run(tmp_path / "equal", resources_of(Settled(tmp_path / "nodes")), "ray", keep_images=True)
        assert put == ["Settled", "Dataset"], "network and images are sent once for all twelve shards"
        assert len(in_flight) == 12
        assert max(in_flight) == 2, "one job for each of the two workers, and none queued in Ray"
        assert read(tmp_path / "equal") == unbroken
        assert {p.name for p in (tmp_path / "nodes").iterdir()} == {n["NodeID"] for n in ray.nodes()}
        assert [len(load_file(p)["samples"]) for p in (tmp_path / "equal").rglob("*.safetensors")] == [10] * 12
        assert (told[-1].overall.done, told[-1].overall.total) == (120, 120)
        assert len({p.overall.done for p in told}) == 12, "progress after each shard"

        # a worker with another version refuses the job
        _refuses_another_version()

        # the arguments and the places of workers
        _workers_get_the_arguments()
        _workers_are_placed_as_asked(monkeypatch)
        _a_network_that_cannot_be_sent_is_bad_input(tmp_path / "none")
        _workers_that_fail_to_start_are_given_up(tmp_path / "none", monkeypatch)

        _a_worker_is_replaced_after_a_foreign_error(tmp_path, monkeypatch)
        _a_job_whose_workers_always_die_fails_alone(tmp_path)
        assert Store(tmp_path / "most").read(ASKED[0]) == unbroken[0][30:]  # type: ignore[index]

        # two workers killed during the run
        (tmp_path / "deaths").mkdir()
        run(tmp_path / "killed", resources_of(Kills(15, tmp_path / "deaths", 2)), "ray:workers=2")
        assert len(list((tmp_path / "deaths").iterdir())) == 2
        assert read(tmp_path / "killed") == unbroken

        # a node removed during the run, with a job that would never end
        folder, node = tmp_path / "trap", second.node_id  # type: ignore[attr-defined]
        folder.mkdir()
        removal = threading.Thread(target=_remove, args=(cluster, second, folder, node))
        removal.start()
        run(tmp_path / "removed", resources_of(Settled(folder, trap=node)), "ray")
        removal.join()
        assert (folder / node).exists(), "the node was running a job when it was removed"
        assert read(tmp_path / "removed") == unbroken

        # a node added during the run: no further job ends before the new node has one
        _a_node_that_joins_gets_jobs(cluster, tmp_path, monkeypatch)
        assert read(tmp_path / "grown") == unbroken


def _a_worker_is_replaced_after_a_foreign_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one worker, though there is room for two."""
    hurt = resources_of(Poisons(15))
    with _watched(monkeypatch) as (_, in_flight), pytest.raises(Unfinished, match=r"1 of 6 shards.*poisoned\."):
        evaluate(ASKED[:1], tmp_path / "hurt", shard=10, resources=hurt, runner="ray:workers=1")
    assert in_flight == [1] * 6
    assert len(Store(tmp_path / "hurt").read(ASKED[0])) == 50


def _a_job_whose_workers_always_die_fails_alone(tmp_path: Path) -> None:
    (tmp_path / "ends").mkdir()
    kills = resources_of(Kills(5, tmp_path / "ends", 99))
    with pytest.raises(Unfinished, match=rf"1 of 2 shards.*samples 0 … 29 of.* died {TRIES} times"):
        evaluate(ASKED[:1], tmp_path / "most", shard=30, resources=kills, runner="ray:workers=1")
    assert len(list((tmp_path / "ends").iterdir())) == TRIES


@contextmanager
def _watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[str], list[int]]]:
    """The types put into the object store, and the number of running jobs after each that is given out."""
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


def _a_node_that_joins_gets_jobs(cluster: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def _workers_get_the_arguments() -> None:
    asked = Resources("cpu", models={MODEL: bands()}, compiled=True)
    team = ray_runner._Team(Work(asked, 17, True), JOBS[:2], None)
    there = ray_runner._Worker(*team._arguments)._work
    assert (there.batch, there.images, there.watch) == (17, True, None)
    assert (there.resources.compiled, there.resources.device.type) == (True, "cpu")
    images = there.resources.data("cifar10:test")
    assert len(images.pixels.pixels) == 20, "only the images that a job asks for"
    assert images.images([19, 3]).equal(resources().data("cifar10:test").images([19, 3]))


def _workers_are_placed_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this cluster with one core on each node and one claimed GPU."""
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
    """Wait until the actor has ended, although it is still referenced."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            ray.get(actor.ready.remote(), timeout=PATIENCE)  # type: ignore[attr-defined]
        except ray.exceptions.RayActorError:
            return
        time.sleep(0.01)
    raise AssertionError("the actor was dismissed and still runs")


def _a_network_that_cannot_be_sent_is_bad_input(store: Path) -> None:
    with pytest.raises(BadInput, match=rf"{MODEL} cannot be sent.*--runner local"):
        run(store, resources_of(Locked().eval()), "ray")


def _workers_that_fail_to_start_are_given_up(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as now:
        now.setattr(ray_runner, "_Worker", FailsToStart)
        with pytest.raises(BadInput, match=r"no worker .*no such package.*every node"):
            run(store, resources(), "ray")


def _refuses_another_version() -> None:
    from antiadv.evaluation.runners.ray import _Worker

    (job, *_) = plan(ASKED, lambda cell: set(), 10)
    images = ray.put(resources().data("cifar10:test"))
    worker = _Worker("cpu", {}, {"cifar10:test": images}, 256, False, False)
    refused = worker.run(job, "another key")
    assert isinstance(refused, Failure)
    assert "another version" in refused.sentence
    unknown = worker.run(job, job.cell.key)
    assert isinstance(unknown, Failure), "a network that was not sent is unknown"


@pytest.mark.slow
def test_sigterm_ends_a_run_on_ray_with_one_line(tmp_path: Path) -> None:
    """Ray itself would print a stack and the output of the network, and exit with code 15."""
    process = begin(tmp_path, "ray:workers=1", "tests.system.misfits:make_chatty")
    wait_for(process, lambda: len(files(tmp_path)) >= 1)
    below = [Path("/proc", pid) for pid in offspring(str(process.pid))]
    dashboards = [_bytes(p / "environ") for p in below if b"dashboard.py" in _bytes(p / "cmdline")]
    process.terminate()
    ends_with_one_line(process, 143, ["hello from the network"] * ASKS)  # for its probes, which the driver asks
    assert dashboards, "Ray's own process that sends usage statistics"
    assert all(b"RAY_USAGE_STATS_ENABLED=0" in said.split(b"\0") for said in dashboards)


@pytest.mark.slow
def test_a_raylet_that_is_killed_ends_the_run_in_a_sentence_and_loses_nothing(tmp_path: Path) -> None:
    """Ray would end the driver some seconds later without a message; the driver ends first."""
    process = begin(tmp_path, "ray:workers=1")
    wait_for(process, lambda: len(files(tmp_path)) >= 1)
    below = {pid: _bytes(Path("/proc", pid, "cmdline")) for pid in offspring(str(process.pid))}
    (raylet,) = (pid for pid, said in below.items() if said.split(b"\0")[0].endswith(b"/raylet"))
    os.kill(int(raylet), signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (2, "")
    said = [line for line in err.splitlines() if line.startswith("antiadv: ")]
    assert len(said) == 1, "in addition to what Ray shows"
    assert "raylet" in said[0]
    assert err.splitlines()[-1] == said[0]
    (cell,) = Store(tmp_path).cells()
    assert len(Store(tmp_path).read(cell)) >= 10


def _bytes(file: Path) -> bytes:
    """The content of a file; empty if its process has ended."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


# ---------------------------------------------------------------- without a cluster


def test_only_the_rows_asked_for_are_sent() -> None:
    from antiadv.evaluation.runners.ray import _part

    whole, ids = antiadv.data.load("cifar10:test"), np.array([3, 7, 900])
    part = _part(whole, ids)
    assert part.pixels.pixels.shape == (3, 32, 32, 3)  # type: ignore[attr-defined]
    assert part.digest == whole.digest
    assert part.images([900, 3]).equal(whole.images([900, 3]))
    assert part.labels([7]).equal(whole.labels([7]))


@pytest.mark.parametrize("times", [1, 2])
def test_a_node_that_starts_too_slowly_is_started_once_more(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    starts = list[object]()

    def init(address: str | None = None, **_: object) -> None:
        starts.append(address)
        if len(starts) <= times:
            raise Exception("The current node timed out during startup. This could happen because ...")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    expected = pytest.raises(BadInput, match="no Ray cluster") if times == 2 else nullcontext()
    with expected, ray_runner._connected(None):
        pass
    assert starts == ["local", "local"]


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "head:port"])
def test_an_address_without_a_cluster_is_refused_before_ray_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    def asked(*words: object, **more: object) -> None:
        raise AssertionError("Ray itself would take minutes")

    monkeypatch.setattr(ray, "init", asked)
    words = ["evaluate", "--model", "tests.toys:make_rule", "--attack", "pgd", "--threat", "linf:4/255"]
    assert main([*words, "--runner", f"ray:{address}", "--store", str(tmp_path / "store")]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("antiadv: ")
    assert f"at {address} (" in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "store").exists(), "nothing was started"


def test_an_address_that_ray_cannot_read_is_bad_input_too() -> None:
    with pytest.raises(BadInput, match=r"at nobody \(Invalid address.*--runner ray"):
        list(parse_runner("ray:nobody")(Work(resources()), JOBS))


def test_without_jobs_no_cluster_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*words: object, **more: object) -> None:
        raise AssertionError("there is nothing to do")

    monkeypatch.setattr(ray, "init", start)
    assert list(parse_runner("ray")(Work(resources()), [])) == []


def test_bad_options() -> None:
    with pytest.raises(BadSpec, match=r"workers .*found 0"):
        parse_runner("ray:workers=0")
    with pytest.raises(BadInput, match="no Ray cluster"):
        parse_runner("ray:127.0.0.1:1,workers=3")


def test_a_missing_ray_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "antiadv.evaluation.runners.ray", raising=False)
    with pytest.raises(MissingExtra, match=r"pip install 'antiadv\[ray\]'"):
        parse_runner("ray")
