"""`tune` keeps its promises: labels kept, latency, numbers of the check half, and no advice where there is none."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv.cli.__main__ import main
from antiadv.core.errors import BadInput
from antiadv.defences import wrap
from antiadv.reporting.measures import Difference, difference, share
from antiadv.reporting.render.csv import table_as_csv
from antiadv.reporting.tune import SIZES, _finalists, _Half, _holds, halves
from antiadv.reporting.tuning import Candidate, Latency, Setting, Tuning
from antiadv.reporting.wording import count
from tests.toys import Toy, halfspace


class Saturated(nn.Module):
    """Scores that are flat, in float32, far from the boundary: there a score attack learns nothing."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = (0.25 * self.inner(x)).tanh()
        return s


def saturated() -> Toy:
    toy = halfspace(math.inf, n=24, shape=(3, 8, 8), distance=0.05)
    return Toy(Saturated(toy.model).eval(), toy.x, toy.y, toy.distance)


TOY = saturated()
BALL = antiadv.Linf(0.06)


class Bowl(nn.Module):
    """Class 0 while the mean lies within 0.2 of ½. Its centre is at ½, so short steps keep labels and long ones do not:
    from class 1 a step leads outwards, from class 0 it leads to the centre and, if it is too long, beyond."""

    def forward(self, x: Tensor) -> Tensor:
        m = 0.04 - (x.flatten(1).mean(1) - 0.5).square()
        return 10 * torch.stack([m, -m], 1)


class Restless(nn.Module):
    """Its label changes with the slightest step."""

    def forward(self, x: Tensor) -> Tensor:
        v = (x.flatten(1).mean(1) * 1e5).sin()
        return torch.stack([v, -v], 1)


def bowl_images(n: int = 32) -> tuple[Tensor, Tensor]:
    x = torch.linspace(0.32, 0.68, n).view(n, 1, 1, 1).expand(n, 3, 4, 4).contiguous()
    return x, torch.zeros(n, dtype=torch.int64)


def quick(net: nn.Module, x: Tensor, y: Tensor, **how: object) -> Tuning:
    return antiadv.tune(net, x, y, **({"queries": 100, "attacked": 8, "ball": BALL} | how))  # type: ignore[arg-type]


def test_the_recommended_text_is_a_defence_with_the_numbers_that_are_shown() -> None:
    found = quick(TOY.model, TOY.x, TOY.y)
    assert found.spec is not None
    assert found.recommended in found.candidates
    layer = wrap(found.spec, TOY.model)
    assert isinstance(layer, antiadv.AntiAdversary)
    places = halves(len(TOY.x), 0)[1]
    check, labels = TOY.x[places], TOY.y[places]
    same = (layer(check).argmax(1) == TOY.model(check).argmax(1)).double().mean()
    assert found.recommended is not None
    assert found.recommended.kept.value == same
    assert found.images == (12, 12)
    bare, defended = (
        antiadv.attack(net, check[:8], labels[:8], "square", BALL, queries=100).robust_accuracy
        for net in (TOY.model, layer)
    )
    assert found.recommended.gain.value == pytest.approx(defended - bare)
    assert found.recommended.adaptive.value == 0, "the layer keeps all labels here, so what breaks f breaks g"


def test_steps_that_change_labels_are_not_recommended() -> None:
    net, (x, y) = Bowl().eval(), bowl_images()
    labels = net(x).argmax(1)
    found = quick(net, x, y, keep=1.0, gates=[1.0])
    assert found.curves[1], "the search for the step size is part of the result"
    for c in found.candidates:
        layer = antiadv.AntiAdversary(net, c.setting.steps, c.setting.step_size)
        assert (layer(x).argmax(1) == labels)[halves(len(x), 0)[0]].all()
    lost = [a for a, share in found.curves[1] if share < 1]
    assert lost, "the longest steps jump over the bowl"
    assert all(c.setting.step_size < min(lost) for c in found.candidates if c.setting.steps == 1)


