"""Robust feature inference: the edit by hand, the file it needs, and attacks on the edited network."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import antiadv
from antiadv.core.errors import BadInput, BadSpec
from antiadv.defences import wrap
from antiadv.defences.robust_features import RobustFeatures, edit, last_layer, write_moment
from tests.toys import make_small_net, small_net, spec_for

W = [[3.0, 1.0, 0.5, 0.0], [-3.0, 1.0, 0.0, 0.5]]
BIAS = [-1.5, 1.5]


def linear() -> nn.Sequential:
    """Its features are the four pixels of an image [1, 2, 2]."""
    layer = nn.Linear(4, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(W))
        layer.bias.copy_(torch.tensor(BIAS))
    return nn.Sequential(nn.Flatten(), layer).eval()


def pixels(*sizes: float) -> Tensor:
    """Four images, the k-th with pixel k alone: their second moment is diagonal, with size²/4."""
    return torch.diag(torch.tensor(sizes, dtype=torch.float32)).view(4, 1, 2, 2)


def test_the_second_moment_is_that_of_the_features(tmp_path: Path) -> None:
    write_moment(tmp_path / "m.safetensors", linear(), pixels(1, 0.8, 0.6, 0.2), batch=3)
    held = load_file(tmp_path / "m.safetensors")
    torch.testing.assert_close(held["moment"], torch.diag(torch.tensor([1, 0.64, 0.36, 0.04]) / 4))
    assert held["weight"].tolist() == W


def test_the_edit_keeps_the_best_directions_of_each_class(tmp_path: Path) -> None:
    """Ranks of class 0 are λ·w²: 9, 0.64, 0.09, 0. Those of class 1 are 9, 0.64, 0, 0.01."""
    path, net = str(tmp_path / "m.safetensors"), linear()
    write_moment(path, net, pixels(1, 0.8, 0.6, 0.2))
    x = torch.rand((5, 1, 2, 2), generator=torch.Generator().manual_seed(0))
    for keep, kept in ((1, [1, 0, 0, 0]), (2, [1, 1, 0, 0]), (None, [1, 1, 0, 0]), (4, [1, 1, 1, 1])):
        g = RobustFeatures(net, path, keep)
        expected = x.flatten(1) @ (torch.tensor(W) * torch.tensor(kept)).T + torch.tensor(BIAS)
        torch.testing.assert_close(g(x), expected)
    assert last_layer(net).weight.tolist() == W, "the network itself is left as it is"


def test_the_moment_decides_which_directions_matter(tmp_path: Path) -> None:
    """A large weight on a feature that hardly varies is dropped: 9·0.01² is less than 0.64."""
    path = str(tmp_path / "m.safetensors")
    write_moment(path, linear(), pixels(0.01, 0.8, 0.6, 0.2))
    edited = last_layer(RobustFeatures(linear(), path, 1).base)
    torch.testing.assert_close(edited.weight.data, torch.tensor([[0.0, 1, 0, 0], [0, 1, 0, 0]]))


def test_the_edit_is_the_same_in_any_basis() -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.linalg.qr(torch.randn((4, 4), dtype=torch.float64, generator=generator)).Q
    w, moment = torch.tensor(W).double(), torch.diag(torch.tensor([4.0, 3, 2, 1]).double())
    torch.testing.assert_close(edit(w @ q.T, q @ moment @ q.T, 1) @ q, edit(w, moment, 1))


def test_gradient_attacks_reach_the_boundary_of_the_edited_network(tmp_path: Path) -> None:
    """With keep=1 it is a half-space: 6·(pixel 0 − ½), at distance |pixel 0 − ½|."""
    path = str(tmp_path / "m.safetensors")
    write_moment(path, linear(), pixels(1, 0.8, 0.6, 0.2))
    g = RobustFeatures(linear(), path, 1)
    x = torch.full((4, 1, 2, 2), 0.5)
    x[:, 0, 0, 0] += torch.tensor([0.1, -0.1, 0.1, -0.1])
    y = torch.tensor([0, 1, 0, 1])
    for attack in ("adaptive:steps=20", "fast"):
        for p in (2, math.inf):
            beyond, inside = (antiadv.attack(g, x, y, attack, antiadv.Ball(p, r)) for r in (0.105, 0.095))
            assert (beyond.robust_accuracy, inside.robust_accuracy) == (0, 1)
    assert beyond.receipt.forwards > 0, "its passes are counted"


def test_the_content_of_the_file_is_in_the_key_of_a_cell(tmp_path: Path) -> None:
    path = str(tmp_path / "m.safetensors")
    x = torch.rand((40, 3, 32, 32), generator=torch.Generator().manual_seed(0))
    resources = antiadv.Resources("cpu")

    def cell(defence: str = f"robust_features:path={path}") -> antiadv.Cell:
        return antiadv.make_cell(
            model="tests.toys:make_small_net",
            defence=defence,
            attack="pgd:steps=1",
            threat="linf:8/255",
            samples=range(2),
            resources=resources,
        )

    write_moment(path, make_small_net(), x)
    first, bare = cell(), cell("none")
    assert first.files.startswith("sha256:")
    assert bare.files == ""
    resources.check(first)
    before = resources.defended(first.model, first.defence)
    write_moment(path, make_small_net(), x[:20])
    assert cell().key != first.key
    assert dataclasses.replace(cell(), files=first.files).key == first.key
    with pytest.raises(BadInput, match="files"):
        resources.check(first)
    assert not torch.equal(resources.defended(first.model, first.defence)(x), before(x)), "the new file is read"


def test_a_verdict_takes_its_text() -> None:
    net, x = small_net(classes=5), torch.rand((4, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    made = antiadv.verdict(net, x, net(x).argmax(1), spec_for("robust_features", net), queries=10)
    assert made.samples == 4


def test_what_cannot_be_used_is_refused_in_words(tmp_path: Path) -> None:
    path, net, x = str(tmp_path / "m.safetensors"), linear(), pixels(1, 1, 1, 1)
    with pytest.raises(BadSpec, match="path"):
        wrap("robust_features", net)
    with pytest.raises(BadInput, match="no file"):
        RobustFeatures(net, path)
    Path(path).write_bytes(b"no tensors")
    with pytest.raises(BadInput, match="safetensors"):
        RobustFeatures(net, path)
    save_file({"basis": torch.zeros(4, 4)}, path)
    with pytest.raises(BadInput, match="moment"):
        RobustFeatures(net, path)
    write_moment(path, net, x)
    other = linear()
    last_layer(other).weight.data[0, 0] += 1
    with pytest.raises(BadInput, match="another network"):
        RobustFeatures(other, path)
    for keep in (0, True, 1.5):
        with pytest.raises(BadInput, match="keep"):
            RobustFeatures(net, path, keep)  # type: ignore[arg-type]
    for bad in (nn.Sequential(linear(), nn.Tanh()).eval(), nn.Flatten().eval()):
        with pytest.raises(BadInput, match="linear layer"):
            write_moment(path, bad, x)
    with pytest.raises(BadInput, match="images"):
        write_moment(path, net, x[:0])
