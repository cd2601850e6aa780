"""What the layer does to confidence: measured as its mathematics says, filed once, shown beside a report, and the same
as the records of attacks on the same images say."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv import defences, models
from antiadv.core.errors import BadInput
from antiadv.evaluation import Store
from antiadv.models import Card
from antiadv.reporting.build import build_document
from antiadv.reporting.measures import Calibration, calibration
from antiadv.reporting.temperature import of_store, stored
from tests.engine.probes import RECEIPT, cell, record
from tests.said import in_order, numbers
from tools import measure_confidence as script
from tools.docs import confidence as pages

ROOT = Path(__file__).parents[2]
FACTS = stored(ROOT / "results" / "confidence.json")


# ---------------------------------------------------------------- measured


class Line(nn.Module):
    """Scores (w·x, 0): signed steps of α move w·x by α·Σ|w| each, towards the label it has."""

    def __init__(self, w: Tensor) -> None:
        super().__init__()
        self.w = w

    def forward(self, x: Tensor) -> Tensor:
        s = x.flatten(1) @ self.w
        return torch.stack([s, torch.zeros_like(s)], 1)


def test_two_signed_steps_raise_the_confidence_as_their_mathematics_says() -> None:
    w = torch.tensor([1.0, -2.0, 0.5, 0.25])
    x = torch.rand((40, 1, 2, 2), generator=torch.Generator().manual_seed(0))
    net = Line(w).eval()
    m = (x.flatten(1) @ w).double()
    y = (m < 0).long()
    y[::4] = 1 - y[::4]  # a quarter wrong, at even places all
    found = script.measure(net, x, y)
    assert list(found) == ["none", "temperature", *script.LAYERS]
    for name, alpha in (("none", 0.0), (script.LAYERS[0], 0.15), (script.LAYERS[1], 0.01)):
        sure = torch.sigmoid(m.abs() + 2 * alpha * w.abs().sum())
        right = torch.where((m < 0).long() == y, sure, 1 - sure)
        assert found[name]["confidence"] == pytest.approx(sure.mean().item(), rel=1e-5)
        assert found[name]["loss"] == pytest.approx(-right.log().mean().item(), rel=1e-5)
        assert (found[name]["accuracy"], found[name]["n"]) == (0.75, 40)
    assert [found[layer]["unchanged"] for layer in script.LAYERS] == [40, 40]
    assert found["temperature"]["accuracy"] == 0.75


class Waves(nn.Module):
    """Scores ± cos 10πx, of period 0.2: a step of 0.15 towards a crest is one of 0.05 away from it, past the slope."""

    def forward(self, x: Tensor) -> Tensor:
        s = torch.cos(10 * math.pi * x.flatten(1)[:, 0])
        return torch.stack([s, -s], 1)


def test_a_layer_that_steps_too_far_is_seen_to_change_labels() -> None:
    x = torch.linspace(0.02, 0.98, 40).reshape(40, 1, 1, 1)
    net = Waves().eval()
    found = script.measure(net, x, net(x).argmax(1))
    far, near = (found[layer] for layer in script.LAYERS)
    assert (near["unchanged"], near["accuracy"]) == (40, 1)
    assert (far["unchanged"], far["accuracy"]) == (0, 0)


def test_a_temperature_needs_samples() -> None:
    with pytest.raises(BadInput, match=r"\b20\b.*\b19\b"):
        script.measure(Line(torch.ones(4)).eval(), torch.rand(19, 1, 2, 2), torch.zeros(19, dtype=torch.int64))


# ---------------------------------------------------------------- filed


def cards(*names: str) -> list[Card]:
    return [card for card in models.cards() if card.name in names]


def test_what_is_stored_is_not_measured_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, asked = tmp_path / "confidence.json", cards("compact-cifar10-trades", "compact-cifar100-awp")
    assert script.measure_all(asked, file, range(24), str(tmp_path)) == 1  # that folder holds no CIFAR-100
    assert in_order(capsys.readouterr().out, "CIFAR-100", str(tmp_path))
    (facts,) = stored(file).values()
    net, images = models.load("compact:trades"), antiadv.data.load("cifar10")
    x, y = images.images(range(24)), images.labels(range(24))
    assert facts["found"] == json.loads(json.dumps(script.measure(net, x, y)))
    assert (facts["weights"], facts["images"], facts["samples"]) == (models.digest(net), images.digest, "0:24")
    assert str(tmp_path) not in file.read_text()

    before = file.read_bytes()
    with monkeypatch.context() as patch:
        patch.delattr(script, "measure")  # whoever measures now fails
        assert script.measure_all(asked[:1], file, range(24)) == 0
    assert capsys.readouterr().out == "compact:trades: stored\n"
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["confidence.json"]

    script.measure_all(asked[:1], file, range(20))  # other samples are another question
    assert stored(file)["compact:trades"]["samples"] == "0:20"
    assert stored(file)["compact:trades"]["found"]["none"]["n"] == 20


@pytest.mark.parametrize("text", ["{", "[]", '{"compact:trades": 3}', '{"compact:trades": {}}'])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "confidence.json"
    file.write_text(text)
    with pytest.raises(BadInput, match=r"confidence\.json.*delete"):
        script.measure_all([], file, range(24))


def test_a_report_names_a_broken_file_too(tmp_path: Path) -> None:
    (tmp_path / "confidence.json").write_text('{"compact:trades": {"format": 1, "weights": "sha256:0"}}')
    with pytest.raises(BadInput, match=r"confidence\.json.*'images'.*delete"):
        of_store(tmp_path)
    pair(tmp_path)
    (tmp_path / "confidence.json").write_text("{")
    with pytest.raises(BadInput, match=r"confidence\.json.*delete") as error:
        antiadv.report(tmp_path)
    assert str(error.value).count("confidence.json") == 1, "one error is not told inside another"


@pytest.mark.parametrize("card", models.cards(), ids=lambda card: card.spec)
def test_the_stored_facts_are_of_this_network_and_this_layer(
    card: Card,
) -> None:
    facts = FACTS[card.spec]
    assert facts["weights"] == card.weights
    assert facts["images"] == card.data["test"]
    assert facts["layers"] == [defences.full_text(layer) for layer in script.LAYERS]
    assert facts["found"]["none"]["n"] >= 500


def in_records() -> Iterator[tuple[str, str, Calibration]]:
    """What stored records say of the samples that were measured: by network and defence, of one cell each."""
    known = {(of["weights"], of["images"]): of for of in FACTS.values()}
    sides = {defences.full_text(d): d for d in ("none", "anti_adversary:steps=2,step_size=0.15")}
    store, seen = Store(ROOT / "results"), set()
    for found in store.cells():
        facts, side = known.get((found.weights, found.images)), sides.get(defences.full_text(found.defence))
        if facts is None or side is None or (facts["model"], side) in seen:
            continue
        n = facts["found"]["none"]["n"]
        records = [r for r in store.read(found) if r.sample < n]
        if len(records) == n:
            seen.add((facts["model"], side))
            yield facts["model"], side, calibration(records)


def test_the_records_of_attacks_say_the_same() -> None:
    """The judge looked at the same clean images, on other machines, and wrote probabilities down to three digits."""
    found = list(in_records())
    assert {"none", "anti_adversary:steps=2,step_size=0.15"} == {side for _, side, _ in found}
    for model, side, seen in found:
        facts = FACTS[model]["found"][side]
        assert seen.accuracy == pytest.approx(facts["accuracy"], abs=1e-3), (model, side)
        assert seen.confidence == pytest.approx(facts["confidence"], abs=2e-4), (model, side)
        assert seen.loss == pytest.approx(facts["loss"], abs=1e-3), (model, side)
        assert seen.error == pytest.approx(facts["error"], abs=2e-3), (model, side)


# ---------------------------------------------------------------- shown

SCALED = Calibration(0.02, 0.4, 0.9, 0.92, 500)


def filed(root: Path, **other: str) -> None:
    asked = cell("square")
    facts = {"format": 1, "weights": asked.weights, "images": asked.images, "found": {"temperature": vars(SCALED)}}
    (root / "confidence.json").write_text(json.dumps({"it": facts | other}))


def pair(root: Path) -> None:
    for defence, said in (("none", 0.5), ("anti_adversary", 0.9)):
        facts = [record(i, clean_confidence=said, clean_truth=said) for i in range(40)]
        Store(root).append(cell("square", defence=defence), facts, RECEIPT)


def test_a_report_shows_the_cheap_alternative_where_it_was_measured(tmp_path: Path) -> None:
    pair(tmp_path)
    alone = antiadv.report(tmp_path).confidence
    filed(tmp_path)
    assert of_store(tmp_path) == {(cell("square").weights, cell("square").images): SCALED}
    (found,) = antiadv.report(tmp_path).confidence
    assert found.scaled == SCALED
    before = str(alone[0])[:-1]
    assert str(found).startswith(before)
    more = str(found).removeprefix(before)
    assert numbers(more) == ["0.020", "0.400", "90.0", "92.0", "500"]
    assert in_order(more, "temperature", "error", "log-loss", "confidence", "accuracy", "samples")
    assert found.json()["scaled"]["error"] == 0.02
    assert build_document(tmp_path).confidence == (str(found),)
    assert [c.cell.defence for c in antiadv.report(tmp_path).rows] == ["none", "anti_adversary"]


@pytest.mark.parametrize("other", [{"weights": "sha256:0"}, {"images": "sha256:0"}, {"format": 2}])
def test_of_another_network_it_says_nothing(tmp_path: Path, other: dict[str, Any]) -> None:
    pair(tmp_path)
    filed(tmp_path, **other)
    (found,) = antiadv.report(tmp_path).confidence
    assert found.scaled is None
    assert found.json()["scaled"] is None
    assert "temperature" not in str(found)


# ---------------------------------------------------------------- told


def of(error: float, loss: float, confidence: float, accuracy: float = 0.8, **more: int) -> dict[str, float]:
    return {"error": error, "loss": loss, "confidence": confidence, "accuracy": accuracy, "n": 1000, **more}


def test_the_page_says_whom_the_layer_helps_and_whom_it_harms() -> None:
    layer = "anti_adversary:steps=2,step_size=0.15"
    shy, bold = "compact:trades", "compact:standard"
    found = {
        shy: {
            "none": of(0.3, 1.0, 0.5),
            "temperature": of(0.02, 0.8, 0.79),
            layer: of(0.1, 0.7, 0.9, unchanged=1000),
        },
        bold: {
            "none": of(0.1, 0.5, 0.9),
            "temperature": of(0.01, 0.4, 0.81),
            layer: of(0.3, 2.0, 0.95, accuracy=0.6, unchanged=750),
        },
    }
    said = " ".join(pages.summary(found).split())
    assert re.findall("`(.*?)`", said) == [shy, bold]
    head, of_shy, of_bold = re.split("`.*?`", said)
    measured = ("error", "log-loss", "- ", "error", "log-loss", "- ", "α = ", "error", "log-loss", "confidence")
    assert in_order(head, "scaling", "1 of 2", "below", "1 of 2")
    assert numbers(head) == ["1", "2", "1", "2"]
    assert in_order(of_shy, *measured, "1 of 1", "above", "1 of 2")
    assert numbers(of_shy) == [
        *("0.300", "1.000"),  # bare
        *("0.020", "1", "1", "0.800", "1", "1"),  # scaled: smaller than bare, on one of one
        *("0.15", "0.100", "1", "1", "0.700", "1", "1"),  # the layer, and its α
        *("1", "1"),  # on which confidence is above accuracy; every prediction is kept
        *("1", "2"),  # the head of the next group
    ]
    assert in_order(of_bold, *measured, "1 of 1", "75.0 %", "20.0 points")
    assert numbers(of_bold) == [
        *("0.100", "0.500"),
        *("0.010", "1", "1", "0.400", "1", "1"),
        *("0.15", "0.300", "0", "1", "2.000", "0", "1"),
        *("1", "1", "75.0", "20.0"),  # predictions kept at least, accuracy lost at most
    ]
    both = {shy: found[shy], bold: {**found[shy], "none": of(0.2, 0.9, 0.6), layer: of(0.1, 0.7, 0.75, unchanged=999)}}
    said = " ".join(pages.summary(both).split())
    assert re.findall("`(.*?)`", said) == [shy, bold]
    assert in_order(said, *measured, "above", "1 of 2", "99.9 %")
    assert numbers(said) == [
        *("0", "2", "2", "2"),
        *("0.200", "0.300", "0.900", "1.000"),
        *("0.020", "2", "2", "0.800", "2", "2"),
        *("0.15", "0.100", "2", "2", "0.700", "2", "2"),
        *("1", "2", "99.9"),  # and no group of networks whose confidence is above their accuracy
    ]