def test_a_gate_gives_confident_samples_their_label_back() -> None:
    """Kept labels of a gated setting, derived without running it, are those of the layer itself."""
    net, (x, y) = Bowl().eval(), bowl_images()
    half = _Half(net, x, y, BALL, 5, 4, 0, 256)
    for gate in (1.0, 0.6, 0.55, 0.51):
        setting = Setting(1, 0.26, gate)
        layer = setting.layer(net)
        assert half.kept(setting).value == (layer(x).argmax(1) == net(x).argmax(1)).double().mean()


def test_no_setting_is_recommended_if_none_keeps_the_labels() -> None:
    net, x = Restless().eval(), bowl_images()[0]
    found = quick(net, x, net(x).argmax(1), gates=[1.0])
    assert (found.spec, found.candidates) == (None, [])
    assert f"{SIZES[0]:g}" in found.reason
    assert len(found.compared) == found.tried == len(table_as_csv(found.table).splitlines()) - 1 > 0
    assert all(c.kept.value < 0.995 and c.kept.n == 16 and c.gain is None for c in found.compared)
    assert found.sentence.startswith("No setting is recommended")
    assert found.json()["recommended"] is None


def test_no_setting_is_recommended_if_none_is_quick_enough() -> None:
    found = quick(TOY.model, TOY.x, TOY.y, latency_ms=1e-9)
    assert found.spec is None
    assert "ms" in found.reason
    assert any(c.latency is not None and c.gain is None for c in found.compared)


def test_a_setting_holds_if_the_check_half_itself_shows_what_is_asked() -> None:
    def candidate(kept: int, gained: int, lost: int = 0) -> Candidate:
        def stands(good: int) -> dict[int, bool]:
            return {k: k < good for k in range(64)}

        gain, adaptive = difference(stands(0), stands(gained)), difference(stands(lost), stands(0))
        return Candidate(Setting(1, 0.1), share(kept, 128), gain, adaptive, Latency(1, 1, 1, 1, 2, 1))

    assert share(126, 128).high > 0.995 > share(126, 128).value
    assert [_holds(candidate(kept, 20), 0.995) for kept in (126, 127, 128)] == [False, False, True]
    assert [_holds(candidate(128, gained), 0.995) for gained in (0, 1, 5, 6)] == [False, False, False, True]
    assert [_holds(candidate(128, 20, lost), 0.995) for lost in (0, 5, 6)] == [True, True, False]


def test_a_gain_that_may_be_chance_is_no_reason_for_a_setting() -> None:
    few = quick(TOY.model, TOY.x, TOY.y, attacked=4, steps=[1], gates=[1.0])
    assert few.candidates
    assert all(c.gain.value > 0 and c.gain.p > 0.05 for c in few.candidates)
    assert few.spec is None
    assert few.reason == (
        f"of {count(len(few.candidates), 'setting')} chosen on one half, none holds on the other: "
        f"a gain that may be chance ({len(few.candidates)}). More images may settle it (--samples, --attacked)"
    )


def test_the_cheaper_of_two_nearly_equal_settings_comes_first() -> None:
    def gain(value: float) -> Difference:
        return Difference(value, value, value, 1, 0, 0.5, 32)

    def cost(passes: float) -> Latency:
        return Latency(1, 1, 1, 1, passes, 0)

    a, b, c, d = (Setting(1, s) for s in SIZES[:4])
    gains = {a: gain(0.30), b: gain(0.28), c: gain(0.10), d: gain(-0.1)}
    latencies = {a: cost(5), b: cost(2), c: cost(1), d: cost(1)}
    assert _finalists(gains, latencies) == [b, a, c]


@pytest.mark.parametrize("n", [16, 17, 100])
def test_the_halves_are_apart_and_do_not_follow_the_order_of_the_images(n: int) -> None:
    first, second = halves(n, 3)
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(n))
    assert len(first) == n // 2
    assert 0 < (first % 2 == 0).sum() < len(first)


