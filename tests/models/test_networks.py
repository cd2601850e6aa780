"""The networks are the published ones: size, keys, function and initial weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from antiadv import models
from antiadv.core.errors import BadInput, BadSpec
from antiadv.models.noise import GaussianNoise, noise_layers, reseed

SMALL = {
    "resnet18": "resnet18:width=4",
    "preact18": "preact18:width=4",
    "wrn": "wrn:depth=16,widen=1",
    "resnet50": "resnet50:width=4,classes=10",
}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("wrn:depth=28,widen=10", 36_479_194),
        ("wrn:depth=28,widen=10,classes=100", 36_536_884),
        ("wrn:depth=34,widen=10", 46_160_474),
        ("wrn:depth=34,widen=10,classes=100", 46_218_164),
        ("resnet18", 11_173_962),
        ("resnet50:v1", 25_557_032),
        ("resnet50:v1.5", 25_557_032),
        ("preact18:width=16", 701_018),
    ],
)
def test_parameter_counts_are_the_published_ones(text: str, count: int) -> None:
    assert sum(p.numel() for p in models.build(text).parameters()) == count


def test_every_architecture_is_tested_here() -> None:
    assert set(SMALL) == set(models.ARCHITECTURES)


# ---------------------------------------------------------------- outputs, compared with the formulas


def conv(p: dict[str, Tensor], key: str, x: Tensor, stride: int = 1) -> Tensor:
    weight = p[f"{key}.weight"]
    return F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)


def norm(p: dict[str, Tensor], key: str, x: Tensor) -> Tensor:
    shape = (1, -1, 1, 1)
    centred = (x - p[f"{key}.running_mean"].view(shape)) / (p[f"{key}.running_var"].view(shape) + 1e-5).sqrt()
    return centred * p[f"{key}.weight"].view(shape) + p[f"{key}.bias"].view(shape)


def head(p: dict[str, Tensor], h: Tensor) -> Tensor:
    return h.flatten(2).mean(2) @ p["fc.weight"].T + p["fc.bias"]


def reference_wrn(p: dict[str, Tensor], x: Tensor) -> Tensor:
    h = conv(p, "conv1", x)
    for group in range(1, 4):
        for block in range(2):
            key, stride = f"block{group}.layer.{block}", 2 if group > 1 and block == 0 else 1
            a = norm(p, f"{key}.bn1", h).relu()
            y = conv(p, f"{key}.conv2", norm(p, f"{key}.bn2", conv(p, f"{key}.conv1", a, stride)).relu())
            h = y + (conv(p, f"{key}.convShortcut", a, 2) if stride == 2 else h)
    return head(p, norm(p, "bn1", h).relu())


def reference_resnet18(p: dict[str, Tensor], x: Tensor) -> Tensor:
    h = norm(p, "bn1", conv(p, "conv1", x)).relu()
    for group in range(1, 5):
        for block in range(2):
            key, stride = f"layer{group}.{block}", 2 if group > 1 and block == 0 else 1
            y = norm(p, f"{key}.bn1", conv(p, f"{key}.conv1", h, stride)).relu()
            y = norm(p, f"{key}.bn2", conv(p, f"{key}.conv2", y))
            if stride == 2:
                h = norm(p, f"{key}.shortcut.1", conv(p, f"{key}.shortcut.0", h, 2))
            h = (y + h).relu()
    return head(p, h)


def reference_preact18(p: dict[str, Tensor], x: Tensor) -> Tensor:
    h = conv(p, "conv1", x)
    for group in range(1, 5):
        for block in range(2):
            key, stride = f"layer{group}.{block}", 2 if group > 1 and block == 0 else 1
            a = norm(p, f"{key}.bn1", h).relu()
            y = conv(p, f"{key}.conv2", norm(p, f"{key}.bn2", conv(p, f"{key}.conv1", a, stride)).relu())
            h = y + (conv(p, f"{key}.shortcut.0", a, 2) if stride == 2 else h)
    return head(p, norm(p, "bn", h).relu())


def reference_resnet50(p: dict[str, Tensor], x: Tensor, first_strides: bool = False) -> Tensor:
    h = F.max_pool2d(norm(p, "bn1", conv(p, "conv1", x, 2)).relu(), 3, 2, 1)
    for group, blocks in zip(range(1, 5), (3, 4, 6, 3), strict=True):
        for block in range(blocks):
            key, stride = f"layer{group}.{block}", 2 if group > 1 and block == 0 else 1
            one, three = (stride, 1) if first_strides else (1, stride)
            y = norm(p, f"{key}.bn1", conv(p, f"{key}.conv1", h, one)).relu()
            y = norm(p, f"{key}.bn2", conv(p, f"{key}.conv2", y, three)).relu()
            y = norm(p, f"{key}.bn3", conv(p, f"{key}.conv3", y))
            if block == 0:
                h = norm(p, f"{key}.downsample.1", conv(p, f"{key}.downsample.0", h, stride))
            h = (y + h).relu()
    return head(p, h)


REFERENCES = {
    "wrn": reference_wrn,
    "resnet18": reference_resnet18,
    "preact18": reference_preact18,
    "resnet50": reference_resnet50,
}


@pytest.mark.parametrize("name", SMALL)
def test_computes_what_the_formulas_say(name: str) -> None:
    network = stirred(models.build(SMALL[name])).double().eval()
    x = torch.rand(2, 3, 32, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(network(x), REFERENCES[name](network.state_dict(), x))


def test_v1_strides_on_the_first_convolution() -> None:
    network = stirred(models.build("resnet50:v1,width=4,classes=10")).double().eval()
    x = torch.rand(2, 3, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    p = network.state_dict()
    with torch.no_grad():
        torch.testing.assert_close(network(x), reference_resnet50(p, x, first_strides=True))
        assert not torch.allclose(network(x), reference_resnet50(p, x, first_strides=False))


def stirred(network: nn.Module) -> nn.Module:
    """Make the batch norms differ from the identity, so that a test notices if two are swapped."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                for tensor in (module.weight, module.running_var):
                    assert tensor is not None
                    tensor.uniform_(0.5, 1.5, generator=generator)
                for tensor in (module.bias, module.running_mean):
                    assert tensor is not None
                    tensor.normal_(0, 0.3, generator=generator)
    return network


