"""Progress of a long run: samples, queries, speed and time left, for the cell and for all cells. It goes to stderr, in
plain lines if there is no terminal."""

from __future__ import annotations

import dataclasses

import pytest

from antiadv.cli import show
from antiadv.evaluation import Progress, Tally
from tests.engine.probes import MODEL, cell

HERE = Tally(total=100, done=50, fooled=7, standing=31, queries=4321)


def told(here: Tally, overall: Tally, seconds: float, defence: str = "none") -> Progress:
    return Progress(cell("pgd:steps=3", defence=defence), here, overall, seconds)


def lines(capsys: pytest.CaptureFixture[str], *seen: Progress, quiet: bool = False) -> list[str]:
    with show.progress(quiet=quiet) as tell:
        for p in seen:
            if tell is not None:
                tell(p)
    said = capsys.readouterr()
    assert said.out == ""
    return said.err.splitlines()


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "EVERY", 0.0)


@pytest.mark.usefixtures("always")
def test_a_line_tells_of_one_cell(capsys: pytest.CaptureFixture[str]) -> None:
    begun = dataclasses.replace(HERE, done=0, fooled=0, standing=0, queries=12)
    assert lines(capsys, told(begun, begun, 3), told(HERE, HERE, 100)) == [
        f"pgd:steps=3 on {MODEL}: 0 of 100 samples, 0 fooled, 0 robust, 12 queries, 0:03 so far",
        f"pgd:steps=3 on {MODEL}: 50 of 100 samples, 7 fooled, 31 robust, 4,321 queries, 30 samples a minute, "
        "about 1:40 left",
    ]


@pytest.mark.usefixtures("always")
def test_a_line_tells_of_the_cell_and_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    overall = Tally(total=400, done=100, fooled=20, standing=60, failed=50, queries=10_000)
    (said,) = lines(capsys, told(HERE, overall, 50, defence="anti_adversary"))
    assert said == (
        f"pgd:steps=3 on {MODEL} with anti_adversary: 50 of 100 samples, 7 fooled, 31 robust, 4,321 queries; "
        "in all 100 of 400 samples, 50 failed, 20 fooled, 60 robust, 10,000 queries, 2.0 samples a second, "
        "about 1:23 left"
    )


def test_time_left_shrinks_between_shards_and_begins_anew_with_another_evaluation() -> None:
    left, half = show._clock(), dataclasses.replace(HERE, done=0)
    assert left(told(half, half, 10)) is None
    assert left(told(HERE, HERE, 100)) == 100
    assert left(told(HERE, HERE, 130)) == 70
    assert left(told(HERE, HERE, 500)) == 0
    assert left(told(half, half, 1)) is None
    assert left(told(HERE, HERE, 10)) == 10


@pytest.mark.parametrize(
    ("done", "seconds", "rate"),
    [(3000, 2, "1,500 samples a second"), (3, 2, "1.5 samples a second"), (1, 20, "3.0 samples a minute"),
     (1, 1800, "2.0 samples an hour"), (0, 9, "0.0 samples an hour")],
)  # fmt: skip
def test_the_rate_has_a_unit_that_suits_it(done: int, seconds: float, rate: str) -> None:
    tally = Tally(total=5000, done=done)
    assert show._rate(told(tally, tally, seconds)) == rate


def test_lines_are_ten_seconds_apart_but_for_the_last(capsys: pytest.CaptureFixture[str]) -> None:
    over = dataclasses.replace(HERE, done=98, failed=2)
    (said,) = lines(capsys, told(HERE, HERE, 5), told(over, over, 49))
    assert said.endswith(
        "98 of 100 samples, 2 failed, 7 fooled, 31 robust, 4,321 queries, 2.0 samples a second, in 0:49"
    )


@pytest.mark.usefixtures("always")
def test_quiet_is_silent_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, told(HERE, HERE, 5), quiet=True) == []
