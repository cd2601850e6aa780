"""Fast minimum norm is compared with foolbox: distances after equally many steps.

foolbox's L2 version never projects onto its ball (version 3.3.4), so it is easily beaten. In Linf both do the same.
"""

from __future__ import annotations

import math
import warnings

import pytest
import torch

import antiadv
from antiadv.core.ball import Ball

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    import foolbox

pytestmark = pytest.mark.slow

STEPS, ALLOWED = 60, 1.03


@pytest.mark.parametrize(("p", "theirs"), [(2, "L2FMNAttack"), (math.inf, "LInfFMNAttack")])
def test_the_median_distance_is_not_worse(p: float, theirs: str) -> None:
    data, net = antiadv.data.load("cifar10"), antiadv.models.load("compact:trades")
    x, y = data.images(range(24)), data.labels(range(24))
    right = net(x).argmax(1) == y
    x, y, ball = x[right], y[right], Ball(p, math.inf)
    model = foolbox.PyTorchModel(net, bounds=(0, 1), device="cpu")
    z = getattr(foolbox.attacks, theirs)(steps=STEPS).run(model, x, foolbox.criteria.Misclassification(y))
    ours = antiadv.attack(net, x, y, f"minimum_norm:steps={STEPS}", ball)
    assert ours.fooled.all()
    assert (net(z).argmax(1) != y).all()
    distance = torch.tensor([r.distance for r in ours.records]).double()
    assert distance.median() <= ALLOWED * ball.distance(x, z).median()
