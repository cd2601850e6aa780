"""tools/compare_numbers: it lists what differs between two folders of pages, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from antiadv.evaluation import Store
from tests.engine.probes import RECEIPT, cell, record
from tools.compare_numbers.__main__ import main
from tools.compare_numbers.collect import collect
from tools.compare_numbers.compare import Difference, compare
from tools.compare_numbers.extract import numbers, read_folder

PAGE = """# Results

We attacked 1,000 images; accuracy fell by 3.5 points.

## Accuracy

| network | clean | robust |
|---|---|---|
| `compact:trades` | 81.2 [80.1, 82.3] | 50.0 |
| `wrn16-4:awp` | 84.0 | 54.5 |
"""


def folder(path: Path, **pages: str) -> Path:
    for name, text in pages.items():
        file = path / name.replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return path


def differences(tmp_path: Path, before: dict[str, str], after: dict[str, str]) -> list[Difference]:
    old, new = folder(tmp_path / "before", **before), folder(tmp_path / "after", **after)
    return compare(read_folder(old), read_folder(new))


def test_numbers_are_tokens_of_digits() -> None:
    assert numbers("float32, L2, wrn16-4, +4.8 and −0.6 of 1,234.5 (p 4e-11), 8/255; 95 %.") == [
        "4.8", "-0.6", "1234.5", "4e-11", "8", "255", "95"
    ]  # fmt: skip


def test_other_words_around_the_same_numbers_are_no_difference(tmp_path: Path) -> None:
    reworded = (
        PAGE.replace("We attacked 1,000 images; accuracy fell by 3.5 points.", "3.5 points are lost on 1000 images.")
        .replace("## Accuracy", "## How accurate")
        .replace("| robust |", "| under attack |")
        .replace("| `compact:trades` |", "| compact |")
    )
    assert differences(tmp_path, {"a_md": PAGE}, {"b_md": reworded}) == []


def test_rows_and_columns_in_another_order_are_no_difference(tmp_path: Path) -> None:
    turned = """# Results
We attacked 1,000 images; accuracy fell by 3.5 points.
## Accuracy
| network | robust | clean |
|---|---|---|
| `wrn16-4:awp` | 54.5 | 84.0 |
| `compact:trades` | 50.0 | 81.2 [80.1, 82.3] |
"""
    assert differences(tmp_path, {"a_md": PAGE}, {"a_md": turned}) == []


def test_a_changed_cell_is_named_by_row_and_column(tmp_path: Path) -> None:
    (found,) = differences(tmp_path, {"a_md": PAGE}, {"a_md": PAGE.replace("54.5", "54.6")})
    assert found == Difference("changed", "a.md › Accuracy › `wrn16-4:awp` › robust", "54.5 → 54.6")


def test_prose_is_compared_by_how_often_a_number_occurs(tmp_path: Path) -> None:
    found = differences(tmp_path, {"a_md": PAGE}, {"a_md": PAGE.replace("3.5 points", "4 points")})
    assert [(d.kind, d.what.split()[0]) for d in found] == [("removed", "3.5"), ("added", "4")]


def test_a_row_that_is_gone_is_removed_or_has_moved(tmp_path: Path) -> None:
    row = "| `wrn16-4:awp` | 84.0 | 54.5 |\n"
    less = PAGE.replace(row, "")
    (found,) = differences(tmp_path / "1", {"a_md": PAGE}, {"a_md": less})
    assert (found.kind, found.what) == ("removed", "84.0 54.5")
    other = "# Other\n\n| x | y | z |\n|---|---|---|\n" + row
    kinds = {d.kind for d in differences(tmp_path / "2", {"a_md": PAGE}, {"a_md": less, "b_md": other})}
    assert kinds == {"moved", "added"}


def test_json_is_compared_by_field_without_the_order_of_lists(tmp_path: Path) -> None:
    before = {"rows": [{"value": 0.5, "low": 0.25}, {"value": 1, "low": 0.75}], "on": True, "text": "of 7 networks"}
    renamed = {"lines": [{"value": 1, "low": 0.75}, {"value": 0.5, "low": 0.25}], "on": False, "text": "7 in all"}
    texts = [{"a_json": json.dumps(facts)} for facts in (before, renamed)]
    assert differences(tmp_path / "1", *texts) == []
    before["rows"][0]["low"] = 0.26  # type: ignore[index]
    (found,) = differences(tmp_path / "2", texts[0], {"a_json": json.dumps(before)})
    assert found == Difference("changed", "a.json › rows.low", "0.25 → 0.26")


def test_the_command_says_whether_anything_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    csv = "network,n\ncompact,500\n"
    old, new = folder(tmp_path / "old", a_md=PAGE, t_csv=csv), folder(tmp_path / "new", a_md=PAGE, t_csv=csv)
    assert main([str(old), str(new)]) == 0
    assert capsys.readouterr().out == "9 numbers on 2 pages; 0 changed, 0 removed, 0 added, 0 moved\n"
    folder(new, t_csv=csv.replace("500", "501"))
    assert main([str(old), str(new)]) == 1
    assert "500 → 501" in capsys.readouterr().out
    assert main([str(old), str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err


def test_collecting_takes_pages_and_report_of_a_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--collect", str(tmp_path / "out"), "--root", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
    root = Path(__file__).resolve().parents[2]
    checkout = tmp_path / "checkout"
    Store(checkout / "results").append(cell("pgd", range(4)), [record(i) for i in range(4)], RECEIPT)
    folder(checkout, README_md="1 page", **{"docs/a_md": "2 pages"})
    (checkout / "src").symlink_to(root / "src")
    collect(checkout, tmp_path / "out")
    found = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*")}
    assert {"README.md", "docs/a.md", "report/report.md", "report/report.json", "report/tables/cells.csv"} <= found
