"""Export: the traced form equals the defence, and an exported file answers as the classifier does, or is not kept."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv.cli.__main__ import main
from antiadv.core.errors import BadInput, MissingExtra
from antiadv.defences import wrap
from antiadv.defences.robust_features import write_moment
from antiadv.engine.meter import Meter
from antiadv.serving import export as exporting
from antiadv.serving.backend import Answer, Images
from antiadv.serving.bundle import open_bundle
from antiadv.serving.check import Check, compare
from antiadv.serving.gradients import onnx_table
from antiadv.serving.trace import traceable
from tests.serving.networks import Counting, images, network
from tests.toys import small_net

TEXTS = (
    "none",
    "anti_adversary:steps=0",
    "anti_adversary:steps=1,step_size=0.05",
    "anti_adversary:steps=3,step_size=0.1+0.02+0.3,clip=true",
    "rounded_scores:digits=0",
    "rounded_scores:digits=3",
)
LAYER = "anti_adversary:steps=2,step_size=0.05"


@pytest.mark.parametrize("text", TEXTS)
def test_the_traceable_form_is_the_defence_bit_for_bit(text: str) -> None:
    net, x = small_net(), images()
    defended = wrap(text, net)
    with torch.no_grad():
        found, want, bare = traceable(defended)(x), defended(x), net(x)
    assert torch.equal(found[0], want)
    assert len(found) == (1 if text == "none" else 2)
    assert torch.equal(found[-1], bare)


def test_nested_defences_are_traced_and_give_the_scores_of_the_bare_network() -> None:
    net, x = small_net(), images()
    nested = wrap("rounded_scores:digits=1", wrap(LAYER, wrap(LAYER, net)))
    with torch.no_grad():
        found = traceable(nested)(x)
        assert torch.equal(found[0], nested(x))
        assert torch.equal(found[1], net(x))


def test_a_gate_keeps_the_first_answer_where_the_network_is_sure() -> None:
    net, x = small_net(), images()
    with torch.no_grad():
        bare = net(x)
        confidence = bare.softmax(1).amax(1)
        layer = wrap(LAYER, net)
        full = layer(x)
        gate = confidence.median().item()
        object.__setattr__(layer, "gate", gate)
        found = traceable(layer)(x)[0]
    sure = confidence > gate
    assert 0 < sure.sum() < len(x)
    assert torch.equal(found[sure], bare[sure])
    assert torch.equal(found[~sure], full[~sure])


ONE_STEP = "anti_adversary:steps=1,step_size=0.05"
AROUND = ("mirrored_scores", "mirrored_scores:kind=sine", "bit_depth", "jpeg")
NESTED = [
    *[(text,) for text in AROUND],
    *[(text, ONE_STEP + ",gate=0.5") for text in AROUND],
    *[(ONE_STEP, text) for text in AROUND],
    ("jpeg", "rounded_scores", ONE_STEP, "bit_depth"),
]


def nested(texts: tuple[str, ...], net: nn.Module) -> nn.Module:
    """Defences around a network, the outermost first."""
    for text in reversed(texts):
        net = wrap(text, net)
    return net


@pytest.mark.parametrize("texts", NESTED, ids=str)
def test_every_deterministic_defence_is_traced_alone_and_nested(texts: tuple[str, ...]) -> None:
    defended, x = nested(texts, small_net()), images()
    with torch.no_grad():
        found = traceable(defended)(x)
        assert len(found) == 1  # these defences do not tell the scores of the bare network
        assert torch.equal(found[0], defended(x))


def test_the_layer_in_front_of_jpeg_has_no_onnx_form(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="aten"):
        antiadv.export(nested((ONE_STEP, "jpeg"), network("linear")), images(), tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("texts", [texts for texts in NESTED if texts != (ONE_STEP, "jpeg")], ids=str)
def test_every_deterministic_defence_is_exported_alone_and_nested(texts: tuple[str, ...], tmp_path: Path) -> None:
    defended, x = nested(texts, network("pools")), images(20)
    made = antiadv.export(defended, x, tmp_path / "out")
    answer = made.backend(threads=1).run(x.numpy())
    assert answer.base_scores is None
    with torch.no_grad():
        np.testing.assert_allclose(answer.scores, defended(x).numpy(), atol=1e-4)


def test_two_defences_that_surround_the_layer_are_exported(tmp_path: Path) -> None:
    defended, x = nested(("mirrored_scores", ONE_STEP, "bit_depth"), network("linear")), images()
    made = antiadv.export(defended, x, tmp_path / "out", "pt2")
    with torch.no_grad():
        np.testing.assert_allclose(made.backend().run(x.numpy()).scores, defended(x).numpy(), atol=1e-5)
    assert made.card["cost"].startswith("2 forward and 1 backward")


COSTS: list[tuple[tuple[str, ...], tuple[int, int]]] = [
    ((), (1, 0)),
    (("jpeg",), (1, 0)),
    ((LAYER,), (3, 2)),
    (("rounded_scores", LAYER), (3, 2)),
    ((ONE_STEP, LAYER), (6, 5)),
]


@pytest.mark.parametrize(("texts", "passes"), COSTS, ids=str)
def test_the_cost_counts_the_layers_inside_other_defences(texts: tuple[str, ...], passes: tuple[int, int]) -> None:
    """The same numbers as a meter counts."""
    net, x = small_net(), images(4)
    with Meter(net) as meter, torch.no_grad():
        nested(texts, net)(x)
    assert (meter.forwards / len(x), meter.backwards / len(x)) == passes
    assert exporting._passes(nested(texts, net)) == passes


def test_an_edit_of_the_last_layer_is_traced_around_the_layer(tmp_path: Path) -> None:
    net, x = network("linear"), images()
    inner = wrap(LAYER, net)
    write_moment(tmp_path / "moment", net, x)
    outer = wrap(f"robust_features:path={tmp_path / 'moment'}", net)
    both = wrap(LAYER, outer)
    with torch.no_grad():
        assert not torch.equal(both(x), inner(x))
        assert torch.equal(traceable(both)(x)[0], both(x))


def test_a_defence_with_a_memory_is_refused(tmp_path: Path) -> None:
    for texts in (("stateful",), ("stateful", ONE_STEP), ("rounded_scores", "stateful")):
        with pytest.raises(BadInput, match="stateful"):
            antiadv.export(nested(texts, network("linear")), images(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_norm_over_the_image_is_refused_by_its_name(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.Flatten(), nn.Linear(784, 5)).eval()
    with pytest.raises(BadInput, match="InstanceNorm"):
        antiadv.export(wrap(ONE_STEP, net), images(), tmp_path / "out")


@pytest.mark.parametrize("text", ["small_noise", "resize_pad"])
def test_a_randomised_defence_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=text):
        antiadv.export(wrap(text, network("pools")), images(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- ONNX


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("pools", "anti_adversary:steps=1,step_size=0.05"),
        pytest.param("norms", "anti_adversary:steps=2,step_size=0.05+0.01+0.1,clip=true", marks=pytest.mark.slow),
        pytest.param("attention", "anti_adversary:steps=1,step_size=0.05", marks=pytest.mark.slow),
    ],
)
def test_an_onnx_file_answers_as_the_layer_for_any_number_of_images(kind: str, text: str, tmp_path: Path) -> None:
    net, x = network(kind), images(20)
    layer = wrap(text, net)
    before = {name: (p.clone(), p.requires_grad) for name, p in net.named_parameters()}
    made = antiadv.export(layer, x, tmp_path / "out", class_names=list("abcde"))
    assert made.card["check"]["same_labels"] == made.card["check"]["images"] == 20
    assert made.card["check"]["largest_difference"] < 1e-4
    assert "0 samples differ" in str(Check(**made.card["check"]))
    assert "1 sample differs" in str(Check(**{**made.card["check"], "far": 1}))
    assert {1, 2, 4} <= set(made.card["check"]["batches"])
    assert (made.shape, made.classes, made.class_names) == ((3, 16, 16), 5, tuple("abcde"))
    for name, p in net.named_parameters():  # the network itself is left alone
        assert torch.equal(p, before[name][0])
        assert p.requires_grad == before[name][1]
    backend = open_bundle(tmp_path / "out").backend(threads=1)
    with torch.no_grad():
        want, bare = layer(x), net(x)
    for n in (1, 3, 20, 0):
        answer = backend.run(x[:n].numpy())
        assert answer.base_scores is not None
        np.testing.assert_allclose(answer.scores, want[:n].numpy(), atol=1e-4)
        np.testing.assert_allclose(answer.base_scores, bare[:n].numpy(), atol=1e-4)


def test_the_command_exports_a_network_of_the_zoo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bundle"
    said = tmp_path / "verdict.txt"
    said.write_text("The layer adds nothing here.")
    words = ["export", "--model", "compact:trades", "--defence", "rounded_scores", "--images", "24", "--out", str(out)]
    row = tmp_path / "row.json"
    row.write_text('{"clean_acc": "78.20"}')
    assert main([*words, "--league", str(said)]) == 2  # no card
    assert "no card of a league" in " ".join(capsys.readouterr().err.split())
    assert main([*words, "--verdict", str(said), "--league", str(row)]) == 0
    assert "24 labels are equal" in " ".join(capsys.readouterr().out.split())
    bundle = open_bundle(out)
    assert bundle.card["model"] == "compact:trades"
    assert bundle.card["defence"] == "rounded_scores:digits=2@1"
    assert bundle.card["verdict"] == "The layer adds nothing here."
    assert bundle.card["league"] == {"clean_acc": "78.20"}
    assert bundle.class_names[:2] == ("airplane", "automobile")
    assert bundle.card["weights"] == antiadv.models.digest(antiadv.models.load("compact:trades"))
    assert main(words) == 2  # the folder exists
    assert "exists already" in capsys.readouterr().err


def test_a_file_keeps_the_blocks_of_channels_in_all_steps(tmp_path: Path) -> None:
    """ONNX Runtime needs equal shapes for that, so the number of images has one name."""
    import onnx

    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.Flatten(), nn.Linear(1024, 5)
    ).eval()
    antiadv.export(wrap(LAYER, net), torch.rand(4, 3, 8, 8), tmp_path / "out")
    graph = onnx.load(tmp_path / "out" / "model.onnx").graph
    shapes = {value.name: value.type.tensor_type.shape.dim for value in graph.value_info}
    outputs = [name for node in graph.node if node.op_type in ("Conv", "Mul", "Add") for name in node.output]
    assert {shapes[name][0].dim_param for name in outputs if len(shapes[name]) == 4} == {"batch"}
    kinds = [node.op_type for node in graph.node]
    assert kinds.count("ConvTranspose") == 2  # one for each step, where the gradient reaches the images


@pytest.mark.parametrize("channels", [8, 16])
def test_backward_operators_agree_with_torch(channels: int) -> None:
    """All kinds of stride, padding, dilation, groups and windows, each against the operator of torch."""
    table, aten = onnx_table(), torch.ops.aten
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(2, channels, 13, 11, generator=draw)
    for kernel, stride, padding, dilation, groups in [
        (3, 1, 1, 1, 1), (3, 1, 0, 2, 4), (1, 1, 1, 1, 1), (3, 2, 1, 1, 2), (5, 3, 2, 1, 1), (2, 2, 0, 1, 8),
    ]:  # fmt: skip
        w = torch.rand(channels, channels // groups, kernel, kernel, generator=draw)
        sizes = [stride] * 2, [padding] * 2, [dilation] * 2
        g = torch.rand_like(torch.conv2d(x, w, None, *sizes, groups))
        rest = (None, *sizes, False, [0, 0], groups, [True, False, False])
        found = table[aten.convolution_backward.default](g, x, w, *rest)[0]
        torch.testing.assert_close(found, aten.convolution_backward(g, x, w, *rest)[0])
    for kernel, stride, padding, ceil, include, divisor in [
        (2, 2, 0, False, True, None), (3, 2, 1, True, True, None), (3, 2, 1, True, False, None),
        (3, 1, 1, False, False, None), (4, 3, 1, False, True, 5),
    ]:  # fmt: skip
        how = ([kernel] * 2, [stride] * 2, [padding] * 2, ceil, include, divisor)
        g = torch.rand_like(aten.avg_pool2d(x, *how))
        found = table[aten.avg_pool2d_backward.default](g, x, *how)
        torch.testing.assert_close(found, aten.avg_pool2d_backward(g, x, *how))
    for size in ([1, 1], [2, 3], [5, 11], [16, 12]):
        want = aten._adaptive_avg_pool2d(x, size)
        torch.testing.assert_close(table[aten._adaptive_avg_pool2d.default](x, size), want)
        g = torch.rand_like(want)
        found = table[aten._adaptive_avg_pool2d_backward.default](g, x)
        torch.testing.assert_close(found, aten._adaptive_avg_pool2d_backward(g, x))


@pytest.mark.parametrize("channels", [8, 16])
def test_the_gradients_of_relu_and_of_batch_norm_agree_with_torch(channels: int) -> None:
    """With 16 channels they are convolutions; the mask of ReLU is exact for the smallest and the largest numbers."""
    table, aten = onnx_table(), torch.ops.aten
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2, channels, 3, 3, generator=draw)
    x.view(-1)[:6] = torch.tensor([0.0, -0.0, torch.finfo().tiny, torch.finfo().max, -torch.finfo().max, 1e-30])
    g = torch.randn(x.shape, generator=draw)
    found = table[aten.threshold_backward.default](g, x, 0)
    assert torch.equal(found, aten.threshold_backward(g, x, 0))
    weight, mean, variance = torch.rand(3, channels, generator=draw) + 0.1
    rest = (mean, variance, None, None, False, 1e-5, [True, False, False])
    for w in (weight, None):
        found = table[aten.native_batch_norm_backward.default](g, x, w, *rest)[0]
        torch.testing.assert_close(found, aten.native_batch_norm_backward(g, x, w, *rest)[0])


def test_an_operator_without_onnx_form_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"adaptive_max_pool2d_backward"):
        antiadv.export(wrap("anti_adversary:steps=1", network("largest")), images(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_is_named_with_the_line_that_installs_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=rf"{name}.*antiadv\[onnx\]"):
        antiadv.export(network("linear"), images(), tmp_path / "out")


# ---------------------------------------------------------------- PyTorch's formats


def test_a_pt2_file_answers_as_the_layer_and_needs_trust(tmp_path: Path) -> None:
    layer, x = wrap("anti_adversary:steps=1", network("pools")), images()
    antiadv.export(layer, x, tmp_path / "out", "pt2")
    with pytest.raises(BadInput, match="trust"):
        open_bundle(tmp_path / "out").backend()
    backend = open_bundle(tmp_path / "out", trust=True).backend(threads=1)
    assert backend.kind == "pt2"
    with torch.no_grad():
        want = layer(x)
    for n in (1, 5, 12):
        np.testing.assert_allclose(backend.run(x[:n].numpy()).scores, want[:n].numpy(), atol=1e-5)


@pytest.mark.slow
def test_a_compiled_file_answers_as_the_layer(tmp_path: Path) -> None:
    layer, x = wrap("anti_adversary:steps=1", network("linear")), images()
    antiadv.export(layer, x, tmp_path / "out", "aoti")
    with pytest.raises(BadInput, match="trust"):
        open_bundle(tmp_path / "out").backend()
    backend = open_bundle(tmp_path / "out", trust=True).backend()
    with torch.no_grad():
        want = layer(x)
    for n in (1, 12):
        np.testing.assert_allclose(backend.run(x[:n].numpy()).scores, want[:n].numpy(), atol=1e-5)


def test_a_network_for_one_batch_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"len\(x\)"):
        antiadv.export(Counting().eval(), images(), tmp_path / "out", "pt2")
    assert list(tmp_path.iterdir()) == []


BAD_CALLS = {
    "one image": (images(1), "onnx"),
    "bytes": (images() * 255, "onnx"),
    "format": (images(), "tflite"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_arguments_get_a_sentence(case: str, tmp_path: Path) -> None:
    x, format = BAD_CALLS[case]
    with pytest.raises(BadInput):
        antiadv.export(network("linear"), x, tmp_path / "out", format)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- the check


class Altered:
    """A backend that answers with the scores of a network, changed by a function."""

    kind, shape, classes = "altered", (3, 16, 16), 5

    def __init__(self, net: nn.Module, how: str) -> None:
        self.net, self.how, self.calls = net, how, 0

    def run(self, images: Images) -> Answer:
        with torch.no_grad():
            s = self.net(torch.from_numpy(images))
        self.calls += 1
        return Answer(self._altered(s).numpy(), (s + 0.1 * (self.how == "base")).numpy())

    def _altered(self, s: Tensor) -> Tensor:
        one = self.calls == 3  # a batch of two samples
        return {
            "shift": s + 2e-3,
            "nan": s / (0 if one else 1),
            "labels": s.flip(1) if one else s,
            "shape": s[:, 1:],
            "type": s.double(),
            "base": s,
            "same": s,
        }[self.how]


@pytest.mark.parametrize("how", ["shift", "nan", "labels", "shape", "type", "base"])
def test_other_answers_fail_the_check(how: str) -> None:
    net = network("linear")
    with pytest.raises(BadInput, match="Nothing was kept"):
        compare(Altered(net, how), net, images(40))


def test_a_file_that_is_kept_because_of_rounding_says_so() -> None:
    """Scores that change by more than 0.001 with the last bits of the image."""

    class Steep(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 1e4 * x.flatten(1)[:, :5]

    class Nudged(Altered):
        def run(self, images: Images) -> Answer:
            return Answer((self.net(torch.from_numpy(images)) + 2e-3).numpy())

    x = images(40)
    found = compare(Nudged(Steep(), "shift"), Steep(), x)
    assert found.far == 40
    assert found.rounding is not None
    assert 20 <= found.rounding <= 40
    assert f"{found.rounding} by rounding" in str(found)
    assert found.json()["rounding"] == found.rounding
    assert compare(Altered(network("linear"), "same"), network("linear"), x).rounding is None


def test_a_file_that_fails_the_check_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = network("linear")
    monkeypatch.setattr(exporting, "_folded", lambda model, images: network("pools"))  # writes another network
    with pytest.raises(BadInput, match="Nothing was kept"):
        antiadv.export(net, images(), tmp_path / "out", "pt2")
    assert list(tmp_path.iterdir()) == []
