"""`--runner processes:N` gives the records of the local runner. A worker that dies is replaced, a job that kills
every worker fails alone, and no worker outlives its driver."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from antiadv.cli.__main__ import main
from antiadv.core.errors import BadInput, BadSpec, StoreUnwritable, Unfinished
from antiadv.evaluation import Progress, Resources, Store, evaluate, parse_runner
from antiadv.evaluation import resources as resources_module
from antiadv.evaluation.cell import Job
from antiadv.evaluation.plan import plan
from antiadv.evaluation.runners import RUNNERS, processes
from antiadv.evaluation.runners.work import TRIES, Work
from antiadv.evaluation.shard import Result
from tests.engine.probes import MODEL, bands, cell, resources
from tests.system.misfits import Held, Kills, Locked, Noted, Poisons, Raises, Rooted, Waits, resources_of
from tests.system.test_crash import PATIENCE, ROOT, files

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
SAMPLES = range(60)
ASKED = [cell("pgd:steps=3", SAMPLES, threat="linf:4/255"), cell("square:steps=8", SAMPLES, threat="linf:4/255")]
JOBS = plan(ASKED[:1], lambda _: set(), 10)


def run(root: Path, here: Resources, runner: str = "processes:2", **words: object) -> list[Progress]:
    told: list[Progress] = []
    evaluate(ASKED, root, shard=10, resources=here, runner=runner, progress=told.append, **words)  # type: ignore[arg-type]
    return told


def read(root: Path) -> list[object]:
    return [Store(root).read(c) for c in ASKED]


def offspring(pid: str = "self") -> set[str]:
    """The living descendants of a process, without the helper processes of multiprocessing."""
    try:
        below = {c for task in Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()}
        names = {c: Path(f"/proc/{c}/cmdline").read_text() for c in below}
    except (FileNotFoundError, ProcessLookupError):  # it has just ended
        return set()
    own = {c for c, name in names.items() if "resource_tracker" not in name and "forkserver import main" not in name}
    return own | {c for one in below for c in offspring(one)}


@pytest.fixture
def no_worker_left() -> Iterator[None]:
    before = offspring()
    yield
    assert not offspring() - before, "every worker has ended"


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    root = tmp_path_factory.mktemp("unbroken")
    evaluate(ASKED, root, shard=1000, resources=resources())
    return read(root)


class Staff(processes._Worker):
    """A worker that can be killed from outside."""

    def kill(self) -> None:
        """Kill the process and wait for its end. The driver is not told."""
        self._process.kill()
        self._process.join()


@pytest.fixture
def staff(monkeypatch: pytest.MonkeyPatch) -> list[Staff]:
    """All workers that are ever started, in order."""
    found: list[Staff] = []

    def hire(number: int, threads: int) -> Staff:
        found.append(Staff(number, threads))
        return found[-1]

    monkeypatch.setattr(processes, "_Worker", hire)
    return found


def test_runners_are_named_by_text() -> None:
    assert set(RUNNERS) == {"local", "processes", "ray"}
    assert parse_runner("processes:4").keywords == {"workers": 4}  # type: ignore[attr-defined]
    with pytest.raises(BadSpec, match=r"workers .*found 0"):
        parse_runner("processes:0")
    with pytest.raises(BadSpec, match="unknown runner 'threads'"):
        parse_runner("threads")


@pytest.mark.usefixtures("no_worker_left")
def test_two_killed_workers_change_nothing(tmp_path: Path, unbroken: list[object]) -> None:
    """The network in hand is sent to the workers; it kills the first two processes that meet sample 15."""
    (tmp_path / "deaths").mkdir()
    told = run(tmp_path / "store", resources_of(Kills(15, tmp_path / "deaths", 2)), keep_images=True)
    assert len(list((tmp_path / "deaths").iterdir())) == 2
    assert read(tmp_path / "store") == unbroken
    assert (told[-1].overall.done, told[-1].overall.total) == (120, 120)
    assert [len(load_file(p)["samples"]) for p in (tmp_path / "store").rglob("*.safetensors")] == [10] * 12


def test_queries_of_running_shards_are_shown(tmp_path: Path) -> None:
    asked, told = cell("square:steps=700", range(600), threat="linf:4/255"), list[Progress]()
    evaluate([asked], tmp_path, shard=300, resources=resources(), runner="processes:2", progress=told.append)
    early = [p.overall.queries for p in told if p.overall.done == 0]
    assert early, "each shard takes well over a tenth of a second"
    assert 0 < early[0] <= early[-1] <= told[-1].overall.queries
    assert told[-1].overall.queries == sum(r.queries for r in Store(tmp_path).read(asked))


@pytest.mark.usefixtures("no_worker_left")
def test_a_job_whose_workers_always_die_fails_alone(tmp_path: Path, unbroken: list[object]) -> None:
    (tmp_path / "deaths").mkdir()
    only = ASKED[0]
    with pytest.raises(Unfinished) as error:
        evaluate(
            [only], tmp_path / "store", shard=30, resources=resources_of(Kills(5, tmp_path / "deaths", 99)),
            runner=parse_runner("processes:2"),
        )  # fmt: skip
    assert "1 of 2 shards" in str(error.value)
    assert f"samples 0 … 29 of cifar10:test: its worker died {TRIES} times (SIGKILL)" in str(error.value)
    assert len(list((tmp_path / "deaths").iterdir())) == TRIES
    assert Store(tmp_path / "store").read(only) == unbroken[0][30:]  # type: ignore[index]


@pytest.mark.usefixtures("no_worker_left")
def test_tries_are_counted_for_each_job(tmp_path: Path) -> None:
    """Each of two jobs loses two workers. Together these are more deaths than one job may have, and both are done."""
    folders = {name: tmp_path / name for name in ("one", "two")}
    for folder in folders.values():
        folder.mkdir()
    here = Resources("cpu", models={name: Kills(5, folder, TRIES - 1) for name, folder in folders.items()})
    asked = [cell("pgd:steps=3", range(10), model=name, resources=here) for name in folders]
    evaluate(asked, tmp_path / "store", resources=here, runner="processes:1")
    assert [len(list(folder.iterdir())) for folder in folders.values()] == [TRIES - 1] * 2
    assert [len(Store(tmp_path / "store").read(c)) for c in asked] == [10, 10]


@pytest.mark.timeout(PATIENCE)
@pytest.mark.usefixtures("no_worker_left")
def test_workers_that_die_together_after_they_started_are_replaced(tmp_path: Path, staff: list[Staff]) -> None:
    """More deaths than failed starts are allowed; but all of these workers had started."""
    count = TRIES + 1
    results = parse_runner(f"processes:{count}")(Work(resources_of(Held(5, tmp_path))), JOBS)
    done = [next(results)]
    while len(list(tmp_path.iterdir())) < count - 1:
        time.sleep(0.01)
    for worker in staff:
        worker.kill()
    (tmp_path / "go").touch()
    done += results
    assert len(staff) == 2 * count
    assert sorted(each.job.ids for each in done) == sorted(job.ids for job in JOBS)
    assert all(isinstance(each, Result) for each in done)


@pytest.mark.usefixtures("no_worker_left")
def test_a_worker_that_dies_idle_loses_nothing(staff: list[Staff]) -> None:
    """Killed between two jobs: the driver notices when it hands out the next."""
    done = []
    for each in parse_runner("processes:1")(Work(resources()), JOBS):
        done.append(each)
        if len(done) == 1:
            staff[0].kill()
    assert sorted(each.job.ids for each in done) == sorted(job.ids for job in JOBS)
    assert all(isinstance(each, Result) for each in done)


@pytest.mark.usefixtures("no_worker_left")
def test_a_replacement_gets_the_number_of_the_dead_worker(staff: list[Staff]) -> None:
    """The number selects the GPU: otherwise two workers would share one GPU while another is idle."""
    for number, _ in enumerate(parse_runner("processes:2")(Work(resources()), JOBS)):
        if number == 0:
            staff[0].kill()
    assert [worker.number for worker in staff] == [0, 1, 0]


@pytest.mark.parametrize(("workers", "jobs", "threads"), [(2, 3, 2), (3, 3, 1), (9, 2, 2), (9, 1, 4), (6, 6, 1)])
@pytest.mark.usefixtures("no_worker_left")
def test_workers_are_no_more_than_jobs_and_share_the_cores(
    tmp_path: Path, staff: list[Staff], workers: int, jobs: int, threads: int
) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        done = list(parse_runner(f"processes:{workers}")(Work(resources_of(Noted(tmp_path))), JOBS[:jobs]))
    finally:
        torch.set_num_threads(before)
    assert len(done) == jobs
    assert len(staff) == min(workers, jobs)
    assert [path.name for path in tmp_path.glob("*-threads")] == [f"{threads}-threads"]


@pytest.mark.usefixtures("no_worker_left")
def test_a_network_in_hand_is_sent_once_to_each_worker(tmp_path: Path, staff: list[Staff]) -> None:
    assert len(list(parse_runner("processes:2")(Work(resources_of(Noted(tmp_path))), JOBS))) == len(JOBS) > 2
    assert len(list(tmp_path.glob("packed-*"))) == 1
    receivers = [path.name.split("-")[1] for path in tmp_path.glob("unpacked-*")]
    assert len(receivers) == len(set(receivers)) == len(staff) == 2


@pytest.mark.timeout(PATIENCE)
@pytest.mark.usefixtures("no_worker_left")
def test_closing_the_runner_does_not_wait_for_running_jobs(tmp_path: Path) -> None:
    """The first job would never end, because the file `go` is never made."""
    results = iter(parse_runner("processes:2")(Work(resources_of(Waits(5, tmp_path))), JOBS))
    assert next(results).job == JOBS[1]
    while not (tmp_path / "here").exists():
        time.sleep(0.01)
    results.close()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("no_worker_left")
def test_a_bad_sample_and_a_full_store(tmp_path: Path, unbroken: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        Unfinished,
        match=r"2 of 12 shards.*samples 20 … 29 of cifar10:test: ValueError: too dark;.* sample 23",
    ):
        run(tmp_path, resources_of(Raises(23)))
    assert [len(part) for part in read(tmp_path)] == [50, 50]  # type: ignore[arg-type]

    def full(*words: object) -> None:
        raise StoreUnwritable("the store is full")

    monkeypatch.setattr(Store, "append", full)
    with pytest.raises(StoreUnwritable, match="the store is full"):  # and the workers end
        run(tmp_path, resources())


@pytest.mark.usefixtures("no_worker_left")
def test_a_worker_whose_network_raised_is_replaced(tmp_path: Path, unbroken: list[object]) -> None:
    with pytest.raises(Unfinished, match=r"1 of 6 shards.*samples 10 … 19 of cifar10:test: RuntimeError: poisoned\."):
        evaluate(
            ASKED[:1], tmp_path, shard=10, resources=resources_of(Poisons(15)), runner=parse_runner("processes:1")
        )  # fmt: skip
    assert Store(tmp_path).done(ASKED[0]) == set(SAMPLES) - set(range(10, 20))


def test_the_driver_dies_and_its_workers_with_it(tmp_path: Path, unbroken: list[object]) -> None:
    code = (
        "from tests.system.test_processes import *\n"
        "if __name__ == '__main__':\n"
        f"    run(Path({str(tmp_path / 'store')!r}), resources_of(Waits(35, Path({str(tmp_path)!r}))))\n"
    )
    (tmp_path / "script.py").write_text(code)
    process = subprocess.Popen([sys.executable, str(tmp_path / "script.py")], cwd=ROOT, env=ENVIRONMENT)
    end = time.monotonic() + PATIENCE
    while not ((tmp_path / "here").exists() and len(files(tmp_path / "store")) >= 3):
        assert process.poll() is None
        assert time.monotonic() < end, "no worker came to sample 35"
        time.sleep(0.01)
    worker = int((tmp_path / "here").read_text())
    process.kill()
    process.communicate()
    while Path(f"/proc/{worker}").exists():
        assert time.monotonic() < end, "the waiting worker has outlived its driver"
        time.sleep(0.01)
    stored = read(tmp_path / "store")
    assert any(stored)
    for part, whole in zip(stored, unbroken, strict=True):
        assert part == [r for r in whole if r.sample in {q.sample for q in part}], "every file is complete"  # type: ignore[attr-defined]
    evaluate(ASKED, tmp_path / "store", shard=10, resources=resources())
    assert read(tmp_path / "store") == unbroken


# ---------------------------------------------------------------- what is sent to workers


def test_work_is_pickled_with_its_resources_and_without_watch() -> None:
    here = resources_of(Raises(3))
    here.data("cifar10:test")
    there = pickle.loads(pickle.dumps(Work(here, 17, True, lambda job, queries: None)))
    assert (there.batch, there.images, there.watch) == (17, True, None)
    assert there.resources.device == torch.device("cpu")
    assert isinstance(there.resources.model(MODEL), Raises)
    assert len(pickle.dumps(here)) < 100_000, "networks and data loaded by name are not sent"


def test_images_are_sent_only_on_request() -> None:
    job = Job(ASKED[0], (0, 1, 2))
    lean, whole = Work(resources())(job), Work(resources(), images=True)(job)
    assert len(lean.images) == 0  # type: ignore[union-attr]
    assert len(whole.images) == 3  # type: ignore[union-attr]
    assert len(pickle.dumps(whole)) - len(pickle.dumps(lean)) > 3 * 3072 * 4 * 0.99


@pytest.mark.parametrize(("seen", "taken"), [(None, "01201"), ("5", "55555"), ("2,7,4", "27427")])
def test_workers_take_the_gpus_in_turn(monkeypatch: pytest.MonkeyPatch, seen: str | None, taken: str) -> None:
    """It is a variable of the environment, set before CUDA starts, so the test needs no GPU."""
    found = []
    for number in range(5):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen or "")  # always set, so that it is restored
        if seen is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 3 if seen is None else len(seen.split(",")))
        processes._take_gpu(number)
        found.append(os.environ["CUDA_VISIBLE_DEVICES"])
    assert "".join(found) == taken


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.usefixtures("no_worker_left")
def test_two_workers_on_one_gpu_give_the_records_of_one_process(tmp_path: Path) -> None:
    on_gpu = Resources("cuda", models={MODEL: bands()})
    evaluate(ASKED, tmp_path / "alone", shard=1000, resources=on_gpu)
    run(tmp_path / "two", on_gpu)
    assert read(tmp_path / "two") == read(tmp_path / "alone")
    receipts = [r for c in ASKED for r in Store(tmp_path / "two").receipts(c)]
    assert {r.device for r in receipts} == {torch.cuda.get_device_name()}


def test_a_network_that_cannot_be_sent_is_bad_input(tmp_path: Path) -> None:
    class Here(nn.Module):
        """Local to this function, so that no other process can import it."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1)[:, :10]

    mine = Resources("cpu", models={"mine": Here().eval()})
    asked = cell(model="mine", resources=mine)
    with pytest.raises(BadInput, match=r"sent.*my\.module:make.*--runner local"):
        evaluate([asked], tmp_path, resources=mine, runner=parse_runner("processes:1"))
    with pytest.raises(BadInput, match=r"sent.*lock.*my\.module:make"):
        run(tmp_path, resources_of(Locked().eval()))


