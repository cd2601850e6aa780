"""Which stored cells a table uses, and how their records are read."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from antiadv import paper
from antiadv.core.ball import Linf
from antiadv.evaluation import Resources, Store, evaluate, make_cell
from antiadv.evaluation.cell import Record
from antiadv.paper.filled_table import fill
from antiadv.paper.store_index import StoreIndex
from antiadv.reporting.measures import standing, standing_by
from antiadv.reporting.render.markdown import table_as_markdown
from tests.engine.probes import RECEIPT, record
from tests.paper.written import cells_of, put, store_cells, stored
from tests.said import in_order, numbers


def test_of_two_precisions_the_one_with_more_samples_is_used(tmp_path: Path, resources: Resources) -> None:
    store = stored(tmp_path, resources)
    apgd = next(
        c for c in cells_of("table-3", "compact:trades", resources) if c.attack == "apgd" and c.defence == "none"
    )
    mixed = dataclasses.replace(apgd, precision="mixed")
    put(store, mixed, 30)
    layout = paper.layout("table-3", samples=40)
    assert store_cells(StoreIndex(store), layout.requests[:1])[0].precision == "float32"  # of equals the finest
    facts = [record(i) for i in range(40, 50)]
    store.append(mixed, facts, RECEIPT)
    filled = fill(layout, StoreIndex(store))
    assert filled.numbers[0]["APGD"].ours is not None
    assert (filled.numbers[0]["APGD"].ours.n, filled.numbers[0]["APGD"].ours.value) == (50, 0.4)
    assert in_order(filled.sentences[0], "float32 (9)", "mixed (1)")


@pytest.mark.parametrize("change", [{"weights": "sha256:other"}, {"seed": 1}, {"looks": 20}])
def test_cells_with_other_weights_seed_or_draws_are_ignored(
    tmp_path: Path, resources: Resources, change: dict[str, Any]
) -> None:
    store = Store(tmp_path)
    for cell in cells_of("table-3", "compact:trades", resources):
        put(store, dataclasses.replace(cell, **change), 20)
    assert paper.filled("table-3", store).used == ()


@pytest.mark.parametrize("samples", [60, 600])
def test_a_table_uses_only_one_set_of_images(tmp_path: Path, resources: Resources, samples: int) -> None:
    """Of two sets of images with the same name, the one with the most samples is used everywhere."""
    store = stored(tmp_path, resources)
    apgd = next(
        c for c in cells_of("table-3", "compact:trades", resources) if c.attack == "apgd" and c.defence == "none"
    )
    put(store, dataclasses.replace(apgd, images="sha256:other"), 0, n=samples)
    filled = paper.filled("table-3", store, samples=40)
    assert len({cell.images for cell in filled.used}) == 1
    assert len(filled.used) == (10 if samples < 10 * 40 else 1)


def test_an_absent_store_has_every_cell_missing(tmp_path: Path) -> None:
    filled = paper.filled("table-4", tmp_path / "none")
    assert filled.used == ()
    assert numbers(filled.sentences[0]) == ["0", str(len(filled.layout.requests))]
    assert "–" in table_as_markdown(filled.table())


@pytest.mark.parametrize("attack", ["nes:probes=3", "bandits"])
def test_records_of_a_large_budget_give_the_result_of_a_smaller_one(
    attack: str, resources: Resources, tmp_path: Path
) -> None:
    """Table 1 reads 5k from runs with 10k. Compare with runs that had the smaller budget."""

    def run(queries: int) -> list[Record]:
        cell = make_cell(
            model="compact:standard",
            attack=attack,
            threat=f"linf:0.1,queries={queries}",
            samples=range(12),
            resources=resources,
        )
        evaluate([cell], tmp_path, resources=resources)
        return Store(tmp_path).read(cell)

    ball, long, part = Linf(0.1), run(105), run(21)
    assert sum(standing(r, ball) for r in long) < sum(standing(r, ball) for r in part)  # or this would say nothing
    assert [standing_by(r, ball, 21) for r in long] == [standing(r, ball) for r in part]


def test_images_that_the_judge_rejects_are_counted_and_not_read_at_another_radius(
    tmp_path: Path, resources: Resources
) -> None:
    store = Store(tmp_path)
    for cell in cells_of("table-4", "compact:awp", resources):
        astray = cell.attack == "boundary" and cell.defence != "none"
        facts = [record(i, distance=0.4) if astray and i < 3 else record(i) for i in range(40)]
        store.append(cell, facts, RECEIPT)
    filled = paper.filled("table-4", store, samples=40)
    bare, anti = filled.numbers[:2]
    assert bare["BA, L2 0.5"].ours is not None
    assert anti["BA, L2 0.5"].ours is None
    assert anti["BA"].ours is not None
    assert [*filled.search_judge_mismatch.values()] == [3]
    assert any("1 cell " in sentence and "3 samples" in sentence for sentence in filled.sentences)


def test_a_column_can_have_another_radius(tmp_path: Path, resources: Resources) -> None:
    """Ten of 40 are broken between the two radii. Three that the judge rejected lie outside both and do not matter."""
    store = Store(tmp_path)
    for cell in cells_of("table-4", "compact:awp", resources):
        fell = [record(i, attacked=5, distance=0.3) for i in range(10)]
        rejected = [record(i, distance=0.7) for i in range(10, 13)]
        store.append(cell, [*fell, *rejected, *(record(i) for i in range(13, 40))], RECEIPT)
    for row in paper.filled("table-4", store, samples=40).numbers[:2]:
        near, far = row["BA"].ours, row["BA, L2 0.5"].ours
        assert near is not None
        assert far is not None
        assert (near.value, far.value) == (1.0, 0.75)
