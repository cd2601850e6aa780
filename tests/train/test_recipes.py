"""Every recipe has a text form, lowers its loss, and does not touch global state."""

from __future__ import annotations

import copy

import pytest
import torch

from antiadv.core import spec
from antiadv.core.errors import BadInput, BadSpec
from antiadv.models.noise import noise_layers
from antiadv.train import RECIPES, Settings, parse
from antiadv.train.step import Step
from tests.train.tiny import CASES, Case, batch, colours, network

each = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@pytest.mark.parametrize(
    "text",
    [
        *RECIPES,
        "trades:beta=3,eps=4/255",
        "awp:recipe=(mart:steps=3),gamma=0.01",
        "hydra:recipe=(awp:recipe=pgd),keep=0.2,shares=0.5+0.25+0.25",
        "pretraining:source=cifar10,recipe=(trades:beta=1)",
        "awp:recipe=(pretraining:source=cifar10)",
    ],
)
def test_a_recipe_is_its_text(text: str) -> None:
    recipe = parse(text)
    assert parse(spec.text(recipe)) == parse(spec.full(recipe)) == recipe


@each
def test_the_loss_falls_and_every_phase_ends_with_a_trained_network(case: Case) -> None:
    net, losses = network(case.noise), []
    settings = Settings(epochs=1, batch=32, learning_rate=0.3, ema=0.5)
    for index, phase in enumerate(case.recipe.phases()):
        sets = colours(phase.data or "cifar10")
        net = phase.enter(net, sets.classes)
        step = Step(net, phase.recipe, sets.x, sets.y, settings)
        for k in range(20):
            step.draw(step.order(index, k)[: step.size], torch.tensor([0.3, 0.5, 0.5]), index, k, k)
            step()
            losses.append(step.read_sums()[0])
        assert sum(losses[-3:]) < 0.5 * sum(losses[:3]), phase.name  # the first three: of the untrained network
        net = phase.leave(step.finish())
    assert all(p.requires_grad for p in net.parameters())


@each
def test_finding_a_gradient_changes_nothing_but_batch_statistics(case: Case) -> None:
    net = case.recipe.phases()[0].enter(network(case.noise), 4).train()
    before, numbers = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    found = batch()
    x, y, d = found.x.clone(), found.y.clone(), found.d.clone()
    weights = [p for p in net.parameters() if p.requires_grad]
    g, loss = case.recipe.phases()[0].recipe.gradients(net, weights, found)
    assert [a.shape for a in g] == [w.shape for w in weights]
    assert loss.value.shape == (16,)
    assert loss.scores.shape == (16, 4)
    for name, value in net.state_dict().items():
        if "running" not in name and "tracked" not in name:
            assert torch.equal(value, before[name]), name
    assert all(torch.equal(a, b) for a, b in ((found.x, x), (found.y, y), (found.d, d)))
    assert net.training
    assert all(p.requires_grad and p.grad is None for p in weights)
    assert torch.equal(torch.get_rng_state(), numbers)


@each
def test_the_same_dice_give_the_same_gradient_and_others_another(case: Case) -> None:
    recipe = case.recipe.phases()[0].recipe

    def gradient(d_scale: float, seed: int) -> torch.Tensor:
        from antiadv.models.noise import reseed

        net = case.recipe.phases()[0].enter(network(case.noise), 4).train()
        reseed(noise_layers(net), seed)
        found = batch()
        found = type(found)(found.x, found.y, d_scale * found.d, found.t)
        return torch.cat([a.flatten() for a in recipe.gradients(net, list(net.parameters()), found)[0]])

    assert torch.equal(gradient(1.0, 0), gradient(1.0, 0))
    if case.name != "standard":
        assert not torch.equal(gradient(1.0, 0), gradient(-1.0, 1))


@pytest.mark.parametrize(
    "text",
    [
        "pgd:eps=2",
        "trades:beta=-1",
        "mart:steps=-1",
        "awp:warmup=1",
        "hydra:keep=0",
        "hydra:shares=0.5+0.5",
        "hydra:recipe=pretraining",
        "pretraining:share=1",
        "pretraining:recipe=hydra",
        "self_ensemble:passes=0",
    ],
)
def test_what_cannot_be_trained_is_refused(text: str) -> None:
    with pytest.raises(BadSpec, match="needs"):
        parse(text)


def test_self_ensemble_wants_noise() -> None:
    with pytest.raises(BadInput, match="noise layers"):
        parse("self_ensemble").phases()[0].enter(network(), 4)
