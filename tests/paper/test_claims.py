"""The verdicts on the paper's claims follow from stored numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from antiadv.evaluation import Resources, Store
from antiadv.paper.claims import ABOVE_ZERO, Bar, Check, Claim, claims
from antiadv.paper.store_index import StoreIndex
from antiadv.reporting.measures import Difference
from tests.engine.probes import RECEIPT, record
from tests.paper.written import cells_of, put, stored
from tests.reporting.stores import FAILS_SO_FAR, HOLDS, HOLDS_SO_FAR, PARTLY, UNMEASURED, by_function, document
from tools.docs.reproduction import reproduction


def checked(store: Store) -> dict[str, Claim]:
    """The claims that a store checks, by the function that makes each."""
    return by_function(claims(StoreIndex(store)))


def test_claims_follow_from_the_numbers(tmp_path: Path, resources: Resources) -> None:
    store = stored(tmp_path, resources)
    found = checked(store)
    assert len(found) == 8
    assert found["clean_accuracy"].verdict == HOLDS_SO_FAR  # of one network among nine
    assert found["auto_attack_gains"].verdict == HOLDS_SO_FAR  # +25 points
    assert found["lower_bound"].verdict == HOLDS_SO_FAR  # 21 of 40 fall either way
    assert found["better_than_noise"].verdict == UNMEASURED
    assert found["black_box_gains"].verdict == HOLDS_SO_FAR  # Square's, of table 2 too
    for cell in cells_of("table-3", "compact:mart", resources):  # here it gains nothing under AutoAttack
        put(store, cell, 20)
    gains = checked(store)["auto_attack_gains"]
    assert gains.verdict == PARTLY
    assert [str(c) for c in gains.measured if not c.passes] == ["compact:mart, AA +0.0 [-4.7, +4.7] (n = 40)"]


def test_a_claim_that_fails_is_explained(tmp_path: Path, resources: Resources) -> None:
    store = Store(tmp_path)
    for cell in cells_of("table-3", "compact:mart", resources):
        put(store, cell, 20)
    why = checked(store)["auto_attack_gains"].why
    assert why
    assert f"{why}\n" in reproduction(store.root)
    assert by_function(document(store).claims)["auto_attack_gains"].why == why
    assert all(not c.why for c in document(store).claims if not c.failed)


@pytest.mark.parametrize(
    ("bar", "ends", "passes", "settled"),
    [
        (Bar(0.15), (0.18, 0.16, 0.20), True, True),
        (Bar(0.15), (0.18, 0.12, 0.24), True, False),
        (Bar(0.15), (0.14, 0.12, 0.16), False, False),
        (Bar(0.15), (0.08, 0.05, 0.11), False, True),
        (Bar(-0.01, 0.01), (0.0, -0.004, 0.004), True, True),
        (Bar(-0.01, 0.01), (-0.006, -0.016, 0.004), True, False),
        (Bar(-0.01, 0.01), (0.02, -0.03, 0.07), False, False),  # both ends fail, and what lies between would pass
        (Bar(-0.01, 0.01), (-0.034, -0.052, -0.018), False, True),
        (ABOVE_ZERO, (0.018, 0.005, 0.032), True, True),
        (ABOVE_ZERO, (0.010, -0.002, 0.022), False, False),
        (ABOVE_ZERO, (-0.113, -0.134, -0.093), False, True),
    ],
)
def test_a_check_is_settled_if_its_whole_interval_agrees(
    bar: Bar, ends: tuple[float, float, float], passes: bool, settled: bool
) -> None:
    check = Check("a line", Difference(*ends, gained=9, lost=4, p=0.5, n=500), bar, 500)
    assert (check.passes, check.settled) == (passes, settled)
    nothing = Check("a line", None, bar, 500)
    assert (nothing.passes, nothing.settled) == (False, False)


def test_a_claim_holds_when_all_of_it_is_measured(tmp_path: Path, resources: Resources) -> None:
    """Figure 3 is filled in steps: one attack at one α, all α but one on a few samples, then all."""
    store = Store(tmp_path)

    def look() -> tuple[str, list[str], int]:
        found = checked(store)["gain_for_every_alpha"]
        return found.verdict, [str(check) for check in found.measured], len(found.checks)

    cells = cells_of("figure-3", "compact:awp", resources)
    settings = list(dict.fromkeys(cell.defence for cell in cells if cell.defence != "none"))
    assert len(settings) == 7
    for cell in (c for c in cells if c.defence == "none"):
        put(store, cell, 30, n=500)
    assert look() == (UNMEASURED, [], 7)
    half = next(c for c in cells if c.defence == settings[0])
    put(store, half, 5, n=500)
    assert look()[:2] == (UNMEASURED, []), "one attack of AutoAttack's four is not AutoAttack"
    for cell in cells:
        if cell.defence in settings[:-1] and cell != half:
            put(store, cell, 5)
    verdict, text, _ = look()
    assert verdict == HOLDS_SO_FAR
    assert len(text) == 6
    assert all(check.endswith("] (n = 40)") for check in text)
    for cell in cells:
        if cell.defence == settings[-1]:
            put(store, cell, 5)
    assert look()[0] == HOLDS


def test_a_claim_with_missing_checks_fails_so_far(tmp_path: Path, resources: Resources) -> None:
    for cell in cells_of("table-3", "compact:mart", resources):
        put(Store(tmp_path), cell, 20)
    assert checked(Store(tmp_path))["auto_attack_gains"].verdict == FAILS_SO_FAR


def test_claims_fail_if_the_layer_costs_clean_accuracy_or_robustness(tmp_path: Path, resources: Resources) -> None:
    store = Store(tmp_path)
    for cell in cells_of("table-3", "compact:trades", resources):
        wrong = 4 if cell.defence != "none" else 0
        facts = [record(i, **({"clean": 5, "attacked": 5} if i < wrong else {})) for i in range(40)]
        store.append(cell, facts, RECEIPT)
    found = checked(store)
    for name in ("clean_accuracy", "lower_bound", "auto_attack_gains"):
        assert found[name].verdict == FAILS_SO_FAR, name


def test_more_steps_are_compared_one_by_one(tmp_path: Path, resources: Resources) -> None:
    store = Store(tmp_path)
    fall = {"steps=1": 30, "anti_adversary": 20, "steps=3": 10, "steps=4": 10, "steps=5": 0}
    for name in ("figure-4", "figure-5"):
        for cell in cells_of(name, "compact:awp", resources):
            setting = cell.defence.partition(":")[2] or cell.defence
            put(store, cell, fall.get(setting, 35))
    claim = checked(store)["larger_k"]
    assert [(*re.findall(r"K = (\d)", check.line), check.passes) for check in claim.checks] == [
        ("1", "2", True),
        ("2", "3", True),
        ("3", "4", False),
        ("4", "5", True),
    ]
    assert all("compact:awp" in check.line for check in claim.checks)
    assert claim.verdict == PARTLY


def test_the_layer_is_compared_with_noise_on_the_same_samples(tmp_path: Path, resources: Resources) -> None:
    store = Store(tmp_path)
    fall = {"none": 40, "small_noise": 25, "anti_adversary:step_size=0.01": 15}
    for cell in cells_of("table-1", "compact:standard", resources):
        put(store, cell, fall[cell.defence], queries=6000, luck=5 if cell.defence == "small_noise" else 0)
    claim = checked(store)["better_than_noise"]
    seen = {c.line.partition(", ")[2]: c for c in claim.measured}
    for counted, gain in (("majority", 10 / 40), ("first error", 15 / 40)):  # five errors with noise are chance
        check = seen[f"NES 10k, {counted}"]
        assert check.passes
        assert check.found is not None
        assert check.found.value == pytest.approx(gain)
        assert not seen[f"NES 5k, {counted}"].passes  # all fell after their 5,000th query: at 5k both stand
    assert claim.verdict == PARTLY


def test_the_bars_are_those_of_the_rules(tmp_path: Path) -> None:
    made = checked(Store(tmp_path))
    found = {(name, "cifar100" in check.line): check.bar for name, claim in made.items() for check in claim.checks}
    kept, gains, bound = "clean_accuracy", "auto_attack_gains", "lower_bound"
    assert (found[kept, False], found[kept, True]) == (Bar(-0.002, 0.002), Bar(-0.01, 0.01))
    assert (found[gains, False], found[gains, True]) == (Bar(0.15), Bar(0.08))
    assert found["ten_points_for_every_alpha", False] == Bar(0.10)
    assert found[bound, False] == found[bound, True] == Bar(-0.01, 0.01)
