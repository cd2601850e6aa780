"""A new last layer, noise layers, and averaged predictions."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from antiadv import models
from antiadv.core.errors import BadInput
from antiadv.models.noise import GaussianNoise, fold, noise_layers, noisy, reseed
from antiadv.train import average_predictions, parse
from antiadv.train.pretraining import new_head
from tests.train.tiny import batch, network


def test_a_new_head_has_the_classes_and_the_body_stays() -> None:
    net = models.build("preact18:width=4")
    before = {k: v.clone() for k, v in net.state_dict().items()}
    assert new_head(net, 100)(torch.rand(2, 3, 8, 8)).shape == (2, 100)
    changed = [k for k, v in net.state_dict().items() if not torch.equal(v, before.get(k, torch.empty(0)))]
    assert {k.partition(".")[0] for k in changed if "running" not in k and "tracked" not in k} == {"fc"}


def test_a_head_is_drawn_from_no_global_generator() -> None:
    before = torch.get_rng_state()
    one, two = new_head(network(), 7), new_head(network(), 7)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.state_dict()["6.weight"], two.state_dict()["6.weight"])


def test_a_network_without_a_head_is_refused() -> None:
    with pytest.raises(BadInput, match="last linear layer"):
        new_head(nn.Sequential(nn.Conv2d(3, 4, 1)), 10)


def test_pretraining_goes_from_the_source_to_the_target() -> None:
    first, second = parse("pretraining:source=cifar100").phases()
    assert (first.data, second.data) == ("cifar100", None)
    assert first.epochs(20) + second.epochs(20) == 20
    assert second.rate < first.rate


def test_noise_has_its_deviation_and_none_is_the_identity() -> None:
    h, layers = torch.zeros(50_000), [GaussianNoise(0.2), GaussianNoise(0.0)]
    reseed(layers, 0)
    assert layers[0](h).std().item() == pytest.approx(0.2, rel=0.02)
    assert layers[1](h) is h


def test_noise_is_a_function_of_its_seed_and_fresh_at_every_call() -> None:
    layers = [GaussianNoise(1.0), GaussianNoise(1.0)]
    h, before = torch.zeros(4, 3), torch.get_rng_state()
    reseed(layers, 5)
    first = [layer(h) for layer in layers for _ in range(2)]
    reseed(layers, 5)
    again = [layer(h) for layer in layers for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert len({tuple(t.flatten().tolist()) for t in first}) == 4
    reseed(layers, 6)
    assert not torch.equal(layers[0](h), first[0])
    assert torch.equal(torch.get_rng_state(), before)


def test_noise_is_off_by_default() -> None:
    net, x = network(0.3).eval(), batch().x
    quiet = net(x)
    assert torch.equal(net(x), quiet)
    with noisy(noise_layers(net), 0):
        assert not torch.equal(net(x), quiet)
    assert torch.equal(net(x), quiet)


def test_noise_stays_on_in_eval_mode_and_travels_with_the_network() -> None:
    net = network(0.3).eval()
    x = batch().x
    reseed(noise_layers(net), 2)
    assert not torch.equal(net(x), net(x))
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        reseed(noise_layers(net), 1)
        reseed(noise_layers(twin), 1)
        assert torch.equal(net(x), twin(x))
    assert not [key for key in net.state_dict() if key.startswith("0.")]


def test_folding_tells_apart_numbers_and_orders() -> None:
    keys = [(0,), (1,), (0, 1), (1, 0), (0, 0), (0, 1, 0), (2**32, 5), (0, 1, 5), (0, 5 * 2**32 + 1)]
    seeds = [fold(*key) for key in keys]
    assert len(set(seeds)) == len(keys)
    assert all(0 <= s < 2**63 for s in seeds)
    assert fold(3, 4) == fold(3, 4)


def test_averaging_is_the_logarithm_of_the_mean_probability() -> None:
    net, x = network(0.5).eval(), batch().x
    reseed(noise_layers(net), 0)
    found = average_predictions(net, x, 7)
    reseed(noise_layers(net), 0)
    expected = torch.stack([net(x).softmax(1) for _ in range(7)]).mean(0)
    torch.testing.assert_close(found.exp(), expected)
    torch.testing.assert_close(found.softmax(1), expected)


def test_without_noise_averaging_changes_nothing() -> None:
    net, x = network().eval(), batch().x
    torch.testing.assert_close(average_predictions(net, x, 3), net(x).log_softmax(1))


def test_the_variance_of_an_average_falls_with_its_passes() -> None:
    net, x = network(0.5).eval(), batch(4).x
    reseed(noise_layers(net), 0)
    with torch.no_grad():
        single = torch.stack([average_predictions(net, x, 1).exp() for _ in range(400)]).var(0).mean()
        many = torch.stack([average_predictions(net, x, 8).exp() for _ in range(400)]).var(0).mean()
    assert (single / many).item() == pytest.approx(8, rel=0.25)


def test_the_self_ensemble_is_evaluated_as_its_average() -> None:
    net, x = network(0.5).eval(), batch().x
    classifier = parse("self_ensemble:passes=3").classifier(net)
    reseed(noise_layers(net), 0)
    s = classifier(x)
    reseed(noise_layers(net), 0)
    torch.testing.assert_close(s, average_predictions(net, x, 3))
