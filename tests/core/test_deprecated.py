"""Names of version 0.1 work in 0.2, with a warning."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

import antiadv
from antiadv import paper
from antiadv.core.ball import Linf
from antiadv.core.engine import Eager
from antiadv.core.ledger import Ledger
from antiadv.core.oracle import Oracle
from antiadv.core.threat import Access, Threat
from antiadv.evaluation import Resources
from antiadv.paper import theory
from tests.toys import halfspace


def test_old_names_of_the_package_warn_and_work() -> None:
    with pytest.warns(DeprecationWarning, match="Resources"):
        assert antiadv.World is Resources
    with pytest.warns(DeprecationWarning, match="paper"):
        assert antiadv.experiments is paper
    with pytest.warns(DeprecationWarning, match=r"paper\.theory"):
        assert antiadv.theory is theory


@pytest.mark.parametrize(
    ("line", "new"),
    [
        ("import antiadv.experiments; antiadv.experiments.cells", "antiadv.paper"),
        ("from antiadv.experiments import cells", "antiadv.paper"),
        ("from antiadv import experiments", "antiadv.paper"),
        ("from antiadv.theory import proposition_1; proposition_1.simba", "antiadv.paper.theory"),
        ("import antiadv.theory.proposition_1", "antiadv.paper.theory"),
        ("from antiadv import theory; theory.experiments", "antiadv.paper.theory"),
    ],
)
def test_a_moved_module_is_imported_with_one_warning(line: str, new: str) -> None:
    """In a process of its own, because Python keeps what it imported."""
    code = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        f"    warnings.simplefilter('always')\n    {line}\n"
        "(one,) = (w for w in told if w.category is DeprecationWarning and 'antiadv' in str(w.message))\n"
        "print(one.filename, one.message)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("<string> "), "the warning names the line that imports"
    assert f"is now {new};" in done.stdout


def test_the_old_argument_of_make_cell_warns_and_works() -> None:
    asked: dict[str, Any] = {"model": "compact:trades", "attack": "pgd", "threat": "linf:8/255", "samples": range(2)}
    with pytest.warns(DeprecationWarning, match="resources"):
        old = antiadv.make_cell(**asked, world=Resources("cpu"))  # type: ignore[call-arg]
    assert old == antiadv.make_cell(**asked, resources=Resources("cpu"))


def test_the_old_names_of_confirmation_warn_and_work() -> None:
    toy = halfspace(2)
    oracle = Oracle(toy.model, Threat(Linf(0.1), Access.SCORES), Ledger(6), Eager())
    with pytest.warns(DeprecationWarning, match="needs_confirmation"):
        assert oracle.rounds == oracle.needs_confirmation
    with pytest.warns(DeprecationWarning, match="confirm"):
        assert oracle.exactly(toy.x) is oracle.confirm(toy.x) is None
    with pytest.warns(DeprecationWarning, match="mark_rejected"):
        oracle.refuse(toy.x)
    with pytest.warns(DeprecationWarning, match="was_rejected"):
        assert oracle.refused(toy.x).all()


def test_the_old_name_of_a_method_of_the_oracle_warns_and_works() -> None:
    toy, ledger = halfspace(2), Ledger(6)
    oracle = Oracle(toy.model, Threat(Linf(0.1), Access.INTERNALS), ledger)
    with pytest.warns(DeprecationWarning, match="on_own_model"):
        own = oracle.beside(toy.model)
    assert torch.equal(own.scores(toy.x), oracle.on_own_model(toy.model).scores(toy.x))
    assert ledger.queries.sum() == 0
