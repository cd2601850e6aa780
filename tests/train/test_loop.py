"""The loop: it writes weights and a card, resumes exactly, and refuses checkpoints of other trainings."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from antiadv import models
from antiadv.core.ball import Ball
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.core.oracle import Oracle
from antiadv.models import packing
from antiadv.models.card import read_card
from antiadv.models.noise import noise_layers
from antiadv.train import Progress, Settings, parse, train
from antiadv.train.card import rounded
from antiadv.train.hydra import prunable
from antiadv.train.loop import Diverged, load_weights, with_classes
from antiadv.train.measure import accuracy, interval, pgd_accuracy
from antiadv.train.sets import Sets, images, renamed
from antiadv.train.step import Step, schedule
from tests.engine.probes import Odd
from tests.train.tiny import CASES, Case, batch, colours, network

TINY = "preact18:width=4"
QUICK = {"pgd": "pgd:steps=2", "trades": "trades:steps=2", "mart": "mart:steps=2", "awp": "awp:recipe=(pgd:steps=2)",
         "hydra": "hydra:recipe=(pgd:steps=2)", "pretraining": "pretraining:recipe=(pgd:steps=2)"}  # fmt: skip


class Stop(Exception):
    pass


def network_of(case: Case) -> str:
    return TINY + (",noise=0.1,first_noise=0.2" if case.noise else "")


def run(text: str, out: Path, model: str = TINY, epochs: int = 4, stop_after: int | None = None) -> models.Card:
    seen: list[Progress] = []

    def progress(p: Progress) -> None:
        seen.append(p)
        if len(seen) == stop_after:
            raise Stop

    settings = Settings(epochs=epochs, batch=16, learning_rate=0.05)
    return train(parse(text), model, "cifar10", out, settings, load=colours, progress=progress, save_every=2)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_stopped_and_resumed_it_ends_with_the_same_bits(case: Case, tmp_path: Path) -> None:
    text = QUICK.get(case.name, case.name)
    whole = run(text, tmp_path / "whole.safetensors", network_of(case))
    for stops in ((3,), (1, 2)):  # between two checkpoints; before the first, then just after one
        out = tmp_path / f"{len(stops)}.safetensors"
        for stop in stops:
            with pytest.raises(Stop):
                run(text, out, network_of(case), stop_after=stop)
        broken = run(text, out, network_of(case))
        assert broken.weights == whole.weights
        assert broken.more["curves"] == whole.more["curves"]
        assert not out.with_suffix(".partial").exists()
    assert whole.epochs == len(whole.more["curves"]) == 4


CHILD = """
import sys, torch
from pathlib import Path
from antiadv.train import Settings, parse, train
from tests.train.tiny import colours
torch.set_num_threads(1)
train(parse("hydra:recipe=(trades:steps=2)"), "preact18:width=4", "cifar10", Path(sys.argv[1]),
      Settings(epochs=8, batch=16, learning_rate=0.05), load=colours,
      progress=lambda p: print(p.phase, p.epoch, flush=True))
