"""Outside a notebook no bar is shown; large values show themselves in a line."""

from __future__ import annotations

from pathlib import Path

import pytest

import antiadv
from antiadv.core.notebook import bar, in_notebook


def test_a_program_gets_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    assert not in_notebook()
    with bar() as show:
        assert show is None
    assert capsys.readouterr() == ("", "")


def test_values_with_many_numbers_have_short_reprs(tmp_path: Path) -> None:
    data, store = antiadv.data.load("cifar10"), antiadv.Store(tmp_path)
    assert repr(data) == "Dataset(cifar10:test: 1000 images, 10 named classes)"
    assert repr(store) == f"Store({str(tmp_path)!r})"
