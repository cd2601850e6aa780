"""Losses: per sample, and the margin's sign is the decision."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antiadv.core.losses import ce, dlr, margin, negated


def scores(seed: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    dice = torch.Generator().manual_seed(seed)
    return torch.randn((16, classes), generator=dice), torch.randint(classes, (16,), generator=dice)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 9999), st.integers(2, 12))
def test_the_margins_sign_is_the_decision(seed: int, classes: int) -> None:
    s, y = scores(seed, classes)
    assert torch.equal(margin(s, y) > 0, s.argmax(1) == y)
    assert torch.equal(dlr(s, y) < 0, s.argmax(1) == y)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 9999), st.integers(2, 12))
def test_each_sample_stands_alone(seed: int, classes: int) -> None:
    s, y = scores(seed, classes)
    for loss in (ce, margin, dlr):
        alone = torch.cat([loss(a[None], b[None]) for a, b in zip(s, y, strict=True)])
        assert torch.equal(loss(s, y), alone)


def test_known_values() -> None:
    s, y = torch.tensor([[4.0, 1.0, 2.0, 0.0]]), torch.tensor([0])
    assert margin(s, y).item() == 2.0
    assert abs(dlr(s, y).item() + 2 / 3) < 1e-6  # −(4 − 2) / (4 − 1)
    assert abs(ce(s, y).item() - torch.log1p(torch.exp(torch.tensor([-3.0, -2.0, -4.0])).sum()).item()) < 1e-6
    assert torch.equal(dlr(s * 10, y), dlr(s, y))


def test_negated_is_one_object_per_loss() -> None:
    s, y = scores(0, 5)
    assert negated(ce) is negated(ce)
    assert torch.equal(negated(ce)(s, y), -ce(s, y))
