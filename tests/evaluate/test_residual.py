"""Norms at the end of residual stages, folded into what is added there: the same function, and only where it is."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from antiadv import models
from antiadv.evaluate.folded import fold_norms
from antiadv.evaluate.residual import fold_stages
from tests.evaluate.test_folded import norm


class Net(nn.Module):
    """Two blocks before their activation, and a norm behind them; `way` says how it goes on from the sum."""

    def __init__(self, way: Callable[[Net, Tensor, Tensor], Tensor], bias: bool = False, affine: bool = True) -> None:
        torch.manual_seed(0)
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1, bias=bias)
        self.one, self.two = (nn.Conv2d(4, 4, 3, padding=1, bias=bias) for _ in range(2))
        self.n1, self.n2, self.end = norm(affine=affine), norm(affine=affine), norm(affine=affine)
        self.other, self.way = nn.Conv2d(4, 2, 1), way
        self.double().eval().requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        h = h + self.one(self.n1(h).relu())
        c = self.two(self.n2(h).relu())
        return self.other(self.way(self, h, c)).mean((2, 3))


def plainly(net: Net, h: Tensor, c: Tensor) -> Tensor:
    return net.end(h + c).relu()


def in_place(net: Net, h: Tensor, c: Tensor) -> Tensor:
    c += h
    return net.end(c).relu()


def images() -> Tensor:
    return torch.rand(5, 3, 6, 6, dtype=torch.float64)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("way", [plainly, in_place])
def test_the_norm_behind_a_sum_is_folded_and_nothing_changes(way: Callable[..., Tensor], bias: bool, affine: bool):
    net, x = Net(way, bias, affine), images()
    twin = copy.deepcopy(net)
    assert fold_stages(twin, x[:1]) == 1
    torch.testing.assert_close(twin(x), net(x), rtol=1e-10, atol=1e-10)
    twin.end.running_mean += 9  # type: ignore[operator]
    torch.testing.assert_close(twin(x), net(x), rtol=1e-10, atol=1e-10)  # it is not asked any more


def twice(net: Net, h: Tensor, c: Tensor) -> Tensor:
    return net.end(h + c).relu() + net.end(h)


def looked_at(net: Net, h: Tensor, c: Tensor) -> Tensor:
    return net.end(h + c).relu() + h


def two_ways(net: Net, h: Tensor, c: Tensor) -> Tensor:
    s = h + c
    return net.end(s).relu() + s


def scaled(net: Net, h: Tensor, c: Tensor) -> Tensor:
    return net.end(torch.add(h, c, alpha=2)).relu()


def spread(net: Net, h: Tensor, c: Tensor) -> Tensor:
    return net.end(h + c.mean((2, 3), keepdim=True)).relu()


def squared(net: Net, h: Tensor, c: Tensor) -> Tensor:
    return net.end(h * h + c).relu()


def no_convolution_last(net: Net, h: Tensor, c: Tensor) -> Tensor:
    return net.end((h + c) + (h + c)).relu()


def written_into(net: Net, h: Tensor, c: Tensor) -> Tensor:
    s = h + c
    s.view(-1)[0] = 1
    return net.end(s).relu()


def asked_again(net: Net, h: Tensor, c: Tensor) -> Tensor:
    return net.end(h + c).relu() + net.two(h)


@pytest.mark.parametrize(
    "way",
    [twice, looked_at, two_ways, scaled, spread, squared, no_convolution_last, written_into, asked_again],
    ids=lambda way: way.__name__,
)
def test_a_sum_that_anything_else_has_to_do_with_is_left_alone(way: Callable[..., Tensor]):
    net, x = Net(way), images()
    twin, before = copy.deepcopy(net), {k: v.clone() for k, v in net.state_dict().items()}
    assert fold_stages(twin, x[:1]) == 0
    assert all(v.equal(before[k]) for k, v in twin.state_dict().items())
    assert twin(x).equal(net(x))


def test_weights_in_two_places_are_left_alone():
    net, x = Net(plainly), images()
    net.other = nn.Conv2d(4, 4, 3).double()
    net.other.weight = net.two.weight
    assert fold_stages(copy.deepcopy(net), x[:1]) == 0


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("name", ["n1", "n2"])
def test_norms_whose_weights_are_made_anew_at_every_call_are_left_alone(name: str, pruned: bool):
    net, x = Net(plainly), images()
    if pruned:
        prune.random_unstructured(net.get_submodule(name), "weight", 0.3)
    else:
        parametrize.register_parametrization(net.get_submodule(name), "weight", nn.Tanh())
    net.requires_grad_(False)
    want = net(x)
    twin = copy.deepcopy(net)
    assert fold_stages(twin, x[:1]) == 0
    assert twin(x).equal(want)


def test_a_network_that_answers_with_more_than_scores_is_left_alone():
    class Twofold(Net):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            s = super().forward(x)
            return s, s

    net, x = Twofold(plainly), images()
    twin = copy.deepcopy(net)
    assert fold_stages(twin, x[:1]) == 0
    assert twin(x)[0].equal(net(x)[0])


def test_a_norm_that_lets_a_channel_vanish_is_left_alone():
    net, x = Net(plainly), images()
    net.end.weight.data[1] = 1e-4
    assert fold_stages(copy.deepcopy(net), x[:1]) == 0


def test_what_answers_otherwise_afterwards_is_put_back():
    """One network turns its sum over: a look at the order of its values, which no scaling keeps."""

    class Ranked(nn.BatchNorm2d):
        def forward(self, input: Tensor) -> Tensor:
            return super().forward(input) + input.argmax(1, keepdim=True)

    net, x = Net(plainly), images()
    ranked = Ranked(4).double().eval().requires_grad_(False)
    ranked.load_state_dict(net.n2.state_dict())
    net.n2 = ranked
    twin = copy.deepcopy(net)
    assert fold_stages(twin, x[:1]) == 0
    assert twin(x).equal(net(x))
    assert "forward" not in vars(twin.end)


def test_a_network_that_cannot_be_asked_alone_is_left_alone():
    class Picky(Net):
        def forward(self, x: Tensor) -> Tensor:
            if len(x) == 1:
                raise ValueError("two at least")
            return super().forward(x)

    assert fold_stages(Picky(plainly), images()[:1]) == 0


@pytest.mark.parametrize(
    ("name", "norms", "stages"), [("compact:trades", 8, 4), ("wrn16-4:trades", 7, 3), ("resnet18:standard", 20, 0)]
)
def test_networks_of_the_house(name: str, norms: int, stages: int):
    net = models.load(name)
    twin, x = copy.deepcopy(net).requires_grad_(False), torch.rand(3, 3, 32, 32)
    assert fold_norms(twin, x[:1]) == norms
    assert fold_stages(twin, x[:1]) == stages
    torch.testing.assert_close(twin(x), net(x), rtol=1e-4, atol=1e-5)
