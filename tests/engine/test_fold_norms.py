"""Batch norms folded into the convolutions before them: the same function, and only where it is the same."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from antiadv import models
from antiadv.engine.optimise import channels_last, optimised
from antiadv.engine.rewrites.fold_norms import fold_norms


def norm(channels: int = 4, **options: bool) -> nn.BatchNorm2d:
    """A norm as after training."""
    made = nn.BatchNorm2d(channels, **options)
    for t in (made.weight, made.bias, made.running_mean, made.running_var):
        if t is not None:
            t.data.copy_(0.5 + torch.rand(channels))
    return made


def folded(net: nn.Module, x: Tensor) -> tuple[nn.Module, int]:
    twin = copy.deepcopy(net).requires_grad_(False)
    return twin, fold_norms(twin, x[:1])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_a_norm_behind_a_convolution_is_folded_and_nothing_changes(bias: bool, affine: bool) -> None:
    torch.manual_seed(0)
    net = (
        nn.Sequential(nn.Conv2d(3, 4, 3, bias=bias), norm(affine=affine), nn.ReLU(), nn.Conv2d(4, 2, 1)).double().eval()
    )
    x = torch.rand(5, 3, 6, 6, dtype=torch.float64)
    twin, count = folded(net, x)
    assert count == 1
    torch.testing.assert_close(twin(x), net(x), rtol=1e-10, atol=1e-10)
    twin[1].running_mean += 9  # type: ignore[index]
    torch.testing.assert_close(twin(x), net(x), rtol=1e-10, atol=1e-10)  # it is not asked any more


class Twice(nn.Module):
    """The output of one convolution is used twice, that of another one once."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.na, self.nb = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3), norm(), norm()

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        s: Tensor = (self.na(h).relu() + h + self.nb(self.b(x))).mean((2, 3))
        return s


def test_an_output_that_goes_elsewhere_too_is_left_alone_and_others_are_not() -> None:
    torch.manual_seed(0)
    net, x = Twice().eval(), torch.rand(5, 3, 6, 6)
    twin, count = folded(net, x)
    assert count == 1
    assert twin.get_submodule("a").weight.equal(net.a.weight)  # type: ignore[operator]
    assert not twin.get_submodule("b").weight.equal(net.b.weight)  # type: ignore[operator]
    assert "forward" not in vars(twin.get_submodule("na"))
    torch.testing.assert_close(twin(x), net(x), rtol=1e-5, atol=1e-5)


def test_what_is_asked_twice_or_still_learns_is_left_alone() -> None:
    torch.manual_seed(0)
    conv, one, x = nn.Conv2d(3, 3, 3, padding=1), norm(3), torch.rand(2, 3, 6, 6)
    shared = nn.Sequential(conv, one, conv, one).eval()
    assert folded(shared, x)[1] == 0
    learning = nn.Sequential(nn.Conv2d(3, 4, 3), norm()).eval()
    learning[1].train()
    assert folded(learning, x)[1] == 0
    without = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)).eval()
    assert folded(without, x)[1] == 0
    assert folded(nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3)), norm()).eval(), x)[1] == 0


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch, which has another weight norm
@pytest.mark.parametrize("made", ["weight_norm", "spectral_norm", "pruned", "bias"])
def test_weights_that_are_made_anew_at_every_call_are_left_alone(made: str) -> None:
    """Weights computed before the call, by a hook or at every access cannot be replaced."""
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 4, 3)
    if made == "pruned":
        prune.random_unstructured(conv, "weight", 0.3)
    elif made == "bias":
        parametrize.register_parametrization(conv, "bias", nn.Tanh())
    else:
        getattr(nn.utils, made)(conv)
    net, x = nn.Sequential(conv, norm()).eval(), torch.rand(2, 3, 6, 6)
    with torch.no_grad():
        want = net(x)  # a weight that a hook made with gradients cannot be copied
    twin, count = folded(net, x)
    assert count == 0
    assert twin(x).equal(want)


def test_a_network_that_answers_with_more_than_scores_is_left_alone() -> None:
    class Twofold(nn.Sequential):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            s = super().forward(x)  # type: ignore[no-untyped-call]
            return s, s

    net, x = Twofold(nn.Conv2d(3, 4, 3), norm()).eval(), torch.rand(2, 3, 6, 6)
    twin, count = folded(net, x)
    assert count == 0
    assert twin(x)[0].equal(net(x)[0])


def test_a_network_that_fails_alone_is_left_alone() -> None:
    class Picky(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            if len(x) == 1:
                raise ValueError("one image is no batch")
            s: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
            return s

    net, x = Picky(nn.Conv2d(3, 4, 3), norm()).eval(), torch.rand(2, 3, 6, 6)
    twin, count = folded(net, x)
    assert count == 0
    assert twin(x).equal(net(x))


@pytest.mark.parametrize(("name", "norms"), [("compact:trades", 8), ("resnet50", 53), ("wrn16-4:trades", 7)])
def test_networks_of_the_house(name: str, norms: int) -> None:
    """All norms of a ResNet; in a pre-activation network, those inside a block."""
    net = models.load(name) if ":" in name else models.build(name).eval()
    x = torch.rand(2, 3, 32, 32)
    twin = channels_last(net)
    assert fold_norms(twin, x[:1]) == norms
    with torch.no_grad():
        torch.testing.assert_close(twin(x), net(x), rtol=1e-4, atol=1e-4)


def test_hooks_go_on_counting_and_the_network_itself_is_left_as_it_was() -> None:
    net, x, seen = models.load("compact:trades"), torch.rand(2, 3, 32, 32), list[str]()
    before = {name: t.clone() for name, t in net.state_dict().items()}
    twin = optimised(net, "float32", False, lambda net: True, x[:1])
    assert twin is not net
    for name in ("layer1.0.conv1", "layer1.0.bn2"):
        net.get_submodule(name).register_forward_hook(lambda *_, name=name: seen.append(name))
    twin(x)
    assert seen == ["layer1.0.conv1", "layer1.0.bn2"]
    assert all(t.equal(before[name]) for name, t in net.state_dict().items())
    assert all("forward" not in vars(m) for m in net.modules())


def test_a_network_that_rolls_dice_is_not_folded() -> None:
    net = models.load("compact:self_ensemble")
    twin = optimised(net, "float32", False, lambda net: True, torch.rand(1, 3, 32, 32))
    assert all("forward" not in vars(m) for m in twin.modules())
