"""A gated layer in the fast engine: the host selects samples between two requests, and only these pay for the steps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv import defences
from antiadv.core.defence import Defence, Stages
from antiadv.core.engine import Eager
from antiadv.core.losses import ce
from antiadv.engine.fast import Fast
from antiadv.engine.meter import Meter
from tests.engine.test_fast import DEVICES, close, cuda, images


def gated(net: nn.Module, x: Tensor, device: str) -> antiadv.AntiAdversary:
    """The layer with a gate in the middle of these images, between two that are not too close to it."""
    p = net(x).detach().softmax(1).amax(1).sort().values
    middle = p[len(p) // 4 : -len(p) // 4]
    wide = int((middle[1:] - middle[:-1]).argmax())
    return antiadv.AntiAdversary(net, step_size=0.05, gate=float(middle[wide : wide + 2].mean())).to(device)


def sharp() -> nn.Module:
    """A network whose confidences lie far apart."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = nn.Linear(32, 5)
        body = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
    with torch.no_grad():
        head.weight *= 20
    return nn.Sequential(*body, head).eval()


HOW = [
    ("cpu", "float32", False),
    ("cpu", "mixed", False),
    pytest.param("cpu", "float32", True, marks=pytest.mark.filterwarnings("ignore::DeprecationWarning")),
    *(pytest.param("cuda", p, False, marks=cuda) for p in ("float32", "tf32", "half", "mixed")),
    pytest.param("cuda", "half", True, marks=[cuda, pytest.mark.slow]),
]


@pytest.mark.parametrize(("device", "precision", "compiled"), HOW)
def test_a_gated_layer_answers_alike_and_only_the_unsure_pay(device: str, precision: str, compiled: bool) -> None:
    net = sharp().to(device)
    x, y = images(40, device)
    g = gated(net, x, device)
    on = g.unsure(net(x))
    unsure, n = int(on.sum()), len(x)
    assert 2 < unsure < n - 2
    near = {"float32": 1e-4, "tf32": 0.02, "half": 0.02, "mixed": 0.2}[precision]
    fast, plain = Fast(batch=64, precision=precision, compiled=compiled), Eager()
    direct = device == "cpu" and not compiled  # the module itself selects its samples
    for _ in range(2):  # captured, then replayed
        with Meter(net) as meter:
            s = fast.scores(g, x)
        if precision != "mixed":  # which may send a sample the other way
            assert (meter.forwards, meter.backwards) == (n + 3 * unsure, 2 * unsure)
        torch.testing.assert_close(s[~on], plain.scores(net, x)[~on], rtol=near, atol=near)
        with Meter(net) as meter:
            t, slope = fast.gradient(g, x, ce, y)
        if precision != "mixed":
            passes = (n + 3 * unsure, n + 3 * unsure) if direct else (n + (n - unsure) + 3 * unsure, n + 2 * unsure)
            assert (meter.forwards, meter.backwards) == passes
        if precision == "float32":
            close((s, t, slope), (plain.scores(g, x), *plain.gradient(g, x, ce, y)), "cuda")
        if precision == "float32" and not compiled:
            close(fast.jacobian(g, x), plain.jacobian(g, x), "cuda")
        assert s.dtype == t.dtype == slope.dtype == torch.float32
    assert fast.scores(g, x[:0]).shape == (0, 5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rows", ["some", "unsure", "sure"])
def test_stages_select_put_back_and_count_any_mixture(device: str, rows: str) -> None:
    """On a CPU the requests in stages are made by hand: only graphs and compiled code need them."""
    net = sharp().to(device)
    x, y = images(45, device)
    g = gated(net, x, device)
    on = g.unsure(net(x))
    x, y = {"some": (x, y), "unsure": (x[on], y[on]), "sure": (x[~on], y[~on])}[rows]
    on = g.unsure(net(x))
    fast, plain = Staged(batch=16, plain=True), Eager(batch=16)
    for _ in range(2):
        with Meter(net) as meter:
            close(fast.scores(g, x), plain.scores(g, x), "cuda")
        direct = meter.forwards
        with Meter(net) as meter:
            fast.scores(g, x)
        assert meter.forwards == len(x) + 3 * int(on.sum()) < direct
        close(fast.gradient(g, x, ce, y), plain.gradient(g, x, ce, y), "cuda")
        close(fast.jacobian(g, x), plain.jacobian(g, x), "cuda")


class Staged(Fast):
    """Makes every request in stages."""

    def _stages_of(self, model: nn.Module, z: Tensor) -> Stages | None:
        return model.stages() if isinstance(model, Defence) else None


@cuda
def test_a_gated_layer_is_captured_and_the_host_selects_in_between() -> None:
    net = sharp().cuda()
    x, y = images(40, "cuda")
    g = gated(net, x, "cuda")
    fast = Fast(batch=16)
    for _ in range(2):
        fast.scores(g, x)
        fast.gradient(g, x, ce, y)
    stages = fast._stages[g]
    assert stages is not None
    assert g not in fast._graphs.by_model
    for model in (net, stages.second):
        assert all(graph is not None for graph in fast._graphs.by_model[model].values())


@pytest.mark.parametrize("device", DEVICES)
def test_a_gated_layer_inside_another_defence_is_counted_as_it_runs(device: str) -> None:
    """The host is needed in the middle of such a model, so no graph holds it."""
    net = sharp().to(device)
    x, _ = images(16, device)
    g = gated(net, x, device)
    outer, unsure = defences.RoundedScores(g), int(g.unsure(net(x)).sum())
    fast = Fast(batch=16)
    for _ in range(2):
        with Meter(net) as meter:
            close(fast.scores(outer, x), Eager().scores(outer, x), "cuda")
        assert 0 < unsure < 16
        assert meter.forwards == 2 * (16 + 3 * unsure), "once by each engine"


@pytest.mark.parametrize("device", DEVICES)
def test_a_gated_layer_is_served_and_survives_a_shortage_of_memory(device: str) -> None:
    net = sharp().to(device)
    x, _ = images(40, device)
    g = gated(net, x, device)
    served = antiadv.Replayed(g)
    for few in (x, x[:1], x[5:12]):
        close(served(few), g(few).detach(), "cuda")

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.training = net, False

        def forward(self, x: Tensor) -> Tensor:
            if len(x) > 6:
                raise torch.OutOfMemoryError("no more memory")
            s: Tensor = self.net(x)
            return s

    fast = Staged(batch=32, plain=True)
    small = antiadv.AntiAdversary(Small(), step_size=0.05, gate=g.gate)
    close(fast.scores(small, x), g(x).detach(), "cuda")
    assert fast.batch == 4
