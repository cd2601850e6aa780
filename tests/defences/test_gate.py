"""The gated layer: the steps run for unsure samples alone, and the paper's layer is the gate of 1."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import antiadv
from antiadv import AntiAdversary, defences
from antiadv.core import spec
from antiadv.core.engine import Eager
from antiadv.core.errors import BadInput
from antiadv.core.losses import ce
from antiadv.engine.meter import Meter
from antiadv.evaluation import Store
from antiadv.reporting.cost import cost
from tests.engine.probes import same
from tests.toys import halfspace, small_net

RESULTS = Path(__file__).resolve().parents[2] / "results"
K = 2
GATE = 0.6


class Exact(nn.Module):
    """Scores whose bits do not depend on the batch: every sum is over the pixels of one sample, in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn((4, 3, 8, 8), generator=torch.Generator().manual_seed(0)))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        u = (x - 0.5)[:, None] * self.w.to(x)
        return (u + u.square()).flatten(2).double().sum(2).to(x) / 4


def images(n: int = 24) -> Tensor:
    return torch.rand((n, 3, 8, 8), generator=torch.Generator().manual_seed(1))


def parts(net: nn.Module, x: Tensor, gate: float = GATE) -> tuple[Tensor, Tensor]:
    """The rows that a gate sends through the steps, and the others. Both kinds must be there to tell anything."""
    on = net(x).softmax(1).amax(1) <= gate
    assert 2 < on.sum() < len(x) - 2
    return on.nonzero().flatten(), (~on).nonzero().flatten()


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_gate_of_one_is_the_layer_of_the_paper(steps: int, clip: bool) -> None:
    net, x = small_net(), images()
    layer, gated = AntiAdversary(net, steps, 0.1, clip), AntiAdversary(net, steps, 0.1, clip, gate=1)
    assert torch.equal(gated(x), layer(x))
    assert gated.stages() is None
    assert spec.text(gated) == spec.text(layer)
    assert defences.full_text(spec.text(gated)) == defences.full_text(spec.text(layer))


@pytest.mark.parametrize("clip", [False, True])
def test_unsure_samples_get_the_layer_and_the_others_the_base(clip: bool) -> None:
    net, x = Exact(), images()
    on, off = parts(net, x)
    s = AntiAdversary(net, K, 0.1, clip, gate=GATE)(x)
    assert same(s[on], AntiAdversary(net, K, 0.1, clip)(x[on]))
    assert same(s[off], net(x[off]))


@pytest.mark.parametrize("gate", [1e-3, GATE, 0.9999])
def test_a_sample_does_not_depend_on_its_neighbours(gate: float) -> None:
    layer, x = AntiAdversary(Exact(), K, 0.1, gate=gate), images()
    assert torch.equal(layer(x), torch.cat([layer(row[None]) for row in x]))


def passes(layer: AntiAdversary, x: Tensor) -> tuple[int, int]:
    with Meter(layer.base) as meter, torch.no_grad():
        layer(x)
    return meter.forwards, meter.backwards


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_sure_samples_cost_one_pass_and_unsure_ones_what_their_steps_cost(steps: int) -> None:
    net, x = Exact(), images()
    on, off = parts(net, x)
    layer = AntiAdversary(net, steps, 0.1, gate=GATE)
    assert passes(layer, x[off]) == (len(off), 0)
    assert passes(layer, x[on]) == (len(on) * (steps + 1), len(on) * steps), "the first step shares the first pass"
    assert passes(layer, x[on[:1]]) == (steps + 1, steps)
    assert passes(layer, x) == (len(x) + len(on) * (steps + 1), len(on) * steps)
    told = cost(net, layer, x, repeats=1)
    assert told.forwards == pytest.approx(1 + len(on) * (steps + 1) / len(x))


@pytest.mark.parametrize("clip", [False, True])
def test_the_gradient_is_that_of_whoever_answers(clip: bool) -> None:
    net, x = Exact(), images()
    on, off = parts(net, x)
    y = net(x).argmax(1)
    for rows in (on, off, torch.arange(len(x))):  # all of one kind, then both
        s, g = Eager().gradient(AntiAdversary(net, K, 0.1, clip, gate=GATE), x[rows], ce, y[rows])
        inner, outer = (torch.isin(rows, part) for part in (on, off))
        for mine, model in ((inner, AntiAdversary(net, K, 0.1, clip)), (outer, net)):
            if mine.any():
                expected = Eager().gradient(model, x[rows][mine], ce, y[rows][mine])
                assert same(s[mine], expected[0])
                assert same(g[mine], expected[1])


@pytest.mark.parametrize("frozen", [True, False])
def test_scores_carry_gradients_where_those_of_the_base_do(frozen: bool) -> None:
    net, x = Exact().requires_grad_(not frozen), images()
    layer = AntiAdversary(net, K, 0.1, gate=GATE)
    for rows in (*parts(net, x), torch.arange(len(x))):
        assert layer(x[rows]).requires_grad is not frozen
        with torch.no_grad():
            assert not layer(x[rows]).requires_grad
        with torch.inference_mode():
            assert torch.equal(layer(x[rows].clone()), layer(x[rows]))
    assert torch.equal(x, images())


