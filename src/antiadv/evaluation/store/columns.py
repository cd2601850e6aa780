"""Records by column, as the store writes them. Repeated values are written once.

columns_of(records)        ⇄  records_of(columns, count)
packed(columns)            ⇄  unpacked(columns, count)
check(columns, count)         refuses wrong types, lengths and orders, since a file may come from anywhere
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any  # what json holds

from antiadv.core.bounds import WHOLE
from antiadv.evaluation.cell import COLUMNS, Record

Columns = dict[str, Any]

LIKE = {"base_clean": "clean", "base_attacked": "attacked", "attacked_right": "clean_right"}
LIKE |= {"clean_truth": "clean_confidence", "attacked_truth": "attacked_confidence", "gradients": "queries"}
_MEASURED = {f.name for f in fields(Record) if f.type == "float"}
_MOST = dict.fromkeys((name for name in _MEASURED if name != "distance"), 1 + 1e-6)  # probabilities, rounded


def packed(columns: Columns) -> Columns:
    """The same columns, shorter: consecutive samples as the first one, a constant column as its value, and null where a
    column repeats a related one (`LIKE`)."""
    short: Columns = {}
    for name, values in columns.items():
        like = columns.get(LIKE.get(name, ""))
        if name == "sample" and values == list(range(values[0], values[0] + len(values))):
            short[name] = values[0]
        elif like is not None and values != like and len(set(values)) > 1:
            short[name] = [None if v == w else v for v, w in zip(values, like, strict=True)]
        elif like is not None and values == like:
            short[name] = None
        else:
            short[name] = values[0] if len(set(values)) == 1 and name != "sample" else values
    return short


def unpacked(columns: Columns, count: int) -> Columns:
    full: Columns = {}
    for name, values in columns.items():
        like = full.get(LIKE.get(name, ""))
        if name == "sample" and not isinstance(values, list):
            full[name] = list(range(values, values + count))
        elif not isinstance(values, list):
            full[name] = like if values is None else [values] * count
        elif like is not None:
            full[name] = [w if v is None else v for v, w in zip(values, like, strict=True)]
        else:
            full[name] = values
    return full


def check(columns: Columns, count: int) -> None:
    """Check unpacked columns: whole numbers, finite ones where a value is measured, samples in order."""
    if columns.keys() != {*COLUMNS} or not all(isinstance(v, list) and len(v) == count for v in columns.values()):
        raise ValueError("its columns are not those of records, or differ in length")
    for name, values in columns.items():
        kinds, most = ({int, float}, _MOST.get(name, math.inf)) if name in _MEASURED else ({int}, WHOLE)
        if not {*map(type, values)} <= kinds or not all(map(math.isfinite, values)):
            raise ValueError(f"its column {name} holds values that are not numbers")
        if min(values) < (name == "draws") or max(values) > most:
            raise ValueError(f"its column {name} goes from {min(values)} to {max(values)}"[:200])
    if any(a >= b for a, b in itertools.pairwise(columns["sample"])):
        raise ValueError("its samples are not in order")


def columns_of(records: Sequence[Record]) -> Columns:
    return {name: [getattr(record, name) for record in records] for name in COLUMNS}


_FILL = [getattr(Record, name).__set__ for name in COLUMNS]


def records_of(columns: Columns, count: int) -> list[Record]:
    """Records, filled column by column: calling a frozen dataclass a million times takes twice as long."""
    records = [Record.__new__(Record) for _ in range(count)]
    for fill, values in zip(_FILL, columns.values(), strict=True):
        for record, value in zip(records, values, strict=True):
            fill(record, value)
    return records
