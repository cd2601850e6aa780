"""docs/precision.md: the same cells searched in two precisions, wherever they are stored: what one of them missed."""

from __future__ import annotations

import dataclasses
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from antiadv.core.errors import BadInput
from antiadv.evaluation import Store
from tests.engine.probes import RECEIPT, cell, record
from tests.said import numbers
from tools.docs import precision

FELL: dict[str, Any] = {"attacked": 5, "distance": 1 / 255}


def kept(store: Store, attack: str, precision: str, fell: range, n: int = 40, again: int = 0, **words: Any) -> None:
    made = cell(attack, range(n), precision=precision, **words)
    records = [record(i, **(FELL if i in fell else {})) for i in range(n)]
    store.append(made, records, dataclasses.replace(RECEIPT, again=again))


def test_the_finest_is_compared_with_every_other_over_both_stores(tmp_path: Path) -> None:
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    kept(here, "rays", "float32", range(16))
    kept(there, "rays", "half", range(2, 10), n=30, again=3)
    kept(there, "rays", "mixed", range(16))
    kept(there, "rays", "float32", range(9))  # the first store has it
    kept(there, "square", "float32", range(9))  # in one alone
    kept(here, "square", "half", range(9), seed=1)  # of another seed
    pairs = precision.searched_twice([here.root, there.root])
    found = [(fine[0].cell.precision, coarse[0].cell.precision) for fine, coarse in pairs]
    assert found == [("float32", "half"), ("float32", "mixed")]
    line = precision.table_row(pairs[0], differs=True)
    assert line["n"] == "30", "on the samples that both have"
    assert line["searched in"] == "float32, half"
    assert line["left"] == "46.7, 73.3"
    assert line["more left"].startswith("**+26.7 [")
    assert (line["only finer"], line["only coarser"], line["again"]) == ("8", "0", "3")
    assert precision.table_row(pairs[1], differs=False)["more left"].startswith("+0.0 [")


def test_what_is_weaker_than_chance_allows_is_named_and_bold(tmp_path: Path) -> None:
    store, folder = Store(tmp_path / "results"), tmp_path / "results" / "precision"
    kept(store, "rays", "float32", range(16))
    kept(Store(folder), "rays", "half", range(8))
    kept(store, "square", "float32", range(16))
    kept(Store(folder), "square", "half", range(15))
    kept(Store(folder), "rays", "mixed", range(6))
    page = precision.page(tmp_path)
    told, rest = next(parts for parts in pairwise(page.split("**")) if "`rays` in" in parts[0])
    assert re.findall(r"`(\w+)` in (\w+)", told) == [("rays", "half"), ("rays", "mixed")]
    assert numbers(rest)[:2] == ["2", "3"], "pairs that differ, of all pairs"
    assert page.count("**+") == 2


def test_a_page_of_nothing_is_not_written(tmp_path: Path) -> None:
    kept(Store(tmp_path / "results"), "rays", "float32", range(16))
    with pytest.raises(BadInput, match="two precisions"):
        precision.page(tmp_path)
