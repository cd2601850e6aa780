"""Which samples are rerun with the judge's engine. What an attack asks during a search is in `test_oracle.py`."""

from __future__ import annotations

import math

import pytest
import torch

from antiadv.core.ball import L2, Ball, Linf
from antiadv.core.confirm import samples_to_rerun

YES, NO = torch.tensor([True]), torch.tensor([False])
x = torch.full((1, 3, 2, 2), 0.5)


def reruns(ball: Ball = Linf(0.1), by: float = 0.1, **change: torch.Tensor | bool) -> bool:
    told = {"minimal": False, "by_search": YES, "by_judge": NO, "rejected": NO} | change
    return samples_to_rerun(x, x + by, ball, **told).tolist() == [0]  # type: ignore[arg-type]


def test_a_sample_is_rerun_where_only_the_search_sees_a_success() -> None:
    assert reruns()
    assert not reruns(by_search=NO)
    assert not reruns(by_judge=YES)
    assert not reruns(by_search=NO, by_judge=YES)


@pytest.mark.parametrize("minimal", [False, True])
def test_outside_the_ball_or_after_a_rejection_only_a_minimal_attack_is_rerun(minimal: bool) -> None:
    assert reruns(by=0.2, minimal=minimal) is minimal
    assert reruns(rejected=YES, minimal=minimal) is minimal
    assert not reruns(by_judge=YES, minimal=minimal)


def test_rounding_and_a_missing_radius_leave_an_image_inside() -> None:
    assert reruns(by=0.1 + 5e-7)
    assert not reruns(by=0.1 + 5e-6)
    assert reruns(L2(math.inf), by=0.4)


def test_the_places_are_those_of_the_samples() -> None:
    images, search = torch.rand(5, 3, 2, 2), torch.tensor([True, False, True, True, True])
    judge, rejected = torch.tensor([0, 0, 1, 0, 0]).bool(), torch.tensor([0, 0, 0, 1, 0]).bool()
    assert samples_to_rerun(images, images, Linf(0.1), False, search, judge, rejected).tolist() == [0, 4]