def test_latency_and_passes_are_measured() -> None:
    found = quick(TOY.model, TOY.x, TOY.y, gates=[1.0], steps=[2])
    for c in found.candidates:
        assert (c.latency.forwards, c.latency.backwards) == (3, 2)
        assert c.latency.one_ms > 0 < c.latency.many_ms


@pytest.mark.parametrize("how", [{"keep": 1.5}, {"latency_ms": 0.0}, {"queries": 0}, {"steps": []}, {"attacked": 0}])
def test_bad_options_are_one_sentence(how: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        quick(TOY.model, TOY.x, TOY.y, **how)


def test_too_few_or_wrong_images_are_refused() -> None:
    with pytest.raises(BadInput, match="at least 16"):
        quick(TOY.model, TOY.x[:10], TOY.y[:10])
    with pytest.raises(BadInput, match="classifies correctly"):
        quick(TOY.model, TOY.x, 1 - TOY.y)


def test_the_result_is_written_as_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = quick(TOY.model, TOY.x, TOY.y)
    files = found.write(tmp_path / "new")
    assert sorted(path.name for path in files) == ["tune-1.svg", "tune-2.svg", "tune.csv", "tune.json"]
    said = json.loads((tmp_path / "new" / "tune.json").read_text())
    assert said["recommended"] == found.spec
    assert len((tmp_path / "new" / "tune.csv").read_text().splitlines()) == 1 + len(found.candidates)
    assert str(found).count("anti_adversary:") >= len(found.candidates)


def test_a_network_of_the_zoo_is_tuned() -> None:
    net, images = antiadv.models.load("compact:trades"), antiadv.data.load("cifar10")
    x, y = images.images(range(16)), images.labels(range(16))
    found = antiadv.tune(net, x, y, keep=0.5, queries=3, attacked=2, steps=[1], gates=[0.99])
    assert found.images == (8, 8)
    assert all(c.kept.n == 8 for c in found.candidates)
    assert found.tried >= 3
    if found.spec is not None:
        assert isinstance(wrap(found.spec, net), antiadv.AntiAdversary)


def test_the_command_prints_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["tune", "--model", "tests.toys:make_rule", "--samples", "0:200", "--attacked", "4", "--keep", "0.5"]
    words += ["--threat", "linf:8/255,queries=3", "--device", "cpu", "--out", str(tmp_path)]
    assert main([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["images"] == [100, 100]
    assert Path(said["files"][0]).is_file()
    assert main(words) == 0
    out = capsys.readouterr().out
    assert said["verdict"].split(":")[0] in out
    if said["recommended"] is not None:
        assert out.splitlines()[-1] == f"--defence {said['recommended']}"
    else:
        assert out.splitlines()[-1].startswith("Written: ")


def test_the_last_line_is_the_setting_and_stands_even_if_files_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = quick(TOY.model, TOY.x, TOY.y)
    monkeypatch.setattr(importlib.import_module("antiadv.reporting.tune"), "tune", lambda *_, **__: found)
    words = ["tune", "--model", "tests.toys:make_rule", "--device", "cpu", "--out", str(tmp_path)]
    assert main(words) == 0
    *_, written, last = capsys.readouterr().out.splitlines()
    assert (written.startswith("Written: "), last) == (True, f"--defence {found.spec}")
    (tmp_path / "tune.csv").unlink()
    (tmp_path / "tune.csv").mkdir()
    assert main(words) == 2
    assert found.sentence in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "out"
    assert main(["tune", "--model", "tests.toys:make_rule", "--device", "cpu", "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"antiadv: {out} cannot be written (")


@pytest.mark.parametrize(("verb", "keeps"), [("tune", False), ("league", True)])
def test_finished_work_is_said_to_be_kept_only_where_there_is_a_store(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str, keeps: bool
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib.import_module(f"antiadv.reporting.{verb}"), verb, stop)
    assert main([verb, "--model", "tests.toys:make_rule", "--device", "cpu"]) == 130
    assert ("finished work is kept" in capsys.readouterr().err) == keeps


def test_a_targeted_threat_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--model", "compact:trades", "--threat", "linf:1/255,targeted=true"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
