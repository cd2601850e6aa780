"""The published numbers in the tables are the paper's."""

from __future__ import annotations

import pytest

from antiadv import paper
from antiadv.paper import numbers_in_text, table_1, table_2, table_3
from antiadv.paper.ablations import FIGURE_3, FIGURE_4, FIGURE_5, TABLE_5, TABLE_6

NAMES = list(paper.EXPERIMENTS)


def test_table_3_is_the_papers_and_its_improvements_are_differences() -> None:
    assert table_3.PAPER["cifar10", "trades"] == (
        (84.92, 55.31, 53.12, 53.55, 53.11),
        (84.88, 77.20, 77.05, 83.38, 71.71, 18.60),
    )
    assert table_3.PAPER["cifar100", "awp"][1] == (60.38, 44.21, 40.32, 50.76, 39.57, 10.42)
    for bare, anti in table_3.PAPER.values():
        assert anti[5] == pytest.approx(anti[4] - bare[4], abs=1e-9)
    gains = {
        d: [anti[5] for (data, _), (_, anti) in table_3.PAPER.items() if data == d] for d in ("cifar10", "cifar100")
    }
    assert sum(gains["cifar10"]) / 5 == pytest.approx(19.35, abs=0.005)
    assert sum(gains["cifar100"]) / 2 == pytest.approx(11.07, abs=0.005)


def test_tables_5_and_6_have_exactly_the_two_known_slips() -> None:
    slips = {
        (method, label.removeprefix("+ Anti-Adv, α = ")): round(anti[5] - rows[""][5], 2)
        for table in (TABLE_5, TABLE_6)
        for method, rows in table.PAPER.items()
        for label, anti in rows.items()
        if label and abs(anti[6] - (anti[5] - rows[""][5])) > 1e-6
    }
    assert slips == {("mart", "10/255"): 7.76, ("awp", "0.15"): 13.94}
    assert TABLE_6.PAPER["pretraining"]["+ Anti-Adv, α = 0.15"] == (59.24, 35.55, 31.56, 40.86, 40.76, 31.34, 2.38)


def test_tables_1_and_2_are_the_papers() -> None:
    cifar, imagenet = table_1.PAPER["cifar10"], table_1.PAPER["imagenet"]
    assert cifar["+ Anti-Adv"][1] - cifar["+ SND"][1] == pytest.approx(1.0)
    assert cifar["+ Anti-Adv"][3] - cifar["+ SND"][3] == pytest.approx(46.7)
    assert imagenet["+ Anti-Adv"][2] - imagenet["+ SND"][2] == pytest.approx(1.2)
    assert imagenet["+ Anti-Adv"][4] - imagenet["+ SND"][4] == pytest.approx(5.8)
    assert table_2.PAPER["cifar10", "hydra"] == ((90.1, 69.8, 79.2, 65.0), (90.1, 89.4, 87.7, 78.8))
    assert table_2.PAPER["cifar100", "pretraining"] == ((59.0, 40.6, 47.7, 34.6), (58.9, 58.2, 55.3, 42.4))


def test_figures_and_text_repeat_the_tables_they_come_from() -> None:
    bare, anti = table_3.PAPER["cifar10", "awp"]
    requested = table_2.PAPER["cifar10", "awp"]
    one, k = TABLE_5.PAPER["awp"], FIGURE_4.PAPER["awp"]
    text = {label: tuple(row.values()) for label, row in numbers_in_text.PAPER.items()}
    for rows in (FIGURE_3.PAPER["awp"], FIGURE_5.PAPER["awp"], text):
        assert (rows[""][0], rows[""][2]) == (bare[0], bare[4])
    for row in (FIGURE_3.PAPER["awp"]["α = 0.15"], FIGURE_5.PAPER["awp"]["K = 2"], text["+ Anti-Adv"]):
        assert row == (anti[0], requested[1][3], anti[4], anti[5])
    long = one["+ Anti-Adv, α = 0.15"]
    assert k["K = 1"][:6] == long[:6]
    assert k["K = 1"][6] == pytest.approx(long[5] - one[""][5])
    assert k["K = 2"] == (*anti[:4], requested[1][3], *anti[4:])
    assert numbers_in_text.PAPER["+ SND"] == {"clean": 70.03, "Square": 59.1, "AA": 27.04}
    assert numbers_in_text.PAPER_RSE == {"clean": 86.7, "NES": 78.8, "Bandits": 85.5}


@pytest.mark.parametrize("name", NAMES)
def test_every_published_number_has_a_column(name: str) -> None:
    for line in paper.layout(name).lines:
        assert set(line.paper) <= {c.heading for c in line.columns}, line.network.name
