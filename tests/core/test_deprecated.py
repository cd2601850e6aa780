"""Names of version 0.1 work in 0.2, with a warning."""

from __future__ import annotations

from typing import Any

import pytest

import antiadv
from antiadv import paper
from antiadv.evaluation import Resources


def test_old_names_of_the_package_warn_and_work() -> None:
    with pytest.warns(DeprecationWarning, match="Resources"):
        assert antiadv.World is Resources
    with pytest.warns(DeprecationWarning, match="paper"):
        assert antiadv.experiments is paper


def test_the_old_argument_of_make_cell_warns_and_works() -> None:
    asked: dict[str, Any] = {"model": "compact:trades", "attack": "pgd", "threat": "linf:8/255", "samples": range(2)}
    with pytest.warns(DeprecationWarning, match="resources"):
        old = antiadv.make_cell(**asked, world=Resources("cpu"))  # type: ignore[call-arg]
    assert old == antiadv.make_cell(**asked, resources=Resources("cpu"))
