"""The experiments: which statements hold, and the numbers of each."""

from __future__ import annotations

import json
import math
import re

import pytest

from antiadv.paper import theory
from antiadv.paper.theory import black_box, theorem_1

FOUND = {e.name: e for e in theory.experiments()}
HOLD = {
    *("simba_is_stp", "steps_enough", "factor", "small_steps", "loss_falls"),
    *("gradient_steps_enough", "gradient_factor"),
}
BEYOND = {"longer_steps", "longer_gradient_steps"}


def numbers(name: str) -> dict[str, float]:
    return dict(FOUND[name].numbers)


def test_what_holds_and_what_does_not() -> None:
    assert {name for name, e in FOUND.items() if e.holds} == HOLD
    assert {name for name, e in FOUND.items() if not e.within} == BEYOND
    assert len(FOUND) == len(black_box.EXPERIMENTS) + len(theory.white_box.EXPERIMENTS) == 18
    assert {e.verdict for e in FOUND.values()} == {"yes", "no", "not beyond its range"}


@pytest.mark.parametrize("name", FOUND)
def test_an_experiment_is_complete(name: str) -> None:
    e = FOUND[name]
    found = e.json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert e.says.endswith((".", ".)"))
    assert e.found.endswith(".")
    assert e.numbers
    assert all(isinstance(v, float) and math.isfinite(v) for _, v in e.numbers)
    assert not re.search(r"\b(None|nan|inf|tensor)\b", e.found + e.where), e.found
    assert str(e) == f"{name}: {e.found}"


def test_they_are_the_same_every_time() -> None:
    assert list(FOUND.values()) == list(theory.experiments())


def test_proposition_1() -> None:
    found = numbers("simba_is_stp")
    assert found["queries"] == 2 * found["steps"] + 1
    assert 100 < found["moved"] < found["steps"], "both moves and stays were compared"


def test_the_bounds_and_what_is_needed() -> None:
    found = numbers("factor")
    assert [round(found[f"enough_{c}"], 2) for c in ("1", "0.5", "0.25", "0.1")] == [51.32, 87.98, 164.22, 394.77]
    assert [found[f"needed_{c}"] for c in ("1", "0.5", "0.25", "0.1")] == [18, 34, 66, 161]
    factors = [found[f"factor_{c}"] for c in ("1", "0.5", "0.25", "0.1")]
    assert factors == pytest.approx([1, 12 / 7, 3.2, 100 / 13], rel=1e-12)
    assert numbers("steps_needed") == pytest.approx({"enough": 800 / (9 * math.sqrt(3)), "needed": 18}, rel=1e-12)


def test_the_ratio_of_steps_tends_to_one_over_c() -> None:
    found = numbers("small_steps")
    for kind in ("factor", "ratio"):
        away = [4 - found[f"{kind}_{share}"] for share in (0.5, 0.1, 0.02)]
        assert away[0] > away[1] > away[2] > 0
        assert away[2] < 0.05


def test_the_printed_derivative() -> None:
    found = numbers("printed_derivative")
    assert found["corrected"] == pytest.approx(found["differences"], rel=1e-8)
    assert found["excess"] == pytest.approx(1 / found["step"] ** 2, rel=1e-12)
    assert found["corrected"] == pytest.approx(-0.075 * 0.075 / 0.04375**2, rel=1e-12)


def test_beyond_the_range() -> None:
    found = numbers("longer_steps")
    assert (found["low"], found["factor"]) == pytest.approx((1 / 3, 0.8), rel=1e-12)
    assert found["exact"] == 1
    assert found["enough"] / found["enough_bare"] == pytest.approx(0.8, rel=1e-12)
    assert found["needed"] > found["needed_bare"]
    found = numbers("longer_gradient_steps")
    assert (found["low"], found["factor"]) == pytest.approx((1 / 3, 0.8), rel=1e-12)
    assert (found["needed"], found["needed_bare"], found["exact"]) == (2, 3, 1)


def test_c_at_most_zero() -> None:
    assert numbers("loss_falls")["lowest_c"] == pytest.approx(-1)
    assert theorem_1.lowest_c(black_box.PIT) == numbers("far_below_zero")["lowest_c"] == -1
    found = numbers("far_below_zero")
    assert (found["needed"], found["top"], found["same"], found["monotone"]) == (11, 1, 1, 1)
    found = numbers("stationary_anyway")
    assert found["needed"] == found["mirror"] == 34
    assert found["first"] == 1
    assert found["last"] < 0.03


def test_local_monotonicity() -> None:
    found = numbers("local_monotonicity")
    assert (found["failing"], found["places"], found["as_said"]) == (63, 129, 1)
    eps = black_box.PIT.step
    assert found["rise"] == ((eps / 4) ** 2 - (3 * eps / 4) ** 2) / 2


def test_the_composition_gap() -> None:
    found = numbers("composition")
    cs = ("1", "0.5", "0", "-0.5", "-3")
    assert {found[f"honest_{c}"] for c in cs} == {found["proof_1"]}
    proofs = [found[f"proof_{c}"] for c in cs]
    assert proofs == sorted(proofs, reverse=True)
    assert proofs[2] == 2
    assert proofs[1] + proofs[3] == pytest.approx(4), "by symmetry of the sigmoid"
    assert proofs[0] > 3.9
    assert proofs[4] < 1e-3


def test_the_white_box() -> None:
    found = numbers("c_minus_three")
    assert (found["ratio"], found["growth"], found["end"], found["top"], found["same"]) == (-2, 4, 1, 1, 1)
    found = numbers("gradients_seen_in_a_valley")
    assert found["ratio"] == found["closed_form"] == 1.25
    assert found["end"] > 0.98
    found = numbers("gradients_seen_on_a_hill")
    assert (found["ratio"], found["closed_form"], found["ratio_bare"]) == (0.25, 0.25, 0.5)
    assert (found["needed"], found["needed_bare"]) == (2, 3)
    found = numbers("gradient_steps_enough")
    assert [found[f"needed_{a}"] for a in ("0.1", "0.5", "1")] == [16, 3, 1]
