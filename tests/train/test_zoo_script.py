"""tools/train_zoo: its jobs are valid, sheets are unpacked, and packed parts can be put together again."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from antiadv import models
from antiadv.train import parse
from tools.train_zoo import packing
from tools.train_zoo.jobs import JOBS, Place
from tools.train_zoo.sheets import tiles
from tools.train_zoo.training import ready, train_all


def test_every_job_names_a_network_and_a_recipe() -> None:
    assert len({job.name for job in JOBS}) == len(JOBS) == 14
    for job in JOBS:
        recipe = parse(job.recipe)
        recipe.phases()[0].enter(models.build(job.model), 10)
        assert job.start is None or job.start in {other.name for other in JOBS}
        assert job.name.split("-")[-2] == job.data
        assert job.name.endswith(f"-{job.recipe.partition(':')[0]}")


def test_tiles_undo_a_sheet() -> None:
    x = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), np.uint8)
    sheet = np.concatenate([np.concatenate(list(x[i : i + 3]), 1) for i in (0, 3)], 0)
    assert np.array_equal(tiles(sheet), x)


def test_a_job_waits_for_its_data_and_for_its_first_phase(tmp_path: Path) -> None:
    jobs = {job.name: job for job in JOBS}
    place = Place(str(tmp_path), tmp_path / "work", "cpu", "auto", 1, 0)
    place.results.mkdir(parents=True)
    hydra, trades = jobs["compact-cifar10-hydra"], jobs["compact-cifar10-trades"]
    asked = [trades, hydra]
    assert not ready(trades, asked, set(), place)
    for split in ("train", "test"):
        (tmp_path / f"cifar10-{split}.json").touch()
    assert ready(trades, asked, set(), place)
    assert not ready(hydra, asked, set(), place)
    assert ready(hydra, asked, {trades.name}, place)  # nobody will train it any more: hydra does it itself
    assert ready(hydra, [hydra], set(), place)
    place.result(trades.name).with_suffix(".json").touch()
    assert ready(hydra, asked, set(), place)
    assert not ready(jobs["compact-cifar10-pretraining"], asked, set(), place)


def test_parts_make_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "PART", 10_000)
    place = Place("", tmp_path / "work", "cpu", "auto", 1, 0)
    place.results.mkdir(parents=True)
    content = {}
    for job in JOBS[:3]:
        for path in (place.result(job.name), place.result(job.name).with_suffix(".json")):
            content[path.name] = (path.name * 1000).encode()
            path.write_bytes(content[path.name])
    place.result(JOBS[3].name).write_bytes(b"no card yet: not finished")
    packing.pack(place, tmp_path / "out")
    parts = sorted((tmp_path / "out" / "parts").iterdir(), key=lambda p: int(p.suffix[1:]))
    assert len(parts) > 3
    assert all(p.stat().st_size <= 10_000 for p in parts)
    with tarfile.open(fileobj=io.BytesIO(b"".join(p.read_bytes() for p in parts))) as tar:
        found = {m.name: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]
    assert found == content


@pytest.mark.slow
def test_a_job_that_cannot_be_read_is_given_up_and_the_rest_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two child processes fail, one for its recipe and one for its data, without waiting for each other."""
    for split in ("train", "test"):
        (tmp_path / f"cifar10-{split}.json").write_text("{}")
    place = Place(str(tmp_path), tmp_path / "work", "cpu", "eager", 1, 8)
    bad = replace(JOBS[0], name="bad-recipe", recipe="nothing")
    worse = replace(JOBS[0], name="bad-data")
    assert train_all([bad, worse], place, parallel=2, minutes=60) == 2
    said = capfd.readouterr().out
    assert "[bad-recipe] REFUSED: unknown recipe 'nothing'" in said
    assert "[bad-data] REFUSED" in said
    assert said.count("given up (status 4)") == 2
