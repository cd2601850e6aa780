"""The probe file: what a cell's network answered to a few fixed images (`evaluation/probe.py`)."""

from __future__ import annotations

import json
from pathlib import Path

from antiadv.core.errors import StoreMismatch
from antiadv.evaluation.cell import FORMAT
from antiadv.evaluation.probe import Probe
from antiadv.evaluation.store.files import digest, json_line, read_bytes, write_bytes

PROBE = "probe.json"


def read_probe(folder: Path) -> Probe | None:
    """The probe of the cell in this folder; None where an earlier version stored the cell."""
    path = folder / PROBE
    if not path.exists():
        return None
    try:
        content = json.loads(read_bytes(path))
        stored_digest = content.pop("digest")
        if stored_digest != digest(content) or content["format"] != FORMAT or content["key"] != folder.name:
            raise ValueError("it was edited, or belongs to another cell")
        rows = tuple(None if row is None else tuple(map(float, row)) for row in content["scores"])
        return Probe(str(content["images"]), rows)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise StoreMismatch(
            f"{path} does not hold the answers of a network ({error}). Move its folder away, or name another one "
            "with --store, and run again."
        ) from None


def write_probe(folder: Path, probe: Probe) -> None:
    content = {"format": FORMAT, "key": folder.name, "images": probe.images, "scores": probe.scores}
    write_bytes(folder / PROBE, json_line({**content, "digest": digest(content)}) + b"\n")
