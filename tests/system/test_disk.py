"""A full disk and a read-only store give one clear sentence, before any work where possible. Nothing stored is lost."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiadv.core.errors import StoreUnwritable
from antiadv.evaluation import Cell, Progress, Resources, Store, evaluate, parse_runner
from antiadv.evaluation.cell import Record
from tests.engine.probes import MODEL, RECEIPT, bands, cell, record, resources


def asked(samples: range = range(60)) -> Cell:
    return cell("pgd:steps=3", samples, threat="linf:4/255")


def mount(*words: str) -> str:
    """The error message, or an empty text."""
    if shutil.which("mount") is None:
        return "there is no mount here"
    done = subprocess.run(["mount", *words], capture_output=True, text=True)
    return done.stderr.strip() or "mount failed" if done.returncode else ""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A separate file system of 64 kB."""
    root = tmp_path / "disk"
    root.mkdir()
    if wrong := mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", str(root)):
        pytest.skip(f"no small file system can be mounted: {wrong}")
    yield root
    subprocess.run(["umount", str(root)], check=True)


def stored(root: Path) -> list[Record]:
    return Store(root).read(asked())


def one_sentence(error: pytest.ExceptionInfo[StoreUnwritable], root: Path, *parts: str) -> None:
    said = str(error.value)
    assert "\n" not in said
    for part in (str(root), "cannot be written", "intact", *parts):
        assert part in said


def test_a_full_disk_loses_nothing(disk: Path) -> None:
    evaluate([asked(range(20))], disk, resources=resources())
    before = stored(disk)
    filler = disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(disk).free))
    with pytest.raises(StoreUnwritable) as error:
        evaluate([asked()], disk, shard=20, resources=resources())
    one_sentence(error, disk, "No space left on device", "free some space")
    assert stored(disk) == before
    assert not list(disk.rglob("*.tmp")), "the unfinished file was removed"
    filler.unlink()
    evaluate([asked()], disk, shard=20, resources=resources())
    assert [r.sample for r in stored(disk)] == list(range(60))
    assert stored(disk)[:20] == before


def test_a_disk_too_small_for_the_images_keeps_no_records_without_them(disk: Path) -> None:
    with pytest.raises(StoreUnwritable, match="No space left"):
        evaluate([asked()], disk, shard=10, resources=resources(), keep_images=True)  # 120 kB a shard
    assert stored(disk) == []
    assert not list(disk.rglob("*.tmp"))
    assert not list(disk.rglob("*.safetensors"))


def test_a_file_that_cannot_grow_is_removed(tmp_path: Path) -> None:
    """The same without a mount: a limit on the size of files, as a quota sets it."""
    store = Store(tmp_path)
    store.append(asked(), [record(i) for i in range(3)], RECEIPT)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))
    try:
        with pytest.raises(StoreUnwritable) as error:
            store.append(asked(), [record(i, queries=i * i) for i in range(3, 50)], RECEIPT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    one_sentence(error, tmp_path, "File too large")
    assert [r.sample for r in stored(tmp_path)] == [0, 1, 2]
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.fixture
def read_only(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A store with 20 samples that can no longer be written, by root either if a file system can be mounted."""
    if os.geteuid() != 0:
        evaluate([asked(range(20))], tmp_path / "store", resources=resources())
        folders = [tmp_path / "store", *(p for p in (tmp_path / "store").rglob("*") if p.is_dir())]
        for folder in folders:
            folder.chmod(0o555)
        yield tmp_path / "store"
        for folder in folders:
            folder.chmod(0o755)
        return
    root: Path = request.getfixturevalue("disk")
    evaluate([asked(range(20))], root, resources=resources())
    if wrong := mount("-o", "remount,ro", str(root)):
        pytest.skip(f"the file system cannot be made read-only: {wrong}")
    yield root


def counted() -> tuple[Resources, list[int]]:
    net, seen = bands(), [0]
    net.register_forward_hook(lambda *_: seen.append(1))
    here = Resources("cpu", models={MODEL: net})
    here.model(MODEL)
    seen.clear()
    return here, seen


def test_a_read_only_store_is_reported_before_any_work(read_only: Path) -> None:
    before = stored(read_only)
    here, seen = counted()
    for todo in (asked(), cell("square", range(5))):  # a stored cell and a new one
        with pytest.raises(StoreUnwritable) as error:
            evaluate([todo], read_only, resources=here)
        one_sentence(error, read_only, "--store")
    assert not seen, "nothing was run"
    assert stored(read_only) == before
    assert len(before) == 20


def test_a_read_only_store_can_be_read_and_is_not_needed_when_all_is_done(read_only: Path) -> None:
    evaluate([asked(range(20))], read_only, resources=resources())
    assert Store(read_only).cells() == [asked()]
    with pytest.raises(StoreUnwritable, match="cannot be written"):
        Store(read_only).append(asked(), [record(99)], RECEIPT)


@pytest.mark.parametrize("runner", ["local", "processes:2"])
def test_a_store_that_becomes_read_only_during_a_run_keeps_its_records(disk: Path, runner: str) -> None:
    def seal(p: Progress) -> None:
        if p.overall.done == 20:
            assert mount("-o", "remount,ro", str(disk)) == ""

    with pytest.raises(StoreUnwritable) as error:
        evaluate([asked()], disk, shard=10, resources=resources(), runner=parse_runner(runner), progress=seal)
    one_sentence(error, disk, "Read-only file system")
    kept = stored(disk)
    assert len(kept) == 20
    assert mount("-o", "remount,rw", str(disk)) == ""
    evaluate([asked()], disk, shard=10, resources=resources())
    assert [r.sample for r in stored(disk)] == list(range(60))
    assert [r for r in stored(disk) if r in kept] == kept


def test_a_store_below_a_file_is_reported_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    here, seen = counted()
    with pytest.raises(StoreUnwritable) as error:
        evaluate([asked()], tmp_path / "file" / "results", resources=here)
    one_sentence(error, tmp_path / "file" / "results", "Not a directory")
    assert not seen
