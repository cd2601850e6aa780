"""No attack and no defence changes its results without raising its edition."""

from __future__ import annotations

import pytest

from antiadv.attacks import ATTACKS
from antiadv.defences import DEFENCES
from tests.golden.cases import CASES, AttackCase, DefenceCase, complaint, load, samples

RECORDED = load()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_results_are_those_of_the_edition(case: AttackCase | DefenceCase) -> None:
    assert (message := complaint(case.name, RECORDED.get(case.name), case.run())) is None, message


def test_every_attack_and_every_defence_has_a_record() -> None:
    assert {case.attack.partition(":")[0] for case in CASES if isinstance(case, AttackCase)} == set(ATTACKS)
    assert {case.defence.partition(":")[0] for case in CASES if isinstance(case, DefenceCase)} == set(DEFENCES)
    assert set(RECORDED) == {case.name for case in CASES}


def test_the_records_hold_successes_and_failures() -> None:
    """A golden set in which every sample falls, or none, would notice little."""
    clean = samples()[1].tolist()
    attacked = [golden["label"] for golden in RECORDED.values() if "queries" in golden]
    fooled = [label != c for labels in attacked for label, c in zip(labels, clean, strict=True)]  # type: ignore[call-overload]
    assert 0.2 < sum(fooled) / len(fooled) < 0.9


@pytest.mark.parametrize("key", ["label", "queries", "distance"])
def test_a_changed_result_asks_for_a_new_edition(key: str) -> None:
    (name, golden), *_ = RECORDED.items()
    changed = {**golden, key: [value + 1 for value in golden[key]]}  # type: ignore[attr-defined]
    assert complaint(name, golden, golden) is None
    assert "edition" in str(complaint(name, golden, changed))
    assert "record" in str(complaint(name, golden, {**changed, "edition": "99"}))
    assert "record" in str(complaint(name, None, golden))