"""


@pytest.mark.slow
def test_killed_it_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    def start(out: Path) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", CHILD, str(out)], stdout=subprocess.PIPE, text=True)

    whole, broken = tmp_path / "whole.safetensors", tmp_path / "broken.safetensors"
    unbroken = start(whole)
    epochs = [f"train {k}" for k in (1, 2, 3, 4)] + ["prune 1"] + [f"fine-tune {k}" for k in (1, 2, 3)]
    assert unbroken.communicate()[0].splitlines() == epochs
    for last in ("train 2", "fine-tune 1"):
        child = start(broken)
        assert child.stdout is not None
        for line in child.stdout:
            if line.strip() == last:
                child.send_signal(signal.SIGKILL)
                break
        assert child.wait() == -signal.SIGKILL
        assert broken.with_suffix(".partial").exists()
        assert not broken.exists()
        child.stdout.close()
    left = start(broken).communicate()[0]
    assert "train 2" not in left
    a, b = load_file(whole), load_file(broken)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    with pytest.raises(Stop):
        run("pgd:steps=1", out, stop_after=2)
    with pytest.raises(BadInput, match=r"\(recipe is pgd:.*not standard\)"):
        run("standard", out)
    with pytest.raises(BadInput, match=r"\(architecture is .*width=4, not .*width=2"):
        run("pgd:steps=1", out, "preact18:width=2")
    with pytest.raises(BadInput, match=r"\(epochs is 4, not 5\)"):
        run("pgd:steps=1", out, epochs=5)
    out.with_suffix(".partial").write_bytes(out.with_suffix(".partial").read_bytes()[:500])
    with pytest.raises(BadInput, match="not a complete safetensors file"):
        run("pgd:steps=1", out)


def test_weights_and_card_are_what_a_user_loads(tmp_path: Path) -> None:
    out = tmp_path / "small.safetensors"
    card = run("standard", out, TINY + ",normalise=cifar10", epochs=15)
    assert read_card(out.with_suffix(".json")) == card
    net = models.load(f"file:{out}")
    assert models.digest(net) == card.weights
    sets = colours()
    assert accuracy(net, images(sets.test_x), sets.test_y).hits == card.clean.hits
    assert pgd_accuracy(net, images(sets.test_x), sets.test_y).hits == card.pgd20.hits
    assert card.clean.hits == card.clean.total == 32  # four colours are learned
    assert card.architecture == "preact18:classes=4,width=4,normalise=cifar10"
    assert {t.dtype for t in load_file(out).values() if t.dim() > 1} == {torch.float16}
    points = card.more["curves"]
    assert points[-1]["loss"] < points[0]["loss"]
    assert "test_accuracy" in points[-1]
    content = json.loads(out.with_suffix(".json").read_text())
    assert {"command", "recipe", "settings", "torch", "hardware", "parameters", "data", "file"} <= content.keys()


def test_rounding_touches_kernels_only() -> None:
    state = models.build(TINY).state_dict()
    for name, t in rounded(state).items():
        assert t.dtype == (torch.float16 if state[name].dim() > 1 else state[name].dtype)
        torch.testing.assert_close(t.to(state[name].dtype), state[name], rtol=1e-3, atol=1e-6)


def test_hydra_may_start_from_a_trained_network_and_stays_sparse_in_the_file(tmp_path: Path) -> None:
    first = tmp_path / "first.safetensors"
    run("pgd:steps=1", first)
    out = tmp_path / "hydra.safetensors"
    text, settings = "hydra:recipe=(pgd:steps=1)", Settings(epochs=4, batch=16, learning_rate=0.05)
    card = train(parse(text), TINY, "cifar10", out, settings, load=colours, start=first)
    assert [p["phase"] for p in card.more["curves"]] == ["prune", "fine-tune"]
    assert card.more["start"]["file"] == "first.safetensors"
    net = models.load(f"file:{out}")
    for name in prunable(net):
        w = net.get_parameter(name)
        assert int((w == 0).sum()) == int((1 - 0.1) * w.numel())
    with pytest.raises(BadInput, match="only one"):
        train(parse("pgd"), TINY, "cifar10", out, settings, load=colours, start=first)
    with pytest.raises(BadInput, match="does not fit"):
        train(parse(text), "preact18:width=2", "cifar10", out, settings, load=colours, start=first)


def test_a_start_may_be_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NETWORK", "TENSOR"):
        monkeypatch.setattr(packing, name, 1)
    state = models.build(TINY).state_dict()
    packed = packing.pack(rounded(state))
    assert set(packed) != set(state)
    save_file(packed, tmp_path / "packed.safetensors")
    net = models.build(TINY)
    load_weights(net, tmp_path / "packed.safetensors")
    for name, t in net.state_dict().items():
        assert torch.equal(t, rounded(state)[name].to(t.dtype))


def test_classes_are_those_of_the_data() -> None:
    assert with_classes("preact18:width=4", 100) == "preact18:classes=100,width=4"
    assert with_classes("preact18:classes=7", 7) == "preact18:classes=7"
    for said in ("preact18:classes=7", "preact18:7"):
        with pytest.raises(BadInput, match="omit classes"):
            with_classes(said, 10)


def test_settings_are_checked_before_training(tmp_path: Path) -> None:
    for settings in (Settings(0), Settings(1, batch=1), Settings(1, learning_rate=0.0), Settings(1, ema=1.0)):
        with pytest.raises(BadInput, match="found"):
            train(parse("standard"), TINY, "cifar10", tmp_path / "x.safetensors", settings, load=colours)


@pytest.mark.parametrize("name", ["x.pt", "x.json", "x", "x.v2"])
def test_a_file_that_is_no_safetensors_is_refused_before_the_training(name: str, tmp_path: Path) -> None:
    def load(_: str) -> Sets:
        raise AssertionError("the data was read")

    with pytest.raises(BadInput, match=rf"found {name}\. .*x\.safetensors"):
        train(parse("standard"), TINY, "cifar10", tmp_path / name, Settings(1), load=load)


@pytest.mark.parametrize("measure", [accuracy, pgd_accuracy])
def test_a_network_is_measured_and_left_as_it_was(measure: Callable[..., object]) -> None:
    """Measuring turns the noise on and off again, and leaves the mode of every module unchanged."""
    net = models.build("preact18:width=4,noise=0.1,first_noise=0.2").train()
    net.bn.eval()  # type: ignore[union-attr]
    before = [m.training for m in net.modules()]
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    measure(net, x, torch.zeros(4, dtype=torch.int64))
    assert [layer.draw for layer in noise_layers(net)] == [None] * len(noise_layers(net)) != []
    assert [m.training for m in net.modules()] == before


def test_a_loss_that_is_no_number_ends_the_training(tmp_path: Path) -> None:
    settings = Settings(epochs=3, batch=16, learning_rate=1e30)
    with pytest.raises(Diverged, match="lower the learning rate"):
        train(parse("standard"), TINY, "cifar10", tmp_path / "x.safetensors", settings, load=colours)


def test_wilson_interval() -> None:
    low, high = interval(models.Accuracy(50, 100))
    assert low == pytest.approx(0.4038, abs=1e-4)
    assert high == pytest.approx(0.5962, abs=1e-4)
    assert interval(models.Accuracy(0, 10))[0] == pytest.approx(0, abs=1e-12)


def test_the_same_folder_for_another_set() -> None:
    assert renamed("cifar10:dir=/data", "cifar100") == "cifar100:dir=/data"
    assert renamed("cifar10", "cifar100") == "cifar100"


def test_a_sample_has_the_same_dice_in_batches_of_any_size() -> None:
    seen: list[Tensor] = []

    def do(oracle: Oracle, x: Tensor, y: Tensor, ball: Ball, draws: Draws) -> Tensor:
        seen.append(draws.keys)
        return x

    shown = batch(16)
    for size in (16, 5):
        pgd_accuracy(network().eval(), shown.x, shown.y, attack=Odd(do), batch=size, seed=3)
    assert torch.equal(seen[0], torch.cat(seen[1:]))
    assert torch.equal(seen[0], Draws.of(3, torch.arange(16)).keys)


def test_each_phase_goes_through_its_schedule_once_at_its_own_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, Tensor]] = []
    draw = Step.draw

    def watched(self: Step, rows: Tensor, knobs: Tensor, *key: int) -> None:
        seen.append((key[0], knobs))
        draw(self, rows, knobs, *key)

    monkeypatch.setattr(Step, "draw", watched)
    run("pretraining:recipe=standard,share=0.5,rate=0.25", tmp_path / "x.safetensors")
    settings = Settings(epochs=4, batch=16, learning_rate=0.05)
    for phase, rate in enumerate((1.0, 0.25)):
        mine = torch.stack([knobs for of, knobs in seen if of == phase])
        assert torch.equal(mine, schedule(2 * 64 // 16, settings, rate))


def test_a_checkpoint_of_a_training_from_another_start_is_refused(tmp_path: Path) -> None:
    one, other, out = (tmp_path / f"{name}.safetensors" for name in ("one", "other", "out"))
    run("standard", one, epochs=1)
    run("standard", other, epochs=2)
    recipe, settings = parse("hydra:recipe=standard"), Settings(epochs=4, batch=16, learning_rate=0.05)

    def stop(_: object) -> None:
        raise Stop

    with pytest.raises(Stop):
        train(recipe, TINY, "cifar10", out, settings, load=colours, start=one, progress=stop)
    with pytest.raises(BadInput, match=r"\(start is sha256:\w+, not sha256:\w+\)"):
        train(recipe, TINY, "cifar10", out, settings, load=colours, start=other)


def test_the_seconds_of_a_card_are_those_of_all_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    with pytest.raises(Stop):
        run("standard", tmp_path / "x.safetensors", stop_after=2)
    assert run("standard", tmp_path / "x.safetensors").seconds == 4.0