@pytest.mark.usefixtures("no_worker_left")
def test_a_network_that_arrives_and_cannot_be_unpacked_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"used.*\(RuntimeError: only here\).*my\.module:make.*--runner local"):
        run(tmp_path, resources_of(Rooted().eval()))


def test_the_number_of_a_gpu_is_not_sent_to_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker sees one GPU, which is its first: `cuda:1` does not exist there. The test needs no GPU."""
    monkeypatch.setattr(resources_module, "find_device", torch.device)
    for asked, sent in (("cuda:1", "cuda"), ("cuda", "cuda"), ("cpu", "cpu")):
        there = pickle.loads(processes._pickled(Work(Resources(asked, models={MODEL: bands()}), 17)))
        assert (there.resources.asked, there.resources.device) == (sent, torch.device(sent))
        assert (there.batch, there.resources.compiled) == (17, "auto")
        assert MODEL in there.resources._given


def test_a_worker_has_its_gpu_its_threads_and_no_stdout_before_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Called in this process, with a closed pipe: everything before the first message is done, and no more."""
    driver, pipe = multiprocessing.Pipe()
    driver.close()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,7,4")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    threads, handler = torch.get_num_threads(), signal.getsignal(signal.SIGINT)
    try:
        processes._serve(pipe, 4, threads + 1)
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "7"
        assert torch.get_num_threads() == threads + 1
        assert sys.stdout is sys.stderr, "stdout is for the driver's result only"
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, handler)
        torch.set_num_threads(threads)


