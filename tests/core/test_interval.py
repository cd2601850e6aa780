"""How likely chance explains a share, against scipy."""

from __future__ import annotations

import pytest
from scipy.stats import binom, binomtest

from antiadv.core.interval import chance
from antiadv.reporting.measures import difference


@pytest.mark.parametrize("n", [1, 7, 64, 10_000])
@pytest.mark.parametrize("p", [0.5, 0.1, 0.001])
def test_the_tail_of_the_binomial_distribution(n: int, p: float) -> None:
    for count in {0, 1, n // 10, n // 2, n}:
        assert chance(count, n, p) == pytest.approx(binom.sf(count - 1, n, p), rel=1e-8, abs=1e-300)


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (0, 5), (3, 3), (9, 2), (40, 61)])
def test_mcnemars_p_is_that_of_both_sides(gained: int, lost: int) -> None:
    before = {i: i >= gained for i in range(gained + lost + 4)}
    after = {i: i < gained or i >= gained + lost for i in range(gained + lost + 4)}
    want = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert difference(before, after).p == pytest.approx(want, rel=1e-9)
