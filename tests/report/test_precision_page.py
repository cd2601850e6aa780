"""docs/precision.md: the same cells searched in two precisions, wherever they are stored: what one of them missed."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from antiadv.evaluate import Store
from tests.evaluate.probes import RECEIPT, cell, record

ROOT = Path(__file__).resolve().parents[2]
FELL = {"attacked": 5, "distance": 1 / 255}


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_docs", ROOT / "scripts" / "make_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kept(store: Store, attack: str, precision: str, fell: range, n: int = 40, again: int = 0, **words: object) -> None:
    made = cell(attack, range(n), precision=precision, **words)
    records = [record(i, **(FELL if i in fell else {})) for i in range(n)]
    store.append(made, records, dataclasses.replace(RECEIPT, again=again))


def test_the_finest_is_compared_with_every_other_over_both_stores(pages: ModuleType, tmp_path: Path):
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    kept(here, "rays", "float32", range(16))
    kept(there, "rays", "half", range(2, 10), n=30, again=3)
    kept(there, "rays", "mixed", range(16))
    kept(there, "rays", "float32", range(9))  # the first store has it
    kept(there, "square", "float32", range(9))  # in one alone
    kept(here, "square", "half", range(9), seed=1)  # of another seed
    pairs = pages.searched_twice([here.root, there.root])
    found = [(fine[0].cell.precision, coarse[0].cell.precision) for fine, coarse in pairs]
    assert found == [("float32", "half"), ("float32", "mixed")]
    line = pages.twice(*pairs[0], sign=True)
    assert line["n"] == "30", "on the samples that both have"
    assert line["searched in"] == "float32, half"
    assert line["left"] == "46.7, 73.3"
    assert line["more left"].startswith("**+26.7 [")
    assert (line["only finer"], line["only coarser"], line["again"]) == ("8", "0", "3")
    assert pages.twice(*pairs[1], sign=False)["more left"].startswith("+0.0 [")


def test_what_is_weaker_than_chance_allows_is_named_and_bold(
    pages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store, folder = Store(tmp_path / "results"), tmp_path / "results" / "precision"
    kept(store, "rays", "float32", range(16))
    kept(Store(folder), "rays", "half", range(8))
    kept(store, "square", "float32", range(16))
    kept(Store(folder), "square", "half", range(15))
    kept(Store(folder), "rays", "mixed", range(6))
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    page = pages.precision_page()
    assert "**Too weak: `rays` in half, `rays` in mixed.** Of the 3 pairs 2 differ so." in page
    assert page.count("**+") == 2


def test_a_page_of_nothing_is_not_written(pages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kept(Store(tmp_path / "results"), "rays", "float32", range(16))
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="no cell is stored in two precisions"):
        pages.precision_page()
