"""The PyTorch backend answers as the module does, and knows the bare network's scores where the defence does."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from antiadv import AntiAdversary
from antiadv.core.defence import Stages
from antiadv.core.errors import BadInput
from antiadv.serving.source import Source
from antiadv.serving.torch_backend import TorchBackend
from tests.serving.nets import CLASSES, SHAPE, bare, network, pictures

CPU = torch.device("cpu")
X = pictures(6)


class Gated(AntiAdversary):
    """The layer for images whose first pixel is above a half."""

    def stages(self) -> Stages:
        median = self.base(torch.from_numpy(X))[:, 0].detach().median()
        return Stages(self.base, lambda s: s[:, 0] > median, AntiAdversary(self.base, self.steps, self.step_size))


def test_answers_and_facts_are_those_of_the_module() -> None:
    model = network()
    backend = TorchBackend(model, SHAPE, CPU)
    assert (backend.kind, backend.shape, backend.classes) == ("eager", SHAPE, CLASSES)
    found = backend.run(X)
    assert found.scores.dtype == np.float32
    assert np.allclose(found.scores, model(torch.from_numpy(X)).detach().numpy(), atol=1e-6)
    assert all(p.requires_grad for p in model.parameters())  # the caller's module is not changed


def test_a_bare_network_has_no_other_scores() -> None:
    assert TorchBackend(bare(), SHAPE, CPU).run(X).base_scores is None


def test_a_gated_layer_tells_the_scores_of_the_bare_network() -> None:
    gated = Gated(bare(), 1, 0.1)
    found = TorchBackend(gated, SHAPE, CPU).run(X)
    base = bare()(torch.from_numpy(X)).detach().numpy()
    layer = AntiAdversary(bare(), 1, 0.1)(torch.from_numpy(X)).detach().numpy()
    assert found.base_scores is not None
    assert np.allclose(found.base_scores, base, atol=1e-6)
    on = base[:, 0] > np.sort(base[:, 0])[2]
    assert on.sum() == 3
    assert np.allclose(found.scores[on], layer[on], atol=1e-6)
    assert np.array_equal(found.scores[~on], found.base_scores[~on])


def test_the_second_stage_of_a_gated_layer_meets_a_few_sizes() -> None:
    x, met = pictures(18), list[int]()

    class Ninth(AntiAdversary):
        """The layer for the first nine images."""

        def stages(self) -> Stages:
            layer = AntiAdversary(self.base, self.steps, self.step_size)
            layer.register_forward_pre_hook(lambda _, inputs: met.append(len(inputs[0])))
            return Stages(self.base, lambda s: torch.arange(len(s)) < 9, layer)

    found = TorchBackend(Ninth(bare(), 1, 0.1), SHAPE, CPU).run(x).scores
    assert met == [10]  # nine images, filled up
    layer = AntiAdversary(bare(), 1, 0.1)(torch.from_numpy(x)).detach().numpy()
    assert np.allclose(found[:9], layer[:9], atol=1e-6)
    assert np.allclose(found[9:], bare()(torch.from_numpy(x)).detach().numpy()[9:], atol=1e-6)


def test_graphs_need_cuda_and_images_must_fit() -> None:
    with pytest.raises(BadInput, match="CUDA"):
        TorchBackend(bare(), SHAPE, CPU, captured=True)
    for model in (bare(), network()):
        with pytest.raises(BadInput, match=r"shape 3,9,9: mat1 .* another shape, give that as --shape\.$"):
            TorchBackend(model, (3, 9, 9), CPU)


def test_probabilities_are_not_blamed_on_the_shape() -> None:
    with pytest.raises(BadInput, match=r"found probabilities .* Remove the softmax\.$"):
        TorchBackend(AntiAdversary(nn.Sequential(bare(), nn.Softmax(1)).eval(), 1, 0.1), SHAPE, CPU)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_captured_graphs_answer_as_eager_does() -> None:
    graph = TorchBackend(network(), SHAPE, torch.device("cuda"), captured=True)
    assert graph.kind == "graph"
    assert np.allclose(graph.run(X).scores, TorchBackend(network(), SHAPE, CPU).run(X).scores, atol=1e-3)


def test_a_source_names_a_network_or_a_bundle() -> None:
    loaded = Source(model="tests.serving.nets:bare", defence="anti_adversary", shape=SHAPE, devices=("cpu",)).load(8)
    assert (loaded.backends[0].kind, loaded.backends[0].classes) == ("eager", CLASSES)
    two = Source(model="tests.serving.nets:bare", shape=SHAPE, devices=("cpu", "cpu"), name="mine").load(8)
    assert (len(two.backends), two.name) == (2, "mine")
    for wrong in ({}, {"backend": "fast", "model": "x"}):
        with pytest.raises(BadInput):
            Source(**wrong)  # type: ignore[arg-type]


def test_a_defence_with_a_memory_is_refused() -> None:
    with pytest.raises(BadInput, match="stateful"):
        Source(model="tests.serving.nets:bare", defence="stateful", shape=SHAPE).load(4)


def test_an_endpoint_and_a_network_that_cannot_be_copied_are_refused() -> None:
    with pytest.raises(BadInput, match="endpoint"):
        Source(model="http://127.0.0.1:9/v2/models/net", shape=SHAPE).load(4)
    locked = bare()
    locked.lock = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(BadInput, match="copied"):
        TorchBackend(locked, SHAPE, CPU)


def test_the_layer_in_ones_own_api_runs_as_the_page_shows_it() -> None:
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names = {"my_net": bare()}
    exec(block, names)
    image = (255 * X[0]).astype(np.uint8).transpose(1, 2, 0)
    found = names["predict"](image)
    assert (found.shape, found.dtype) == ((CLASSES,), np.float32)
    assert found.sum() == pytest.approx(1, abs=1e-5)