@pytest.mark.slow
def test_a_script_without_a_main_guard_gets_advice(tmp_path: Path) -> None:
    code = (
        "from antiadv.evaluation import *\n"
        "asked = make_cell(model='tests.toys:make_rule', attack='pgd', threat='linf:4/255', samples=range(4))\n"
        f"evaluate([asked], {str(tmp_path / 'store')!r}, runner=parse_runner('processes:1'))\n"
    )
    (tmp_path / "script.py").write_text(code)
    words = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(words, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode != 0
    assert "if __name__ == '__main__':" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("runner", ["local", "processes:2"])
def test_output_of_a_network_does_not_reach_stdout(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], runner: str
) -> None:
    words = ["evaluate", "--model", "tests.system.misfits:make_chatty", "--attack", "pgd:steps=3"]
    words += ["--threat", "linf:4/255", "--samples", "0:40", "--shard", "10", "--store", str(tmp_path), "--json"]
    assert main([*words, "--runner", runner]) == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["rows"][0]["robust"]["n"] == 40
    if runner == "local":  # workers write to the stderr that their server had when it was started
        assert set(said.err.splitlines()) == {"hello from the network"}


def begin(store: Path, runner: str, model: str = "tests.toys:make_small_net") -> subprocess.Popen[str]:
    words = ["evaluate", "--model", model, "--attack", "square:steps=200"]
    words += ["--threat", "linf:4/255", "--shard", "10", "--store", str(store), "--runner", runner]
    command = [str(Path(sys.executable).with_name("antiadv")), *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def wait_for(process: subprocess.Popen[str], done: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "timed out"
        time.sleep(0.01)


def ends_with_one_line(process: subprocess.Popen[str], code: int, before: Sequence[str] = ()) -> None:
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (code, "")
    # without lines of progress, which appear where a machine is slow
    said = [line for line in err.splitlines() if not re.search(r"samples a minute| so far$", line)]
    assert said[:-1] == [*before]
    assert said[-1].startswith("antiadv: stopped; ")
    end = time.monotonic() + PATIENCE
    while alive(process.pid):
        assert time.monotonic() < end, "workers have outlived their driver"
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_end_driver_and_workers_with_one_line(tmp_path: Path, number: int, code: int) -> None:
    process = begin(tmp_path, "processes:2")
    wait_for(process, lambda: len(files(tmp_path)) >= 2)
    os.killpg(process.pid, number)  # to all processes, as a terminal or a batch system does
    ends_with_one_line(process, code)


@pytest.mark.slow
def test_ctrl_c_while_the_fork_server_imports_is_one_line_too(tmp_path: Path) -> None:
    process = begin(tmp_path, "processes:2")

    def server() -> bool:
        below = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return any("forkserver import main" in Path(f"/proc/{c}/cmdline").read_text() for c in below)

    wait_for(process, server)
    time.sleep(0.3)  # it is importing, which takes a second
    os.killpg(process.pid, signal.SIGINT)
    ends_with_one_line(process, 130)


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
