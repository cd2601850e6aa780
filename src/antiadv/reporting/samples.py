"""The samples behind the numbers of a report: what `samples.html` shows of every cell.

The records of a cell are in a file of their own, which the page loads when someone asks for that cell. Images are in
sheets of a hundred. As in the gallery, no network is loaded, and no file is opened that a cell names.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from antiadv.core.errors import AntiadvError, BadInput
from antiadv.core.printable import printable
from antiadv.data.dataset import Dataset
from antiadv.data.pictures import png
from antiadv.evaluation.cell import Record
from antiadv.evaluation.store import Store
from antiadv.evaluation.store.columns import LIKE, columns_of, packed
from antiadv.reporting.curves import STOPPING
from antiadv.reporting.document import Samples
from antiadv.reporting.gallery import images_of, kept_images, published
from antiadv.reporting.rows import Row

SHEET, ACROSS = 100, 10  # images in a sheet, and in each of its rows
EDGE = 128  # larger images are made smaller
CLEAN, ATTACKED = 2**20, 2**21  # pixels: of the clean images of a data set, and of all attacked images


def collected(store: Store, rows: Sequence[Row], sets: Sequence[Dataset] = ()) -> Samples:
    """Collect the records and images of these rows. `sets` are data sets that the caller chose to open."""
    files: dict[str, bytes] = {f"{row.key}.js": _script(row) for row in rows}
    opened: dict[str, Dataset | str] = {known.digest: known for known in sets}
    for row in rows:
        if row.cell.images not in opened:
            opened[row.cell.images] = _opened(row)
    clean = {digest: _clean(digest, found, rows, files) for digest, found in opened.items()}
    cells, left = dict[str, Any](), ATTACKED
    for row in rows:
        found = opened[row.cell.images]
        kept = {} if isinstance(found, str) or left <= 0 else _attacked(store, row, found, files)
        left -= kept.pop("pixels", 0)
        cells[row.key] = _described(row) | kept
    return Samples({"like": LIKE, "across": ACROSS, "sheet": SHEET, "cells": cells, "sets": clean}, files)


# ---------------------------------------------------------------- records


def _described(row: Row) -> dict[str, Any]:
    """What the page says of a cell, and what it needs to count its samples."""
    cell, threat = row.cell, row.cell.threat
    texts = {"data": row.data, "model": row.model, "defence": row.defence, "attack": cell.attack}
    texts |= {"threat": str(threat), "precision": cell.precision, "command": cell.command or "", "idle": row.never_ran}
    return {
        **{name: printable(text) for name, text in texts.items()},
        "seed": cell.seed,
        "set": cell.images,
        "bare": row.bare_key,
        "reach": None if math.isinf(threat.ball.reach) else threat.ball.reach,
        "queries": threat.queries,
        "stops": cell.attack.partition(":")[0] in STOPPING,
    }


def _script(row: Row) -> bytes:
    """A script, because a page that was opened from a disk may load no other file: the records, compressed."""
    in_order: Sequence[Record] = sorted(row.records, key=lambda r: r.sample)
    plain = json.dumps(packed(columns_of(in_order)) | {"count": len(in_order)}, separators=(",", ":"))
    return f'records("{row.key}","{base64.b64encode(zlib.compress(plain.encode(), 9)).decode()}");\n'.encode()


# ---------------------------------------------------------------- images


def _opened(row: Row) -> Dataset | str:
    """The published data set of a row, or why its images are not shown."""
    try:
        return published(row.cell)
    except AntiadvError as error:
        return printable(str(error).removesuffix("."))


def _clean(digest: str, found: Dataset | str, rows: Sequence[Row], files: dict[str, bytes]) -> dict[str, Any]:
    """Put the clean images that the records speak of into sheets, from the first until there are enough pixels."""
    if isinstance(found, str):
        return {"why": found, "classes": [], "ids": [], "sheets": []}
    asked = {r.sample for row in rows if row.cell.images == digest for r in row.records}
    ids = sorted(i for i in asked if i < len(found))
    if ids:
        pixels = math.prod(_small(found.images(ids[:1])).shape[2:])
        ids = ids[: max(1, CLEAN // pixels)]
    parts = [ids[start : start + SHEET] for start in range(0, len(ids), SHEET)]
    sheets, size = list[str](), (0, 0)
    for number, part in enumerate(parts):
        sheets.append(f"{digest.removeprefix('sha256:')[:12]}-{number}.png")
        files[sheets[-1]], size = _sheet(_small(found.images(part)))
    return {"why": "", "classes": list(map(printable, found.classes)), "ids": ids, "sheets": sheets, "size": size}


def _attacked(store: Store, row: Row, clean: Dataset, files: dict[str, bytes]) -> dict[str, Any]:
    """Put the first stored attacked images of a cell into a sheet, each before its perturbation, magnified."""
    path = images_of(store, row.cell)
    if path is None:
        return {}
    try:
        ids, z = kept_images(path, SHEET // 2)
        x = clean.images(ids)
        if x.shape != z.shape:
            raise BadInput("its images have another size than the clean ones")
    except AntiadvError as error:
        return {"why": printable(str(error).removesuffix("."))}
    most = (z - x).abs().flatten(1).amax(1)
    factors = torch.where(most > 0, 0.5 / most.clamp_min(1e-9), torch.ones_like(most))
    pairs = torch.stack((_small(z), _small(0.5 + factors[:, None, None, None] * (z - x))), 1).flatten(0, 1)
    files[f"{row.key}.png"], size = _sheet(pairs)
    shown = {"ids": ids.tolist(), "factors": [float(f"{v:.3g}") for v in factors.tolist()], "size": size}
    return {"attacked": shown, "pixels": len(pairs) * math.prod(pairs.shape[2:])}


def _small(x: Tensor) -> Tensor:
    """The images, none of whose edges is longer than EDGE."""
    scale = EDGE / max(x.shape[2:])
    size = [max(1, int(edge * scale)) for edge in x.shape[2:]]
    return x if scale >= 1 else F.interpolate(x, size=size, mode="area")


def _sheet(x: Tensor) -> tuple[bytes, tuple[int, int]]:
    """One picture of many, ACROSS in each row, and the width and height of one of them."""
    n, c, h, w = x.shape
    rows = math.ceil(n / ACROSS)
    whole = F.pad(x, (0, 0, 0, 0, 0, 0, 0, rows * ACROSS - n)).reshape(rows, ACROSS, c, h, w)
    return png(whole.permute(2, 0, 3, 1, 4).reshape(c, rows * h, ACROSS * w)), (w, h)
