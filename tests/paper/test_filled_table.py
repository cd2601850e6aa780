"""Tables are filled with the numbers of a store, and say what is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from antiadv import paper
from antiadv.core.ball import Linf
from antiadv.evaluation import Resources, Store
from antiadv.paper.filled_table import compare, value
from antiadv.paper.missing_cells import resolve
from antiadv.paper.store_index import StoreIndex
from antiadv.paper.table_layout import Layout
from antiadv.reporting.measures import Difference, Share, share, standing
from antiadv.reporting.render.markdown import table_as_markdown
from tests.engine.probes import RECEIPT, record
from tests.paper.written import cells_of, put, store_cells, stored


def test_a_table_shows_stored_numbers_next_to_the_papers_and_names_the_rest(
    tmp_path: Path, resources: Resources
) -> None:
    filled = paper.filled("table-3", stored(tmp_path, resources), samples=40)
    bare, anti = filled.numbers[:2]
    assert isinstance(bare["AA"].ours, Share)
    assert (bare["AA"].ours.value, bare["AA"].paper, bare["AA"].ours.n) == (0.5, 53.11, 40)
    assert isinstance(anti["AA gain"].ours, Difference)
    assert (anti["AA gain"].ours.value, anti["AA gain"].paper) == (0.25, 18.60)
    assert anti["adaptive"].ours is not None
    assert anti["adaptive"].ours.value == pytest.approx(19 / 40)  # the worst of all, not of the adaptive attack alone
    assert str(bare["AA"]) == "50.0 [35.2, 64.8] (53.1)"
    assert str(anti["AA gain"]).startswith("+25.0 [+")
    assert all(number.ours is None for numbers in filled.numbers[2:] for number in numbers.values())
    assert len(filled.used) == 10
    assert len(filled.missing) == len(filled.layout.requests) - 10
    text = " ".join(filled.sentences)
    assert "10 of 90 cells" in text
    assert "10 cells of compact:hydra" in text
    markdown = table_as_markdown(filled.table())
    assert "| cifar10 | TRADES, compact:trades | + Anti-Adv | 40 | 100.0 [91.2, 100.0] (84.9) |" in markdown
    assert "| cifar10 | HYDRA, compact:hydra |  | – | – (89.0) |" in markdown


def test_columns_with_fewer_samples_are_named(tmp_path: Path, resources: Resources) -> None:
    store = Store(tmp_path)
    for cell in cells_of("table-3", "compact:trades", resources):
        put(store, cell, 20, n=30 if cell.attack.startswith("fab") else 40)
    sentences = paper.filled("table-3", store, samples=40).sentences
    assert any(re.search(r"\b30\b.*\bFAB\b.*\bAA\b.*\b40\b", sentence) for sentence in sentences)


def test_the_worst_case_is_of_the_samples_that_all_cells_have(tmp_path: Path, resources: Resources) -> None:
    store = Store(tmp_path)
    for k, cell in enumerate(cells_of("table-3", "compact:trades", resources)):
        facts = [record(i, **({"attacked": 5} if i % (k + 2) == 0 else {})) for i in range(40 - k)]
        store.append(cell, facts, RECEIPT)
    layout, index = paper.layout("table-3", samples=40), StoreIndex(store)
    column = next(c for c in layout.lines[0].columns if c.heading == "AA")
    records = [store.read(cell) for cell in store_cells(index, layout.lines[0].requests(column))]
    stand = [{r.sample: standing(r, Linf(8 / 255)) for r in of_cell} for of_cell in records]
    common = set.intersection(*(set(found) for found in stand))
    count = sum(all(found[i] for found in stand) for i in common)
    assert 0 < count < len(common) < 40
    assert value(index, layout.lines[0], column) == share(count, len(common))


def test_comparing_needs_common_samples(tmp_path: Path, resources: Resources) -> None:
    store = Store(tmp_path)
    layout: Layout = paper.layout("table-3", samples=40)
    bare, anti = layout.lines[:2]
    column = next(c for c in anti.columns if c.heading == "APGD")
    first, second = resolve([*bare.requests(column), *anti.requests(column)], "float32", resources)[0]
    put(store, first, 5)
    store.append(second, [record(i) for i in range(40, 50)], RECEIPT)
    assert compare(StoreIndex(store), bare.requests(column), anti.requests(column), column) is None
    store.append(second, [record(i) for i in range(40)], RECEIPT)
    found = compare(StoreIndex(store), bare.requests(column), anti.requests(column), column)
    assert found is not None
    assert (found.n, found.gained, found.lost) == (40, 5, 0)
