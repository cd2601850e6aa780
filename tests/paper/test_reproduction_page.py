"""docs/reproduction.md and the headline of README.md show what a store holds."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from antiadv import paper
from antiadv.evaluation import Resources, Store
from antiadv.paper.claims import claims
from antiadv.paper.store_index import StoreIndex
from tests.paper.written import cells_of, like, put, stored
from tests.reporting.stores import HOLDS_SO_FAR, UNMEASURED, by_function
from tests.said import in_order
from tools.docs.reproduction import reproduction


def mean_gains(page: str) -> tuple[str, ...]:
    """Our mean gain on CIFAR-10 and its number of lines, then the paper's."""
    found = re.search(r"Mean gain .* on cifar10: (\S+) points over (\d+) lines? here, (\S+) over (\d+) in", page)
    assert found is not None
    return found.groups()


def test_the_page_shows_what_is_stored_and_what_is_not(tmp_path: Path, resources: Resources) -> None:
    empty = reproduction(tmp_path / "none")
    assert empty.count(f"**{UNMEASURED}**") == 2 * 8  # in the answer and in the table of checks
    assert "0 of 90 cells" in paper.headline(tmp_path / "none")
    store = stored(tmp_path, resources)
    page = reproduction(store.root)
    called = {name: claim.name for name, claim in by_function(claims(StoreIndex(store))).items()}
    auto_attack, black_box = called["auto_attack_gains"], called["black_box_gains"]
    assert f"| {auto_attack} | **{HOLDS_SO_FAR}** | 1 of 1 | 0 of 1 | 1 of 9 |" in page  # +25, from +11.7 on
    assert f"| {black_box} | **{HOLDS_SO_FAR}** | 1 of 1 | 1 of 1 | 1 of 39 |" in page
    ours = r"\| \+25\.0 [^|]*\+25\.0 [^|]*\b1 of 1\b[^|]*\|"
    assert re.search(rf"\| {auto_attack} \|[^|]*{ours} \*\*{HOLDS_SO_FAR}\*\*", page)
    assert "\n- compact:trades, AA +25.0 [" in page
    assert page.count("<details>") == page.count("</details>") == len(re.findall(r"<summary>\D* 1</summary>", page)) > 0
    assert mean_gains(page) == ("+25.0", "1", "+18.6", "1")
    assert all(module.TITLE in page for module in paper.EXPERIMENTS.values())
    *table, blank, note = paper.headline(store).splitlines()
    assert len(table) == 3
    assert table[2].startswith("| `compact:trades` | 40 | 100.0 → 100.0 | 50.0 → 75.0 | +25.0 [")
    assert all(line.count("|") == 8 for line in table)
    assert blank == ""
    assert in_order(note, " 1 of 9 networks", " 10 of 90 cells")


def test_the_headline_grows_with_the_store(tmp_path: Path, resources: Resources) -> None:
    store = stored(tmp_path, resources)
    awp = cells_of("table-3", "compact:awp", resources)
    for cell in awp:
        if cell.attack != "square" or cell.defence == "none":
            put(store, dataclasses.replace(cell, precision="mixed"), 20)
    *few, note = paper.headline(store).splitlines()
    assert len(few) == 4, "a network without all of AutoAttack has no line"
    assert in_order(note, "float32", "float32", " 1 of 9 networks", " 19 of 90 cells")
    assert "mixed" not in note, "which only that network has"
    put(store, next(c for c in awp if c.attack == "square" and c.defence != "none"), 12)
    *_, last, _, note = paper.headline(store).splitlines()
    assert last.startswith("| `compact:awp` | 40 | 100.0 → 100.0 | 50.0 → 50.0 | +0.0 [")
    assert in_order(note, "float32 (11)", "mixed (9)", "float32", " 2 of 9 networks")
    for requested in paper.layout("table-3").requests:
        put(store, like(awp[0], requested), 20)
    assert "of 9 networks" not in paper.headline(store)
    assert len(paper.headline(store).splitlines()) == 2 + 9 + 2


def test_the_page_names_numbers_that_move_the_other_way(tmp_path: Path, resources: Resources) -> None:
    store = Store(tmp_path)
    for cell in cells_of("table-3", "compact:trades", resources):
        put(store, cell, 10 if cell.defence == "none" else 20)
    page = reproduction(store.root)
    (told,) = (line for line in page.splitlines() if " 0 of 4 numbers" in line)
    assert in_order(told, "APGD", "compact:trades", "+ Anti-Adv")


def test_the_direction_of_a_change_uses_the_samples_of_both_lines(tmp_path: Path, resources: Resources) -> None:
    """Bare, 20 of the first 40 are broken and none of the next 40. With the layer, 15 of the first 40 are broken."""
    store = Store(tmp_path)
    for cell in cells_of("table-3", "compact:trades", resources):
        bare = cell.defence == "none"
        put(store, cell, 20 if bare else 15, n=80 if bare else 40)
    filled = paper.filled("table-3", store)
    assert [str(numbers["APGD"])[:4] for numbers in filled.numbers[:2]] == ["75.0", "62.5"]  # which looks like a loss
    page = reproduction(store.root)
    assert " 4 of 4 numbers." in page
    even = paper.filled("table-3", stored(tmp_path / "even", resources))
    assert ["different n" in " ".join(table.sentences) for table in (filled, even)] == [True, False]


def test_a_line_of_the_paper_counts_once_in_its_mean(tmp_path: Path, resources: Resources) -> None:
    """Two of our networks represent TRADES (+18.60), one represents MART (+20.01)."""
    store, (cell, *_) = Store(tmp_path), cells_of("table-3", "compact:trades", resources)
    for request in paper.layout("table-3").requests:
        if request.network.name in ("compact:trades", "wrn16-4:trades", "compact:mart"):
            put(store, like(cell, request), 20 if request.defence == "none" else 10)
    assert mean_gains(reproduction(store.root)) == ("+25.0", "3", "+19.3", "2")
