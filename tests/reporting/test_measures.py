"""Numbers are functions of records, held against values computed by hand; no data is not zero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiadv import L2, Linf
from antiadv.core.errors import BadInput
from antiadv.evaluation.cell import Record
from antiadv.reporting.measures import (
    Difference,
    Median,
    Ratio,
    Share,
    _median,
    calibrated,
    calibration,
    clean_accuracy,
    median_queries,
    newcombe,
    paired,
    paired_by,
    query_ratio,
    right,
    robust_accuracy,
    search_judge_mismatch,
    share,
    soonest,
    soonest_ratio,
    standing,
    unseen_by,
)
from tests.engine.probes import record

BALL = Linf(8 / 255)
STANDS: dict[str, Any] = {}
FELL: dict[str, Any] = {"attacked": 5, "distance": 8 / 255}
WRONG: dict[str, Any] = {"clean": 5, "attacked": 5}


# Wilson by hand, z = 1.959964, z² = 3.841459: (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n)
@pytest.mark.parametrize(
    ("count", "n", "low", "high"),
    [
        (8, 10, 0.490162, 0.943318),
        (0, 10, 0.0, 0.277533),
        (10, 10, 0.722467, 1.0),
        (50, 100, 0.403832, 0.596168),
        (1, 1, 0.206549, 1.0),
    ],
)
def test_the_interval_is_wilsons(count: int, n: int, low: float, high: float) -> None:
    found = share(count, n)
    assert found.value == count / n
    assert found.n == n
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-6)


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_is_wilsons_for_any_count(pair: tuple[int, int]) -> None:
    count, n = pair
    p, z = count / n, 1.959963984540054
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    found = share(count, n)
    expected = ((middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n))
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-9)
    assert 0 <= found.low <= found.value + 1e-12
    assert found.value <= found.high + 1e-12 <= 1 + 2e-12


def verdicts(gained: int, lost: int, both: int = 3, neither: int = 2) -> tuple[list[Record], list[Record]]:
    """Records of two cells with so many samples that stand only in the second, only in the first, in both, in none."""
    first = [FELL] * gained + [STANDS] * lost + [STANDS] * both + [FELL] * neither
    second = [STANDS] * gained + [FELL] * lost + [STANDS] * both + [FELL] * neither
    return [record(i, **w) for i, w in enumerate(first)], [record(i, **w) for i, w in enumerate(second)]


# exact McNemar by hand: twice the tail of a fair coin, at most 1
@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [
        (6, 1, 2 * (1 + 7) / 2**7),
        (1, 6, 2 * (1 + 7) / 2**7),
        (0, 5, 2 / 2**5),
        (10, 2, 2 * (1 + 12 + 66) / 2**12),
        (3, 3, 1.0),
        (0, 1, 1.0),
        (0, 0, 1.0),
    ],
)
def test_the_p_value_is_mcnemars(gained: int, lost: int, p: float) -> None:
    found = paired(*verdicts(gained, lost), BALL)
    n = gained + lost + 5
    low, high = newcombe(3, gained, lost, 2)
    assert found.p == pytest.approx(p)
    assert found == Difference((gained - lost) / n, low, high, gained, lost, found.p, n)
    assert low <= found.value <= high


# an example of Newcombe (Stat. Med. 17:2635, 1998), method 10: 36 both, 12 and 2 only one of them, 0 neither
def test_the_interval_of_a_difference_is_newcombes() -> None:
    assert newcombe(36, 12, 2, 0) == pytest.approx((0.0569, 0.3404), abs=5e-5)
    assert newcombe(36, 2, 12, 0) == pytest.approx((-0.3404, -0.0569), abs=5e-5)  # turned round


def test_where_nothing_changed_the_interval_is_not_a_point() -> None:
    low, high = newcombe(30, 0, 0, 10)
    assert low == pytest.approx(-high)
    assert 0.05 < high < 0.1
    assert newcombe(0, 20, 0, 0) == pytest.approx((1 - math.hypot(0.161125, 0.161125), 1), abs=1e-5)  # Wilson of 20/20


@pytest.mark.parametrize("cells", [(0.3, 0.3, 0.05, 0.35), (0.5, 0.1, 0.1, 0.3), (0.05, 0.02, 0.01, 0.92)])
def test_the_interval_of_a_difference_covers_in_19_of_20(cells: tuple[float, ...]) -> None:
    """Both, second, first, neither: the interval of 100 samples must hold the truth about 95 times of a hundred."""
    tables = np.random.default_rng(0).multinomial(100, cells, size=1000)
    truth = cells[1] - cells[2]
    held = sum(low <= truth <= high for low, high in (newcombe(*map(int, t)) for t in tables))
    assert 0.93 <= held / 1000 <= 0.999  # it is careful where few samples change


def test_only_common_samples_are_paired() -> None:
    first = [record(i, **FELL) for i in range(6)]
    second = [record(i) for i in range(4, 10)]
    found = paired(first, second, BALL)
    assert (found.n, found.gained, found.lost, found.value) == (2, 2, 0, 1.0)
    with pytest.raises(BadInput, match="no sample in common"):
        paired(first[:2], second, BALL)


def test_pairs_may_be_judged_by_anything() -> None:
    first, second = [record(0, **WRONG), record(1)], [record(0), record(1)]
    assert paired_by(first, second, right) == Difference(0.5, *newcombe(1, 1, 0, 0), 1, 0, 1.0, 2)


@pytest.mark.parametrize(
    ("words", "stands"),
    [
        (STANDS, True),
        (FELL, False),
        (WRONG, False),
        ({"attacked": 5, "distance": 9 / 255}, True),  # it fell, but outside the ball
        ({"attacked": 5, "distance": 8 / 255 + 1e-7}, False),  # rounding is forgiven
        ({"clean": 5, "attacked": 3}, False),  # wrong before, right after: broken from the start
        ({"clean": 5, "attacked": 5, "distance": 9 / 255}, False),
        ({"draws": 3, "clean_right": 2, "attacked_right": 2}, True),
        ({"draws": 3, "clean_right": 2, "attacked_right": 1}, False),
        ({"draws": 2, "clean_right": 1, "attacked_right": 2}, False),  # half is no majority
    ],
)
def test_standing(words: dict[str, Any], stands: bool) -> None:
    assert standing(record(**words), BALL) is stands


def test_a_new_radius_needs_no_new_run() -> None:
    records = [record(i, attacked=5, distance=d) for i, d in enumerate((0.01, 0.02, 0.03, 0.04))]
    assert [robust_accuracy(records, Linf(eps)).value for eps in (0.005, 0.025, 0.04)] == [1.0, 0.5, 0.0]
    assert robust_accuracy(records, L2(0.015)).value == 0.75


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ({"distance": 0.2}, True),
        ({"distance": 0.01}, False),
        ({"distance": 0.2, "attacked": 5}, False),
        ({"distance": 0.2, **WRONG}, False),
        ({"distance": 0.2, "draws": 10, "clean_right": 10, "attacked_right": 8}, False),
    ],
    ids=["beyond, and right", "within", "fooled", "wrong from the start", "dice"],
)
def test_parted(words: dict[str, Any], found: bool) -> None:
    assert search_judge_mismatch(record(**words), Linf(0.1)) is found


def test_accuracies_count_what_they_say() -> None:
    records = [record(0), record(1, **FELL), record(2, **WRONG), record(3)]
    assert robust_accuracy(records, BALL).value == 0.5
    assert clean_accuracy(records).value == 0.75


def test_median_queries_are_of_those_that_were_right_and_fell() -> None:
    records = [
        record(0, **FELL, queries=10),
        record(1, **FELL, queries=40),
        record(2, **FELL, queries=30),
        record(3, queries=9999),  # stood
        record(4, **WRONG, queries=0),
        record(5, attacked=5, distance=1.0, queries=1),  # outside
    ]
    assert median_queries(records, BALL) == 30
    assert median_queries(records[:2], BALL) == 25
    assert median_queries(records[3:], BALL) is None


def test_no_records_is_not_zero() -> None:
    for measure in (clean_accuracy, lambda r: robust_accuracy(r, BALL)):
        with pytest.raises(BadInput, match=r"\brecords\b.*\bevaluate\b"):
            measure([])
    with pytest.raises(BadInput, match="no sample in common"):
        paired([], [], BALL)


def test_numbers_as_they_are_printed() -> None:
    assert str(Share(0.8, 0.490162, 0.943318, 10)) == "80.0 [49.0, 94.3]"
    assert str(Difference(0.125, 0, 0.25, 6, 1, 0.125, 40)) == "+12.5 (p 0.12)"
    assert str(Difference(-0.05, -0.2, 0, 0, 2, 0.5, 40)) == "-5.0 (p 0.5)"
    assert str(Difference(0.5, 0.4, 0.6, 80, 0, 1.6e-24, 160)) == "+50.0 (p 1.6e-24)"


def queried(*fates: tuple[int, bool]) -> list[Record]:
    """Records of samples that stood or fell after so many queries."""
    return [record(i, queries=q, **(FELL if fell else STANDS)) for i, (q, fell) in enumerate(fates)]


def to_fall(records: list[Record]) -> Median | None:
    return _median(list(soonest([records], BALL).values()))


def test_the_median_to_fall_counts_those_who_stood() -> None:
    # by hand: S(10) = 4/5; one leaves at 15, so 3 are at risk: S(20) = 4/5·2/3 = 0.53, S(30) = 4/5·2/3·1/2 = 0.27
    records = queried((10, True), (15, False), (20, True), (30, True), (100, False))
    assert to_fall(records) == Median(30, 100)
    assert to_fall(records[:3]) == Median(20, 20)
    assert to_fall(queried((10, True), (20, True), (30, True))) == Median(20, 30)
    assert to_fall(queried((10, True), (40, True))) == Median(10, 40)  # half have fallen by then


def test_where_fewer_than_half_fall_the_median_is_beyond() -> None:
    records = queried((10, True), (100, False), (100, False))
    assert to_fall(records) == Median(None, 100)
    assert str(to_fall(records)) == "> 100"
    assert to_fall(queried((100, False))) == Median(None, 100)
    assert to_fall(queried((0, True), (0, False))) is None  # nothing was asked
    assert to_fall([record(0, **WRONG)]) is None


def test_the_ratio_of_medians_is_exact_or_a_bound() -> None:
    quick, slow = queried((10, True), (10, True), (100, False)), queried((30, True), (30, True), (100, False))
    never = queried((100, False), (100, False), (100, False))
    assert query_ratio(quick, slow, BALL) == Ratio(3.0)
    assert query_ratio(quick, never, BALL) == Ratio(10.0, "more")
    assert query_ratio(never, quick, BALL) == Ratio(0.1, "less")
    assert query_ratio(never, never, BALL) is None
    assert query_ratio(queried((0, True)), slow, BALL) is None
    assert query_ratio(never, queried((0, True), (0, True), (100, False)), BALL) is None, "less than 0 times is none"
    assert [str(Ratio(2.04)), str(Ratio(10, "more")), str(Ratio(0.5, "less"))] == ["2", "> 10", "< 0.5"]
    assert [str(Ratio(447.6)), str(Ratio(12345.0))] == ["450", "12000"]
    assert [str(Ratio(447.6, "more")), str(Ratio(0.101, "less"))] == ["> 440", "< 0.11"]  # rounded, a bound must hold


def test_the_medians_of_a_ratio_are_of_the_same_samples() -> None:
    """Bare, three are easy and two hard; the defence gets the easy ones wrong untouched, and does nothing else."""
    bare = queried((10, True), (10, True), (10, True), (80, True), (80, True))
    behind = [record(i, **WRONG) for i in range(3)] + bare[3:]
    assert query_ratio(bare, behind, BALL) == Ratio(1.0)


def test_of_several_attacks_the_first_to_break_counts() -> None:
    one = [record(0, **FELL, queries=30), record(1, queries=50), record(2, queries=40), record(3, **WRONG)]
    two = [record(0, **FELL, queries=10), record(1, **FELL, queries=90), record(2, queries=60), record(3, **WRONG)]
    assert soonest([one, two], BALL) == {0: (10, False), 1: (90, False), 2: (60, True)}
    assert soonest([one, two[1:]], BALL).keys() == {1, 2}
    assert soonest_ratio([one, two], [[record(i, **FELL, queries=180) for i in range(3)]], BALL) == Ratio(2.0)
    assert soonest_ratio([one], [two[:0]], BALL) is None


def test_those_who_stand_against_a_short_and_a_long_attack_are_not_forgotten() -> None:
    """Six of ten stand against both; the four that fall do so at 500, to the long one alone: the median is beyond.

    Beyond 100, for the short one was not asked what it would do with more.
    """
    short = [record(i, queries=100) for i in range(10)]
    long = [record(i, queries=500, **(FELL if i < 4 else {})) for i in range(10)]
    bare = [record(i, queries=50, **FELL) for i in range(10)]
    assert soonest_ratio([bare, bare], [short, long], BALL) == Ratio(2.0, "more")
    assert soonest_ratio([short, long], [bare, bare], BALL) == Ratio(0.5, "less")
    asks_nothing = [record(i, queries=0) for i in range(10)]
    assert soonest_ratio([bare, bare], [asks_nothing, long], BALL) is None
    assert soonest_ratio([asks_nothing, long], [bare, bare], BALL) is None


def test_calibration_by_hand() -> None:
    # bins of 1/15: 0.95 and 0.99 share the last one, 0.5 is in the eighth
    said = [(0.95, True, 0.95), (0.99, False, 0.01), (0.5, True, 0.5), (0.5, True, 0.5)]
    records = [
        record(i, **(STANDS if fine else WRONG), clean_confidence=c, clean_truth=t)
        for i, (c, fine, t) in enumerate(said)
    ]
    found = calibration(records)
    assert found.error == pytest.approx((abs(1 - 1.94) + abs(2 - 1.0)) / 4)
    assert found.loss == pytest.approx(-(math.log(0.95) + math.log(0.01) + 2 * math.log(0.5)) / 4)
    assert found.confidence == pytest.approx(2.94 / 4)
    assert (found.accuracy, found.n) == (0.75, 4)
    assert math.isfinite(calibration([record(0, clean_truth=0.0)]).loss)
    with pytest.raises(BadInput, match="no records"):
        calibration([])


def test_perfect_confidence_has_no_error() -> None:
    sure = calibration([record(i, clean_confidence=1.0, clean_truth=1.0) for i in range(5)])
    assert sure.error == 0
    assert "log-loss 0.000" in str(sure), "no minus before nothing"
    assert calibration([record(i, **WRONG, clean_confidence=1.0) for i in range(5)]).error == 1


def test_who_believes_one_wrong_answer_counts_by_queries_alone() -> None:
    spent = {0: 10_000 - 1, 1: 300, 2: 6_000, 3: 9_999, 4: 0}  # NES pays for 9,999 of 10,000
    facts = [record(i, queries=q, **(WRONG if i == 4 else {})) for i, q in spent.items()]  # the judge keeps 1 and 2
    assert [i for i, ok in unseen_by(facts, 10_000).items() if ok] == [0, 3]
    assert [i for i, ok in unseen_by(facts, 10_000, 5_000).items() if ok] == [0, 2, 3]
    assert [i for i, ok in unseen_by(facts, 10_000, 6_000).items() if ok] == [0, 3], (
        "the 6,000th answer was the wrong one"
    )
    all_fell = [record(i, queries=q) for i, q in enumerate((40, 500, 3_939))]
    assert not any(unseen_by(all_fell, 10_000).values()), "the last to fall fell too"
    assert unseen_by([], 10) == {}


def test_a_sample_counts_that_is_right_in_every_cell() -> None:
    assert soonest([[record(0, **WRONG)], [record(0)]], BALL) == {}


def test_the_median_of_any_even_number_is_where_half_have_fallen() -> None:
    """Kaplan and Meier's product of fractions does not come to a half by itself."""
    for n in range(2, 60, 2):
        facts = [record(i, queries=i + 1, **(FELL if i < n / 2 else {})) for i in range(n)]
        found = to_fall(facts)
        assert found is not None
        assert found.value == n / 2, n


def test_a_bound_is_of_the_samples_that_both_have() -> None:
    first = [record(i, queries=10, **FELL) for i in range(4)]
    second = [record(i, queries=100) for i in range(4)] + [record(9, queries=5000)]
    assert query_ratio(first, second, BALL) == Ratio(10.0, "more")


def test_far_from_the_budget_the_last_count_is_of_one_that_fell() -> None:
    assert not any(unseen_by([record(i, queries=q) for i, q in enumerate((40, 500, 8_900))], 10_000).values())


def test_bins_of_confidence_are_closed_above() -> None:
    """Confidences of three digits do stand at their ends: these two are both in (8/15, 9/15]."""
    assert calibrated([(0.6, 0.6, True), (0.55, 0.2, False)]).error == pytest.approx(abs(1 - 0.6 - 0.55) / 2)
