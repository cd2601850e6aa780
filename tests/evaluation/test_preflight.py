"""The pre-flight finds each mistake, names the line that mends it, and finds nothing in a sound network."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv.cli.__main__ import main
from antiadv.core.engine import Eager
from antiadv.evaluation.preflight import Finding, preflight, untested
from antiadv.models.preprocess import CONSTANTS, Normalise
from tests.contract.test_no_silent_numbers import Slopeless
from tests.evaluation.test_attack import Last


def images() -> tuple[Tensor, Tensor]:
    data = antiadv.data.load("cifar10")
    return data.images(range(60)), data.labels(range(60))


def zoo() -> nn.Module:
    return antiadv.models.load("compact:standard")


def wrong(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Finding]:
    return {f.name: f for f in preflight(model, x, y) if f.fine is False}


class Undo(nn.Module):
    """The zoo network without its own normalisation: it wants images that are normalised before."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        mean, std = CONSTANTS["cifar10"]
        self.mean, self.std = torch.tensor(mean).view(-1, 1, 1), torch.tensor(std).view(-1, 1, 1)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self.net(x * self.std + self.mean)
        return s


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = x.flatten(1)[:, :10] + torch.randn(len(x), 10)
        return s


class OverTheBatch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        s = x.flatten(1)[:, :10]
        return s - s.mean(0)


def test_a_sound_network_has_no_findings() -> None:
    x, y = images()
    assert wrong(zoo(), x, y) == {}


@pytest.mark.filterwarnings("ignore")  # dynamic quantisation is deprecated
def test_dynamic_quantisation_mixes_a_batch_and_the_advice_keeps_samples_apart() -> None:
    x, _ = images()
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)).eval()
    model = torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8)
    found = wrong(model, x, model(x).argmax(1))["batch"]
    assert "--batch 1" in found.todo
    alone = torch.cat([model(x[i : i + 1]) for i in range(4)])
    assert torch.equal(Eager(1).scores(model, x[:4]), alone)
    assert not torch.equal(model(x[:4]), alone)


def test_a_missing_normalisation_is_found_and_the_line_mends_it() -> None:
    x, y = images()
    model = Undo(zoo())
    found = wrong(model, x, y)["normalisation"]
    assert "a guess: use the constants of your training" in found.todo
    mended = eval(found.todo.removeprefix("model = "), {"antiadv": antiadv, "model": model})
    assert wrong(mended, x, y) == {}


def test_a_second_normalisation_is_found() -> None:
    x, y = images()
    twice = nn.Sequential(Normalise(*CONSTANTS["cifar10"]), zoo()).eval()
    assert "normalisation" in wrong(twice, x, y)


class Colour(nn.Module):
    """Names the strongest channel."""

    def forward(self, x: Tensor) -> Tensor:
        return 10 * x.mean((2, 3))


def test_turned_channels_are_found() -> None:
    x = torch.rand(60, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    y = Colour()(x.flip(1)).argmax(1)
    assert "bgr" in wrong(Colour().eval(), x, y)["normalisation"].todo


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (Noisy().eval(), "determinism"),
        (OverTheBatch().eval(), "batch"),
        (nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.Softmax(1)).eval(), "scores"),
        (nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.Dropout()).train(), "mode"),
        (nn.Linear(5, 3).eval(), "scores"),
    ],
)
def test_other_mistakes(model: nn.Module, name: str) -> None:
    x = torch.rand(8, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    assert name in wrong(model, x, torch.zeros(8, dtype=torch.int64))


def test_channels_last_is_named_where_the_network_turns_its_images() -> None:
    x = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    found = wrong(Last(), x, torch.zeros(2, dtype=torch.int64))["scores"]
    assert "antiadv.wrap(net, channels_last=True)" in found.found


def test_a_model_without_gradients_is_noted_and_not_wrong() -> None:
    x = torch.rand(8, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    found = preflight(antiadv.wrap(lambda images: images.mean((2, 3))), x, torch.zeros(8, dtype=torch.int64))
    assert [f.fine for f in found if f.name == "gradients"] == [None]


def test_other_types_of_weights_are_noted_with_the_line_to_write() -> None:
    x = torch.rand(8, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval().half()
    found = {f.name: f for f in preflight(net, x, torch.zeros(8, dtype=torch.int64))}
    assert "float16" in found["dtype"].found
    assert found["scores"].fine is False
    mended = eval(found["dtype"].todo.removeprefix("model = "), {"model": net})
    assert {f.name: f.fine for f in preflight(mended, x, torch.zeros(8, dtype=torch.int64))}["scores"]


def test_images_divided_twice_are_found() -> None:
    x, y = images()
    assert "range" in wrong(zoo(), x / 255, y)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--model", "compact:standard", "--samples", "0:40", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = {f["name"] for f in found}
    assert names >= {"range", "scores", "gradients", "normalisation"}
    assert not names & {"mode", "dtype"}, "our loader sets both"


def trained() -> nn.Module:
    return zoo().train().half()


def test_the_command_says_in_which_state_your_function_returns_the_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--model", f"{__name__}:trained", "--samples", "0:40"]) == 0
    said = capsys.readouterr().out
    assert "note   mode           your function returns it in training mode" in said
    assert "note   dtype          some weights are float16, as your function returns it" in said
    assert "model = model.eval()" in said
    assert main(["check", "--model", f"{__name__}:zoo", "--samples", "0:40"]) == 0
    assert "fine   mode           evaluation mode\nfine   dtype          weights are float32" in capsys.readouterr().out


def test_gradients_that_are_no_numbers_are_found() -> None:
    x, y = images()
    found = wrong(Slopeless(zoo()).eval(), x, y)
    assert list(found) == ["gradients"]
    assert "100%" in found["gradients"].found


@pytest.mark.parametrize(
    ("version", "told"),
    [("2.10.1+cpu", True), ("2.11.0", False), ("2.15.1+cu130", False), ("2.16.0a0", True), ("3.0", True)],
)
def test_a_version_of_torch_that_was_never_tested_is_told(version: str, told: bool) -> None:
    assert [f.fine for f in untested(version)] == [None] * told
