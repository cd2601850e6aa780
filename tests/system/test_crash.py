"""A run that is killed (SIGKILL) and resumed has the records of an unbroken run. No file is half-written, only the
running shard is lost, and several processes may write the same cell at once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from antiadv.core.errors import StoreMismatch
from antiadv.evaluation import Store, evaluate
from antiadv.evaluation.cell import Job, Record
from tests.engine.probes import resources
from tests.system.driver import SAMPLES, asked
from tests.system.test_invariance import spy

ROOT = Path(__file__).resolve().parents[2]
SHARD = 20
PATIENCE = 900.0  # a watchdog: on a busy machine everything takes longer


def start(store: Path, *words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.system.driver", str(store), *map(str, words)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def files(root: Path) -> list[Path]:
    return sorted(root.glob("*/*.json.?z"))


def kill_after(root: Path, process: subprocess.Popen[str], count: int) -> set[Path]:
    """Kill the process as soon as `count` shards are stored. → the files seen by then."""
    end = time.monotonic() + PATIENCE
    while len(seen := files(root)) < count:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < end, f"{count} shards did not come in {PATIENCE} s"
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it was running when it was killed"
    return set(seen)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> list[list[Record]]:
    root = tmp_path_factory.mktemp("unbroken")
    evaluate(asked(), root, shard=1000, resources=resources())
    return read(root)


def read(root: Path) -> list[list[Record]]:
    return [Store(root).read(cell) for cell in asked()]


@pytest.mark.slow
def test_killed_twice_and_resumed_equals_unbroken(tmp_path: Path, unbroken: list[list[Record]]) -> None:
    for count in (2, 7):
        seen = kill_after(tmp_path, start(tmp_path, SHARD, "--pause", 0.1), count)
        left = files(tmp_path)
        assert set(left) >= seen, "stored files stay"
        assert len(left) <= count + 1, "one more shard may be stored before the kill"
        for part, whole in zip(read(tmp_path), unbroken, strict=True):
            assert part == whole[: len(part)], "every file is complete"
    seen_jobs: list[Job] = []
    evaluate(asked(), tmp_path, shard=SHARD, resources=resources(), runner=spy(seen_jobs))
    stored = len(left) * SHARD
    assert sum(len(job.ids) for job in seen_jobs) == len(asked()) * len(SAMPLES) - stored, "only the rest was run"
    assert read(tmp_path) == unbroken


@pytest.mark.slow
def test_twenty_random_kills_lose_only_the_running_shard(tmp_path: Path, unbroken: list[list[Record]]) -> None:
    lives, shard = 20, 5
    process = start(tmp_path, shard, "--lives", lives)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    told = [json.loads(line) for line in out.splitlines()]
    assert sum(life["killed"] for life in told) == lives
    assert sum(bool(life["begun"]) for life in told) > lives // 2, "most were running when they were killed"
    for life in told:
        before, begun, after = (set(life[k]) for k in ("before", "begun", "after"))
        assert before <= after, "stored files stay"
        assert not begun & before, "stored shards are not run again"
        assert after - before <= begun
        assert len(begun - after) <= life["killed"], "at most the running shard is lost"
    for number in range(told[-1]["store"] + 1):
        kept = {path: path.read_bytes() for path in files(tmp_path / str(number))}
        evaluate(asked(), tmp_path / str(number), shard=shard, resources=resources())
        assert read(tmp_path / str(number)) == unbroken
        assert all(path.read_bytes() == content for path, content in kept.items())


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 4, 9])
def test_killed_between_writing_and_renaming(tmp_path: Path, unbroken: list[list[Record]], count: int) -> None:
    """The temporary file exists, complete or not, and is not renamed yet. Files 1 and 2 describe the cells, files 3 and
    4 are their probes."""
    process = start(tmp_path, SHARD, "--die-in-write", count, "--keep-images")
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    assert len(list(tmp_path.rglob("*.tmp"))) == 1, "the file that was being written"
    assert len(files(tmp_path)) == max(0, (count - 5) // 2), "two files for each shard: images first, then records"
    for part, whole in zip(read(tmp_path), unbroken, strict=True):
        assert part == whole[: len(part)]
    Store(tmp_path).cells()
    evaluate(asked(), tmp_path, shard=SHARD, resources=resources(), keep_images=True)
    assert read(tmp_path) == unbroken
    assert not list(tmp_path.rglob("*.tmp")), "the temporary file of the killed process was removed"
    for path in files(tmp_path):
        images = path.with_name(f"{path.name.partition('.')[0]}.safetensors")
        assert len(load_file(images)["samples"]) == SHARD, "no records without their images"


@pytest.mark.slow
def test_processes_that_write_the_same_cell_at_once_do_not_corrupt_it(
    tmp_path: Path, unbroken: list[list[Record]]
) -> None:
    go, root = tmp_path / "go", tmp_path / "store"
    shards = (7, 20, 20)  # overlapping files, and equal names
    at_once = [start(root, shard, "--wait", go, "--pause", 0.05) for shard in shards]
    end = time.monotonic() + PATIENCE
    while len(list(tmp_path.glob("go.*"))) < len(shards):
        assert time.monotonic() < end, "they did not get ready"
        time.sleep(0.01)
    go.touch()
    for process in at_once:
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
    assert read(root) == unbroken
    assert len(files(root)) > 2 * len(SAMPLES) // 20, "both cuts were written"
    assert not list(root.rglob("*.tmp"))
    assert sorted(Store(root).cells(), key=lambda c: c.key) == sorted(asked(), key=lambda c: c.key)


def test_a_store_can_be_read_while_it_is_written(tmp_path: Path, unbroken: list[list[Record]]) -> None:
    process = start(tmp_path, 5, "--pause", 0.01)
    looks = 0
    while process.poll() is None:
        for part, whole in zip(read(tmp_path), unbroken, strict=True):
            assert part == whole[: len(part)]
        looks += bool(files(tmp_path))
        time.sleep(0.01)
    assert process.returncode == 0, process.communicate()[1]
    process.communicate()
    assert looks > 3
    assert read(tmp_path) == unbroken


def test_a_damaged_shard_is_named_and_after_deletion_only_it_is_run_again(
    tmp_path: Path, unbroken: list[list[Record]]
) -> None:
    evaluate(asked(), tmp_path, shard=SHARD, resources=resources())
    hurt = files(tmp_path)[3]
    hurt.write_bytes(hurt.read_bytes()[:-100])
    with pytest.raises(StoreMismatch, match="truncated") as error:
        read(tmp_path)
    assert str(hurt) in str(error.value)
    hurt.unlink()
    seen: list[Job] = []
    evaluate(asked(), tmp_path, shard=SHARD, resources=resources(), runner=spy(seen))
    assert [len(job.ids) for job in seen] == [SHARD]
    assert hurt.exists()
    assert read(tmp_path) == unbroken


def test_a_damaged_shard_is_named_before_the_rest_of_its_cell_is_run(tmp_path: Path) -> None:
    """Otherwise a long run would end with a cell that cannot be read. Complete cells are not read for this."""
    first, second = asked()[:2]
    evaluate([first, second], tmp_path, shard=SHARD, resources=resources())
    hurt, gone = sorted((tmp_path / first.key).glob("*.xz"))[:2]
    hurt.write_bytes(hurt.read_bytes()[:-100])
    gone.unlink()
    whole = sorted((tmp_path / second.key).glob("*.xz"))[0]
    whole.write_bytes(b"")
    seen: list[Job] = []
    with pytest.raises(StoreMismatch, match="truncated") as error:
        evaluate([first, second], tmp_path, shard=SHARD, resources=resources(), runner=spy(seen))
    assert str(hurt) in str(error.value)
    assert not seen
    hurt.unlink()
    evaluate([first, second], tmp_path, shard=SHARD, resources=resources(), runner=spy(seen))
    assert [len(job.ids) for job in seen] == [SHARD, SHARD]
