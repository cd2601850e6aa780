"""Any model as a classifier: modules, functions, ONNX, TorchScript, folders of Hugging Face, timm's settings."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import antiadv
from antiadv import models
from antiadv.core.errors import BadInput
from antiadv.evaluation import Resources, Store, evaluate, make_cell
from antiadv.models.processor import of_folder
from antiadv.models.wrap import wrap

X = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def linear(inputs: int = 192) -> nn.Module:
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 5)).eval()


class Returns(nn.Module):
    """Returns its scores inside something else."""

    def __init__(self, net: nn.Module, how: str) -> None:
        super().__init__()
        self.net, self.how = net, how

    def forward(self, x: Tensor) -> Any:
        s = self.net(x)
        return {"tuple": (s, x), "dict": {"logits": s}, "none": None}[self.how]


def test_mean_and_std_are_applied_once() -> None:
    net, mean, std = linear(), torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.6, 0.7])
    by_hand = net((X - mean[:, None, None]) / std[:, None, None])
    torch.testing.assert_close(wrap(net, mean=mean.tolist(), std=std.tolist())(X), by_hand)


def test_scale_channel_order_size_and_layout() -> None:
    net = linear()
    torch.testing.assert_close(wrap(net, scale=255)(X), net(255 * X))
    torch.testing.assert_close(wrap(net, bgr=True)(X), net(X.flip(1)))
    torch.testing.assert_close(wrap(net, channels_last=True)(X), net(X.permute(0, 2, 3, 1)))
    small = wrap(linear(48), size=4)
    assert small(X).shape == (4, 5)
    assert small(X[:, :, :4, :4]).equal(linear(48)(X[:, :, :4, :4]))  # the right size is left alone


@pytest.mark.parametrize("how", ["tuple", "dict"])
def test_scores_are_found_in_what_a_model_returns(how: str) -> None:
    assert wrap(Returns(linear(), how))(X).equal(linear()(X))


def test_a_model_without_scores_is_refused() -> None:
    with pytest.raises(BadInput, match="NoneType"):
        wrap(Returns(linear(), "none"))(X)
    with pytest.raises(BadInput):
        wrap("resnet")  # type: ignore[arg-type]


def test_probabilities_become_logits_with_the_same_softmax() -> None:
    net = linear()
    s = wrap(nn.Sequential(net, nn.Softmax(1)), output="probabilities")(X)
    torch.testing.assert_close(s.softmax(1), net(X).softmax(1))
    assert s.max() <= 0


def test_a_function_on_arrays_serves_scores_and_refuses_gradients() -> None:
    weights = linear()[1].weight.detach().numpy()  # type: ignore[index]

    def function(images: np.ndarray[Any, Any]) -> Any:
        assert images.dtype == np.float32
        return images.reshape(len(images), -1) @ weights.T

    net = wrap(function)
    y = net(X).argmax(1)
    found = antiadv.attack(net, X, y, "square", antiadv.Linf(0.2), queries=20)
    assert all(record.queries for record in found.records)
    with pytest.raises(BadInput, match="gradient"):
        antiadv.attack(net, X, y, "pgd", antiadv.Linf(0.2))


def shifted(images: np.ndarray[Any, Any]) -> Any:
    """A function that prepares its images in place."""
    images -= 0.5
    return images.reshape(len(images), -1)[:, :5] + 0.5


def test_a_function_that_writes_into_its_images_changes_nothing_else() -> None:
    plain, writes = wrap(lambda images: images.reshape(len(images), -1)[:, :5]), wrap(shifted)
    before, y = X.clone(), plain(X).argmax(1)
    torch.testing.assert_close(writes(X), plain(X))
    assert X.equal(before)
    found = [antiadv.attack(net, X, y, "square", antiadv.Linf(0.1), queries=40) for net in (plain, writes)]
    assert found[0].images.equal(found[1].images)
    assert [r.queries for r in found[0].records] == [r.queries for r in found[1].records]


def test_a_function_that_returns_no_array_gets_a_sentence() -> None:
    with pytest.raises(BadInput, match="dict"):
        wrap(lambda images: {"logits": images})(X)


@pytest.mark.parametrize("output", ["probability", "scores", None])
def test_an_unknown_output_is_refused_with_the_list(output: Any) -> None:
    with pytest.raises(BadInput, match="probabilities"):
        wrap(linear(), output=output)


@pytest.mark.parametrize("given", [np.full(3, 0.5), torch.full((3, 1, 1), 0.5), 0.5, np.float32(0.5), [0.5]])
def test_mean_and_std_are_numbers_arrays_or_tensors(given: Any) -> None:
    torch.testing.assert_close(wrap(linear(), mean=given, std=given)(X), linear()(2 * X - 1))


@pytest.mark.parametrize("given", ["half", float("nan"), [], object()])
def test_another_mean_is_refused(given: Any) -> None:
    with pytest.raises(BadInput):
        wrap(linear(), mean=given)


def test_settings_of_timm_are_used_and_what_is_given_counts_more() -> None:
    net = linear()
    net.pretrained_cfg = {"mean": (0.5,) * 3, "std": (0.25,) * 3, "input_size": (3, 8, 8)}  # type: ignore[assignment]
    torch.testing.assert_close(wrap(net)(X), net((X - 0.5) / 0.25))
    torch.testing.assert_close(wrap(net, mean=(0.0,), std=(1.0,))(X), net(X))


def test_networks_of_timm_built_from_a_name(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm", reason="timm is not installed")
    net = timm.create_model("resnet10t", pretrained=False, num_classes=7).eval()
    mean, std = (torch.tensor(net.pretrained_cfg[k])[:, None, None] for k in ("mean", "std"))
    x = torch.rand(2, 3, *net.pretrained_cfg["input_size"][1:], generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(wrap(net)(x), net((x - mean) / std))
    torch.save({"state_dict": net.state_dict()}, tmp_path / "net.pt")
    loaded = models.load(f"timm:resnet10t,path={tmp_path / 'net.pt'},classes=7")
    torch.testing.assert_close(loaded(x), wrap(net)(x))
    assert len(antiadv.attack(loaded, x, loaded(x).argmax(1), "pgd:steps=1", antiadv.Linf(0.1)).records) == 2
    with pytest.raises(BadInput, match="no network"):
        models.load(f"timm:not-one,path={tmp_path / 'net.pt'}")


@pytest.mark.filterwarnings("ignore")  # tracing is deprecated, files remain
def test_torchscript(tmp_path: Path) -> None:
    net, path = linear(), tmp_path / "net.pt"
    torch.jit.trace(net, X).save(str(path))
    loaded = models.load(f"torchscript:{path}")
    torch.testing.assert_close(loaded(X), net(X))
    y = net(X).argmax(1)
    assert antiadv.attack(loaded, X, y, "pgd", antiadv.Linf(0.3)).robust_accuracy < 1
    (tmp_path / "broken.pt").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(BadInput, match="TorchScript"):
        models.load(f"torchscript:{tmp_path / 'broken.pt'}")


def save_onnx(net: nn.Module, path: Path) -> None:
    pytest.importorskip("onnxscript")
    batch = torch.export.Dim("batch", min=1, max=64)
    torch.onnx.export(net, (X,), str(path), dynamo=True, verbose=False, dynamic_shapes=({0: batch},))


@pytest.mark.filterwarnings("ignore")  # of the exporter, about its own parts
def test_onnx_files_are_networks_named_by_their_content(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    net, path = linear(), tmp_path / "net.onnx"
    save_onnx(net, path)
    loaded = models.load(f"onnx:{path}")
    torch.testing.assert_close(loaded(X), net(X), atol=1e-5, rtol=1e-5)
    before = models.digest(loaded)
    with torch.no_grad():
        net[1].bias += 1  # type: ignore[index]
    save_onnx(net, path)
    assert models.digest(models.load(f"onnx:{path}")) != before
    assert models.label(f"onnx:{path}") == "onnx:net.onnx"
    path.write_bytes(b"not onnx")
    with pytest.raises(BadInput, match="ONNX"):
        models.load(f"onnx:{path}")


@pytest.mark.filterwarnings("ignore")  # of the exporter, about its own parts
def test_an_onnx_file_for_one_image_takes_any_number(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    net, path = linear(), tmp_path / "net.onnx"
    torch.onnx.export(net, (X[:1],), str(path), dynamo=True, verbose=False)
    loaded = models.load(f"onnx:{path}")
    torch.testing.assert_close(loaded(X), net(X), atol=1e-5, rtol=1e-5)
    with pytest.raises(BadInput, match="takes images of shape"):
        loaded(torch.rand(2, 3, 9, 9))


@pytest.mark.filterwarnings("ignore")  # of the exporter, about its own parts
def test_weights_beside_an_onnx_file_are_in_its_digest(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    path = tmp_path / "net.onnx"
    save_onnx(linear(), path)
    whole = onnx.load(str(path))
    onnx.save(whole, str(path), save_as_external_data=True, location="weights.bin", size_threshold=128)
    (tmp_path / "other.bin").write_bytes(b"not named")
    before, scores = models.digest(models.load(f"onnx:{path}")), models.load(f"onnx:{path}")(X)
    (tmp_path / "other.bin").write_bytes(b"changed")
    assert models.digest(models.load(f"onnx:{path}")) == before
    content = bytearray((tmp_path / "weights.bin").read_bytes())
    content[-2] ^= 1
    (tmp_path / "weights.bin").write_bytes(content)
    changed = models.load(f"onnx:{path}")
    assert models.digest(changed) != before
    assert not torch.equal(changed(X), scores)


@pytest.mark.parametrize(
    "content",
    [b"[" * 100_000, b'{"image_mean": [1' + b"0" * 400 + b'], "image_std": [1]}', b'{"size": {"height": Infinity}}'],
)
def test_a_strange_processor_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_bytes(content)
    with pytest.raises(BadInput):
        of_folder(tmp_path)


def test_a_folder_of_hugging_face(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        image_size=8, patch_size=4, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        num_labels=4,
    )  # fmt: skip
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path)
    processor = {"do_resize": True, "size": {"height": 8, "width": 8}, "image_mean": [0.5] * 3, "image_std": [0.2] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    net = models.load(f"huggingface:{tmp_path}")
    again = transformers.ViTForImageClassification.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(net(X), again((X - 0.5) / 0.2).logits)
    assert net(torch.rand(2, 3, 20, 20)).shape == (2, 4)
    y = net(X).argmax(1)
    assert antiadv.AntiAdversary(net, steps=1, step_size=0.01)(X).shape == (4, 4)
    assert len(antiadv.attack(net, X, y, "pgd:steps=2", antiadv.Linf(0.1)).records) == 4


@pytest.mark.parametrize("text", ["[]", '{"image_mean": 1}', '{"size": {"height": "a"}}', "{"])
def test_a_broken_processor_gets_a_sentence(text: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "preprocessor_config.json").write_text(text)
    with pytest.raises(BadInput):
        of_folder(tmp_path)
    with pytest.raises(BadInput, match=r"config\.json"):
        models.load(f"huggingface:{tmp_path}")


def quantised(net: nn.Module, kind: torch.dtype = torch.qint8) -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(net, {nn.Linear, nn.LSTM}, dtype=kind)  # type: ignore[no-any-return]


def moved(net: nn.Module) -> nn.Module:
    """The same network with one weight a little larger."""
    with torch.no_grad():
        net[1].weight[0, 0] += 0.05  # type: ignore[index]
    return net


@pytest.mark.filterwarnings("ignore")  # dynamic quantisation is deprecated
def test_quantised_weights_are_in_the_digest() -> None:
    made = [quantised(linear()), quantised(moved(linear())), quantised(linear(), torch.float16)]
    assert models.digest(made[0]) == models.digest(quantised(linear()))
    assert len({models.digest(net) for net in (*made, linear())}) == 4
    lstm = nn.ModuleList([nn.LSTM(3, 4)])
    other = copy.deepcopy(lstm)
    assert models.digest(quantised(lstm)) == models.digest(quantised(other))
    nn.init.zeros_(other[0].weight_hh_l0)  # type: ignore[arg-type]
    assert models.digest(quantised(lstm)) != models.digest(quantised(other))


@pytest.mark.filterwarnings("ignore")  # dynamic quantisation is deprecated
def test_a_quantised_network_can_be_evaluated_in_a_store(tmp_path: Path) -> None:
    net = wrap(quantised(nn.Sequential(nn.Flatten(), nn.Linear(32 * 32 * 3, 10)).eval()))
    resources = Resources("cpu", models={"mine": net})
    cell = make_cell(
        model="mine", attack="square", threat="linf:8/255,queries=5", samples=range(3), resources=resources
    )
    evaluate([cell], tmp_path, resources=resources, batch=1)
    assert len(Store(tmp_path).read(cell)) == 3


@pytest.mark.filterwarnings("ignore")  # dynamic quantisation is deprecated
def test_a_quantised_network_serves_attacks_on_scores() -> None:
    wrapped = wrap(quantised(linear()))
    y = wrapped(X).argmax(1)
    assert len(antiadv.attack(wrapped, X, y, "square", antiadv.Linf(0.2), queries=5).records) == 4
