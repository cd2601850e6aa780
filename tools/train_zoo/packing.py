"""Pack finished networks into tar parts that are small enough to copy back."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tools.train_zoo.jobs import JOBS, Place, log

PART = 15 * 2**20  # bytes


def pack(place: Place, out: Path) -> None:
    """Write all finished networks and their cards as one tar, cut into parts."""
    parts = out / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    done = [job.name for job in JOBS if place.done(job.name)]
    whole = place.work / "zoo.tar"
    with tarfile.open(whole, "w") as tar:
        for name in done:
            for path in (place.result(name), place.result(name).with_suffix(".json")):
                tar.add(path, path.name)
    for old in parts.glob("zoo.tar.*"):
        old.unlink()
    with whole.open("rb") as file:
        for i, chunk in enumerate(iter(lambda: file.read(PART), b"")):
            (parts / f"zoo.tar.{i}").write_bytes(chunk)
    log(f"packed {len(done)} networks, {whole.stat().st_size:,} bytes, into {parts}")
