"""The two tables that explain the gains: steps that go too far, and the layer against noise."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from antiadv.evaluation import Resources, Store
from antiadv.paper import layer_against_noise, steps_too_far
from antiadv.paper.store_index import StoreIndex
from antiadv.reporting.render.markdown import table_as_markdown
from antiadv.reporting.table import Table
from tests.engine.probes import RECEIPT, record
from tests.paper.written import cells_of, put
from tests.reporting.stores import document
from tools.docs.reproduction import reproduction


def numbers_of(table: Table) -> list[dict[str, float]]:
    """The values of each line by heading."""
    return [
        {name: entry.value for name, entry in zip(table.head, line, strict=True) if entry.value is not None}
        for line in table.lines
    ]


def test_samples_that_only_g_gets_wrong_are_counted(tmp_path: Path, resources: Resources) -> None:
    """Of 40 samples AutoAttack breaks 20 bare and 10 with the layer. In 4 of the 10, f is right.

    One more is wrong without an attack, where f is right. If g kept f's label, 6 would be broken, not 11.
    """
    store = Store(tmp_path)
    for cell in cells_of("table-3", "compact:mart", resources):
        bare = cell.defence == "none"
        put(store, cell, 20 if bare else 10)
        if not bare:
            few = [
                dataclasses.replace(
                    r, base_attacked=r.label if r.sample < 4 else r.base_attacked, clean_confidence=0.75
                )
                for r in store.read(cell)
            ]
            few[39] = dataclasses.replace(few[39], clean=(few[39].label + 1) % 10, clean_right=0)
            shutil.rmtree(store.root / cell.key)
            store.append(cell, few, RECEIPT)
    table, used = steps_too_far.table(StoreIndex(store))
    (line,) = table.lines
    assert [entry.text for entry in line[:3]] == ["cifar10", "MART, compact:mart", "K = 2, α = 0.15"]
    assert line[3].text.endswith(" → 0.75")
    assert numbers_of(table)[0] == {
        "n": 40.0,
        "label changed": 2.5,
        "only g wrong": 12.5,
        "AA gain": 22.5,
        "AA gain, f's label": 35.0,
        "adaptive gain": 22.5,
    }
    assert len(used) == 10
    text = reproduction(store.root)
    assert table.title in text
    assert "| cifar10 | MART, compact:mart | K = 2, α = 0.15 |" in text
    assert steps_too_far.table(StoreIndex(Store(tmp_path / "none")))[0].lines == ()
    shown = document(store).tables[-1]
    assert shown.table.title == table.title
    assert set(shown.sources) == {cell.key for cell in used}


def test_only_samples_that_met_every_attack_are_used(tmp_path: Path, resources: Resources) -> None:
    """With the layer APGD has run on 60 samples and the others on 40. The 20 extra samples are wrong in every way."""
    store = Store(tmp_path)
    for cell in cells_of("table-3", "compact:mart", resources):
        long = cell.defence != "none" and cell.attack == "apgd"
        put(store, cell, 20 if cell.defence == "none" else 10, n=40 if cell.defence != "none" else 60)
        if long:
            wrong: dict[str, Any] = {
                "attacked": 5,
                "distance": 1e-3,
                "attacked_right": 0,
                "base_attacked": 3,
                "base_clean": 4,
            }
            store.append(cell, [record(i, clean_confidence=0.0, **wrong) for i in range(40, 60)], RECEIPT)
    table, _ = steps_too_far.table(StoreIndex(store))
    assert [line[3].text for line in table.lines] == ["0.50 → 0.50"]
    assert numbers_of(table) == [
        {"n": 40, "label changed": 0, "only g wrong": 0, "AA gain": 25, "AA gain, f's label": 25, "adaptive gain": 25}
    ]


def test_errors_by_chance_and_steps_that_go_too_far_are_counted(tmp_path: Path, resources: Resources) -> None:
    """Of 40 samples 10 are broken with the layer, 4 of them with f right; 16 with noise, 12 of them by chance."""
    store = Store(tmp_path)
    for cell in cells_of("table-1", "compact:standard", resources):
        if cell.attack not in ("nes", "bandits") or cell.defence == "none":
            continue
        if cell.defence == "small_noise":
            put(store, cell, 4, luck=12)
            continue
        put(store, cell, 10)
        some = [dataclasses.replace(r, base_attacked=r.label) if r.sample < 4 else r for r in store.read(cell)]
        shutil.rmtree(store.root / cell.key)
        store.append(cell, some, RECEIPT)
    table, used = layer_against_noise.table(StoreIndex(store))
    assert [tuple(entry.text for entry in line[:3]) for line in table.lines] == [
        ("cifar10", "nominal, compact:standard", f"{attack} {k}k") for attack in ("Bandits", "NES") for k in (5, 10)
    ]
    for numbers in numbers_of(table):
        assert numbers == {
            "n": 40.0,
            "layer": 75.0,
            "only g wrong": 10.0,
            "layer, f's label": 85.0,
            "SND, first error": 60.0,
            "by chance": 30.0,
        }
    assert len(used) == 4
    assert table_as_markdown(table) in reproduction(store.root)
    assert layer_against_noise.table(StoreIndex(Store(tmp_path / "none")))[0].lines == ()