# ---------------------------------------------------------------- keys


def test_wide_resnet_has_the_keys_of_the_checkpoints() -> None:
    keys = set(models.build("wrn:depth=16,widen=2").state_dict())
    statistics = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    due = {"conv1.weight", "fc.weight", "fc.bias"} | {f"bn1.{s}" for s in statistics}
    for group in (1, 2, 3):
        due |= {f"block{group}.layer.0.convShortcut.weight"}
        for block in (0, 1):
            key = f"block{group}.layer.{block}"
            due |= {f"{key}.conv1.weight", f"{key}.conv2.weight"}
            due |= {f"{key}.{bn}.{s}" for bn in ("bn1", "bn2") for s in statistics}
    assert keys == due


def test_resnet50_has_torchvisions_keys() -> None:
    keys = set(models.build("resnet50:width=2").state_dict())
    assert len(keys) == 320  # 53 convolutions, 53 batch norms of five tensors, and the head's two
    assert {"conv1.weight", "bn1.running_var", "layer1.0.downsample.0.weight", "layer1.0.downsample.1.bias"} <= keys
    assert {"layer3.5.conv3.weight", "layer4.2.bn3.num_batches_tracked", "fc.weight", "fc.bias"} <= keys
    assert not any(key.startswith(("layer3.6", "layer1.1.downsample")) for key in keys)


@pytest.mark.parametrize("name", ["resnet18", "preact18", "wrn"])
def test_noise_stands_before_every_convolution_and_adds_no_key(name: str) -> None:
    quiet, noisy = models.build(SMALL[name]), models.build(SMALL[name] + ",noise=0.1,first_noise=0.3")
    assert list(quiet.state_dict()) == list(noisy.state_dict())
    assert not [m for m in quiet.modules() if isinstance(m, GaussianNoise)]
    convolutions = [m for m in noisy.modules() if isinstance(m, nn.Conv2d)]
    sigmas = [layer.std for c in convolutions for layer in c.modules() if isinstance(layer, GaussianNoise)]
    assert sigmas == [0.3] + [0.1] * (len(convolutions) - 1)
    x = torch.full((2, 3, 16, 16), 0.5)
    with torch.no_grad():
        assert torch.equal(quiet.eval()(x), noisy.eval()(x))
        reseed(noise_layers(noisy), 0)
        assert not torch.equal(quiet(x), noisy(x))


@pytest.mark.parametrize("name", SMALL)
def test_normalisation_happens_inside_and_adds_no_key(name: str) -> None:
    plain, inside = models.build(SMALL[name]).eval(), models.build(SMALL[name] + ",normalise=half").eval()
    assert list(plain.state_dict()) == list(inside.state_dict())
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(inside(x), plain(2 * x - 1))


# ---------------------------------------------------------------- initial weights


@pytest.mark.parametrize("name", SMALL)
def test_building_leaves_the_global_generator_alone(name: str) -> None:
    before = torch.get_rng_state()
    first = models.build(SMALL[name])
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)  # the caller's own draws do not matter either
    again, other = models.build(SMALL[name]), models.build(SMALL[name] + ",seed=1")
    assert models.digest(first) == models.digest(again) != models.digest(other)


@pytest.mark.parametrize("name", SMALL)
def test_every_parameter_is_initialised_as_published(name: str) -> None:
    network = models.build(SMALL[name].replace("width=4", "width=16").replace("widen=1", "widen=4"))
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            std = math.sqrt(2 / (module.out_channels * module.kernel_size[0] * module.kernel_size[1]))
            error = 6 * std / math.sqrt(module.weight.numel())  # six standard errors of the mean; of the std it is 8.5
            assert abs(module.weight.mean()) < error
            assert abs(module.weight.std() - std) < error
        elif isinstance(module, nn.Linear):
            bound = 1 / math.sqrt(module.in_features)
            assert 0.9 * bound < module.weight.abs().max() <= bound
            assert not module.bias.any()
        elif isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert not module.bias.any()
    assert network.training
    assert all(p.requires_grad for p in network.parameters())


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("text", ["wrn:depth=27", "wrn:depth=4", "wrn:widen=0"])
def test_impossible_wide_resnets_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"depth 6n \+ 4"):
        models.build(text)


@pytest.mark.parametrize("text", ["resnet18:width=0", "preact18:channels=-1", "resnet50:classes=0", "wrn:noise=-1"])
def test_impossible_sizes_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="at least"):
        models.build(text)


def test_unknown_architectures_and_normalisations_are_listed() -> None:
    with pytest.raises(BadSpec, match="did you mean preact18"):
        models.build("preact81")
    with pytest.raises(BadSpec, match="resnet50-v1"):
        models.build("resnet18:normalise=svhn")