def test_the_compiled_form_equals_the_eager_one() -> None:
    net, x = Exact().requires_grad_(False), images()
    parts(net, x)
    layer = AntiAdversary(net, K, 0.1, gate=GATE)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    found, plain = x.clone().requires_grad_(), x.clone().requires_grad_()
    s, due = compiled(found), layer(plain)
    torch.testing.assert_close(s, due)
    for scores in (s, due):
        F.cross_entropy(scores, torch.zeros(len(x), dtype=torch.long)).backward()
    torch.testing.assert_close(found.grad, plain.grad)


@pytest.mark.parametrize(("gate", "steps"), [(1.0, 2), (GATE, 2), (GATE, 0)])
def test_the_form_without_branches_also_returns_the_scores_of_the_base(gate: float, steps: int) -> None:
    net, x = Exact(), images()
    layer = AntiAdversary(net, steps, 0.1, gate=gate)
    with Meter(net) as meter, torch.no_grad():
        s, base = layer.branch_free(x)
    assert (meter.forwards, meter.backwards) == (len(x) * (steps + 1), len(x) * steps), "one pass gives both"
    assert torch.equal(s, layer(x))
    assert torch.equal(base, net(x))
    traced = make_fx(lambda z: layer.branch_free(z), tracing_mode="symbolic", _allow_non_fake_inputs=True)(x)
    few = x[:7]  # the trace holds for any number of images
    for found, asked in zip(traced(few), layer.branch_free(few), strict=True):
        torch.testing.assert_close(found, asked)


def test_the_surrogate_follows_the_gate() -> None:
    net, x = Exact(), images()
    on, off = parts(net, x)
    for wanted in (False, True):
        z = x.clone().requires_grad_(wanted)
        s = AntiAdversary(net, K, 0.1, gate=GATE).surrogate()(z)
        assert torch.equal(s[off], net(x[off]))
        torch.testing.assert_close(s[on], AntiAdversary(net, K, 0.1).surrogate()(x[on]))
    sharp = AntiAdversary(net, K, 0.1, gate=GATE).surrogate(kappa=1e9)(x)
    torch.testing.assert_close(sharp, AntiAdversary(net, K, 0.1, gate=GATE)(x))


@pytest.mark.parametrize("gate", [0, -0.1, 1.01, float("nan"), True, "high", None])
def test_a_gate_is_a_number_above_zero_and_at_most_one(gate: object) -> None:
    with pytest.raises(BadInput, match=r"\(0, 1\]"):
        AntiAdversary(small_net(), gate=gate)  # type: ignore[arg-type]


def test_has_a_text_copies_and_pickles() -> None:
    g, x = defences.wrap("anti_adversary:gate=0.6,step_size=0.1", Exact()), images()
    assert spec.text(g) == "anti_adversary:step_size=0.1,gate=0.6"
    assert "gate=0.6" in defences.full_text(spec.text(g))
    for other in (copy.deepcopy(g), pickle.loads(pickle.dumps(g))):
        assert torch.equal(other(x), g(x))
    for n in (0, 1, 3):
        assert g(images(n)).shape == (n, 4)
    outcome = antiadv.attack(g, x, g(x).argmax(1), "smooth:attack=(pgd:steps=2)", antiadv.Linf(8 / 255))
    assert len(outcome.records) == len(x)


def test_cells_stored_before_there_was_a_gate_keep_their_keys() -> None:
    told = [(folder, folder.read_text()) for folder in sorted(RESULTS.glob("*/cell.json"))]
    keys = {folder.parent.name for folder, text in told if "anti_adversary" in json.loads(text)["cell"]["defence"]}
    found = {cell.key for cell in Store(RESULTS).cells() if cell.defence.startswith("anti_adversary")}
    assert len(keys) > 50
    assert found == keys


def test_a_base_without_gradients_is_refused_whoever_answers() -> None:
    class Steps(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x.flatten(1)[:, :3] * 9).round().detach()

    with pytest.raises(BadInput, match="gradient"):
        AntiAdversary(Steps().eval(), gate=0.01)(images())


class Softmax(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = small_net()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self.net(x).softmax(1)
        return s


@pytest.mark.parametrize("name", ["anti_adversary", "anti_adversary:gate=0.9", "small_noise", "rounded_scores"])
def test_probabilities_are_refused_at_the_first_call(name: str) -> None:
    g = defences.wrap(name, Softmax())
    assert g(images(0)).shape[0] == 0, "nothing to read yet"
    for _ in range(2):
        with pytest.raises(BadInput, match=r"logits.*probabilities"):
            g(images())
    with pytest.raises(BadInput, match=r"logits.*probabilities"):
        antiadv.Replayed(g)(images())


def test_numbers_are_read_once_and_not_while_tracing() -> None:
    seen: list[Tensor] = []
    g, x = AntiAdversary(halfspace(2).model), halfspace(2).x
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("antiadv.core.defence.check_logits", seen.append)
        torch.compile(g, backend="aot_eager")(x)
        make_fx(g, tracing_mode="symbolic", _allow_non_fake_inputs=True)(x)
        assert not seen
        for _ in range(3):
            g(x)
        assert len(seen) == 1
