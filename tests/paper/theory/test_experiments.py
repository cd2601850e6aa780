"""The experiments: which statements hold, and the numbers behind each, from the facts they were planned with."""

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
def test_an_experiment_is_whole(name: str) -> None:
    e = FOUND[name]
    said = e.json()
    assert json.loads(json.dumps(said, allow_nan=False)) == said
    assert e.says.endswith((".", ".)"))
    assert e.found.endswith(".")
    assert e.numbers
    assert all(isinstance(v, float) and math.isfinite(v) for _, v in e.numbers)
    assert not re.search(r"\b(None|nan|inf|tensor)\b", e.found + e.where), e.found
    assert str(e) == f"{name}: {e.found}"


def test_they_are_the_same_every_time() -> None:
    assert list(FOUND.values()) == list(theory.experiments())


def test_proposition_1() -> None:
    said = numbers("simba_is_stp")
    assert said["queries"] == 2 * said["steps"] + 1
    assert 100 < said["moved"] < said["steps"], "both moves and stays were compared"


def test_the_bounds_and_what_is_needed() -> None:
    said = numbers("factor")
    assert [round(said[f"enough_{c}"], 2) for c in ("1", "0.5", "0.25", "0.1")] == [51.32, 87.98, 164.22, 394.77]
    assert [said[f"needed_{c}"] for c in ("1", "0.5", "0.25", "0.1")] == [18, 34, 66, 161]
    factors = [said[f"factor_{c}"] for c in ("1", "0.5", "0.25", "0.1")]
    assert factors == pytest.approx([1, 12 / 7, 3.2, 100 / 13], rel=1e-12)
    assert numbers("steps_needed") == pytest.approx({"enough": 800 / (9 * math.sqrt(3)), "needed": 18}, rel=1e-12)


def test_the_ratio_of_steps_tends_to_one_over_c() -> None:
    said = numbers("small_steps")
    for kind in ("factor", "ratio"):
        away = [4 - said[f"{kind}_{share}"] for share in (0.5, 0.1, 0.02)]
        assert away[0] > away[1] > away[2] > 0
        assert away[2] < 0.05


def test_the_printed_derivative() -> None:
    said = numbers("printed_derivative")
    assert said["corrected"] == pytest.approx(said["differences"], rel=1e-8)
    assert said["excess"] == pytest.approx(1 / said["step"] ** 2, rel=1e-12)
    assert said["corrected"] == pytest.approx(-0.075 * 0.075 / 0.04375**2, rel=1e-12)


def test_beyond_the_range() -> None:
    said = numbers("longer_steps")
    assert (said["low"], said["factor"]) == pytest.approx((1 / 3, 0.8), rel=1e-12)
    assert said["exact"] == 1
    assert said["enough"] / said["enough_bare"] == pytest.approx(0.8, rel=1e-12)
    assert said["needed"] > said["needed_bare"]
    said = numbers("longer_gradient_steps")
    assert (said["low"], said["factor"]) == pytest.approx((1 / 3, 0.8), rel=1e-12)
    assert (said["needed"], said["needed_bare"], said["exact"]) == (2, 3, 1)


def test_c_at_most_zero() -> None:
    assert numbers("loss_falls")["lowest_c"] == pytest.approx(-1)
    assert theorem_1.lowest_c(black_box.PIT) == numbers("far_below_zero")["lowest_c"] == -1
    said = numbers("far_below_zero")
    assert (said["needed"], said["top"], said["same"], said["monotone"]) == (11, 1, 1, 1)
    said = numbers("stationary_anyway")
    assert said["needed"] == said["mirror"] == 34
    assert said["first"] == 1
    assert said["last"] < 0.03


def test_local_monotonicity() -> None:
    said = numbers("local_monotonicity")
    assert (said["failing"], said["places"], said["as_said"]) == (63, 129, 1)
    eps = black_box.PIT.step
    assert said["rise"] == ((eps / 4) ** 2 - (3 * eps / 4) ** 2) / 2


def test_the_composition_gap() -> None:
    said = numbers("composition")
    cs = ("1", "0.5", "0", "-0.5", "-3")
    assert {said[f"honest_{c}"] for c in cs} == {said["proof_1"]}
    proofs = [said[f"proof_{c}"] for c in cs]
    assert proofs == sorted(proofs, reverse=True)
    assert proofs[2] == 2
    assert proofs[1] + proofs[3] == pytest.approx(4), "by symmetry of the sigmoid"
    assert proofs[0] > 3.9
    assert proofs[4] < 1e-3


def test_the_white_box() -> None:
    said = numbers("c_minus_three")
    assert (said["ratio"], said["growth"], said["end"], said["top"], said["same"]) == (-2, 4, 1, 1, 1)
    said = numbers("gradients_seen_in_a_valley")
    assert said["ratio"] == said["closed_form"] == 1.25
    assert said["end"] > 0.98
    said = numbers("gradients_seen_on_a_hill")
    assert (said["ratio"], said["closed_form"], said["ratio_bare"]) == (0.25, 0.25, 0.5)
    assert (said["needed"], said["needed_bare"]) == (2, 3)
    said = numbers("gradient_steps_enough")
    assert [said[f"needed_{a}"] for a in ("0.1", "0.5", "1")] == [16, 3, 1]
