"""Every variant of every attack with two or three classes, one channel, images that are not square, float64, and a
sample with a gradient of exactly zero. Attacks that use gradients still break the other samples."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv.attacks import ATTACKS, parse
from antiadv.core.ball import Ball
from antiadv.core.threat import Access
from antiadv.defences import wrap
from tests.contract.test_attacks import reach
from tests.toys import Toy, halfspace

VARIANTS = [
    *("apgd:loss=dlr", "apgd:loss=dlr,targets=9", "apgd:eot=2", "fab:targets=9", "fab:restarts=2"),
    *("autoattack:version=plus", "autoattack:version=rand", "simba:basis=dct", "simba:rule=stp"),
    *("simba:basis=dct,rule=stp", "bandits:tile=2", "bandits:tile=16", "qeba:basis=dct"),
    *("transfer:attack=(apgd:loss=dlr,targets=9)", "bpda:attack=(fab:targets=9)", "smooth:attack=(apgd:loss=dlr)"),
    *("eot:attack=fab,samples=2", "eot:attack=rays,samples=2"),
]
ALIVE = torch.tensor([0, 2, 3])
EVERY = [(name, p) for name in (*ATTACKS, *VARIANTS) for p in sorted(parse(name).norms)]


class Strange(nn.Module):
    """The first classes of another; where the first pixel is bright, always the first, with no gradient at all."""

    def __init__(self, base: nn.Module, classes: int) -> None:
        super().__init__()
        self.base, self.classes = base, classes

    def forward(self, x: Tensor) -> Tensor:
        s = self.base(x)[:, : self.classes]
        bright = (x[:, 0, 0, 0] > 0.7)[:, None]
        return torch.where(bright, 3 * torch.eye(self.classes).to(s)[0].expand_as(s), s)


def strange(p: float, classes: int, dtype: torch.dtype) -> tuple[nn.Module, Toy]:
    """Four images of one channel, 3 × 5 pixels; the second has no gradient."""
    toy = halfspace(p, n=4, shape=(1, 3, 5))
    x = toy.x.to(dtype)
    x[1, 0, 0, 0] = 1
    y = toy.y.clone()
    y[1] = 0
    model = Strange(toy.model, classes).eval()
    return model, Toy(model, x, y, toy.distance)


@pytest.mark.parametrize(("name", "p"), EVERY)
@pytest.mark.parametrize(("classes", "dtype"), [(2, torch.float32), (3, torch.float64)])
def test_a_strange_model_is_survived(name: str, p: float, classes: int, dtype: torch.dtype) -> None:
    model, toy = strange(p, classes, dtype)
    ball = Ball(p, reach(name.partition(":")[0], p) * toy.distance)

    def attacked(rows: Tensor) -> antiadv.Outcome:
        return antiadv.attack(model, toy.x[rows], toy.y[rows], name, ball, queries=150, ids=rows)

    found, alone = attacked(torch.arange(4)), attacked(ALIVE)
    assert torch.isfinite(found.images).all()
    assert 0 <= found.images.min() <= found.images.max() <= 1
    assert found.images.dtype == dtype
    assert not found.fooled[1]
    assert [found.records[i] for i in ALIVE] == alone.records
    assert all(math.isfinite(r.distance) for r in found.records)
    if parse(name).access >= Access.GRADIENTS:
        assert found.fooled[ALIVE].all()


@pytest.mark.parametrize(
    "name", ["transfer", "bpda", "smooth", "pseudo_label", pytest.param("adaptive:steps=20", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("defence", ["anti_adversary:step_size=0.01", "rounded_scores", "small_noise"])
@pytest.mark.parametrize("classes", [2, 3])
def test_and_so_is_a_defence_before_it(name: str, defence: str, classes: int) -> None:
    for p in sorted(parse(name).norms):
        model, toy = strange(p, classes, torch.float32)
        found = antiadv.attack(wrap(defence, model), toy.x, toy.y, name, Ball(p, 1.3 * toy.distance), queries=2000)
        assert torch.isfinite(found.images).all()
        assert not found.fooled[1]
        if name.startswith("adaptive"):  # a part may stop at an image that other random numbers classify correctly
            assert found.fooled[ALIVE].all()
