"""Loading by name: a loaded network is ready to be attacked, and a failure is one clear error."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from antiadv import models
from antiadv.core.errors import BadInput, BadSpec
from antiadv.models import loaders
from antiadv.models.card import Accuracy, Card, read_card, write_card

ARCHITECTURE = "preact18:width=2,normalise=cifar10"


def publish(folder: Path, name: str, **changes: Any) -> nn.Module:
    """Write rounded weights and their card, as train/card.py does."""
    folder.mkdir(exist_ok=True)
    network = models.build(ARCHITECTURE + ",seed=4")
    state = {key: t.half() if t.dim() > 1 else t for key, t in network.state_dict().items()}
    path = folder / f"{name}.safetensors"
    safetensors.torch.save_file(state, path)
    network.load_state_dict(state)
    card = {
        "name": name,
        "command": "antiadv train trades",
        "recipe": "trades:beta=6",
        "architecture": ARCHITECTURE,
        "data": {"name": "cifar10", "train": "sha256:a", "test": "sha256:b"},
        "epochs": 30,
        "seconds": 62.5,
        "hardware": "a GPU",
        "clean": {"hits": 8912, "total": 10000, "accuracy": 0.8912, "interval_95": [0.885, 0.897]},
        "pgd20": {"hits": 4321, "total": 10000, "eps": "8/255"},
        "file": {"name": path.name, "digest": "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()},
        "weights": models.digest(network),
    }
    path.with_suffix(".json").write_text(json.dumps(card | changes))
    return network


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty zoo and an empty current directory, so that the tests do not depend on trained networks."""
    monkeypatch.setattr(loaders, "zoo_folder", lambda: tmp_path / "zoo")
    monkeypatch.setattr(loaders, "weights_folders", lambda: [tmp_path / "weights"])
    monkeypatch.chdir(tmp_path)
    return tmp_path / "zoo"


# ---------------------------------------------------------------- loaded networks


def test_a_loaded_network_is_ready_and_its_own(zoo: Path) -> None:
    due = publish(zoo, "compact-cifar10-trades")
    state = torch.get_rng_state()
    network = models.load("compact:trades")
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module.training for module in network.modules())
    assert not any(p.requires_grad for p in network.parameters())
    assert {p.dtype for p in network.parameters()} == {torch.float32}
    assert models.digest(network) == models.digest(due)
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(network(x), due.eval()(x).detach())


def test_the_shipped_networks_load() -> None:
    """The cards in the package and in weights/ match their files."""
    for card in models.cards():
        network = models.load(card.spec)
        assert models.canonical(card.spec) == card.spec
        assert card.weights in (None, models.digest(network))


def test_weights_folder_and_path_are_the_same_network(zoo: Path) -> None:
    due = publish(zoo.parent / "weights", "wrn16-4-cifar10-awp")
    path = zoo.parent / "weights" / "wrn16-4-cifar10-awp.safetensors"
    for text in ("wrn16-4:awp", f"wrn16-4:awp,path={path}", f"file:{path}", f"file:path={path}"):
        assert models.digest(models.load(text)) == models.digest(due)


def test_a_path_without_a_card_is_the_plain_architecture(zoo: Path) -> None:
    network = models.build("wrn:depth=16,widen=4,classes=100,seed=1")
    torch.save(network.state_dict(), "mine.pt")
    assert models.digest(models.load("wrn16-4:trades,path=mine.pt,data=cifar100")) == models.digest(network)
    assert models.digest(models.load("file:mine.pt,architecture=(wrn:16,4,100)")) == models.digest(network)
    with pytest.raises(BadInput, match=r"mine.pt .*mine.json.*architecture="):
        models.load("file:mine.pt")


# ---------------------------------------------------------------- errors


def test_a_network_for_imagenet_without_normalisation_is_not_silent(tmp_path: Path) -> None:
    net = models.build("resnet50:width=8")
    torch.save({"mu": torch.zeros(3), **net.state_dict()}, tmp_path / "net.pt")
    with pytest.warns(UserWarning, match="normalis"):
        models.load(f"file:{tmp_path / 'net.pt'},architecture=(resnet50:width=8)")
    models.load(f"file:{tmp_path / 'net.pt'},architecture=(resnet50:width=8,normalise=none)")
    torch.save(net.state_dict(), tmp_path / "plain.pt")
    models.load(f"file:{tmp_path / 'plain.pt'},architecture=(resnet50:width=8,normalise=imagenet)")


def test_an_unknown_variant_lists_the_known_ones(zoo: Path) -> None:
    publish(zoo, "compact-cifar10-trades")
    publish(zoo, "compact-cifar10-awp")
    publish(zoo, "compact-cifar100-mart")
    with pytest.raises(BadInput, match=r"compact-cifar10-mart .*: awp, trades$"):
        models.load("compact:mart")
    with pytest.raises(BadInput, match=r"no resnet18-cifar10-standard in .*weights/.*: none"):
        models.load("resnet18")


def test_a_changed_file_is_refused(zoo: Path) -> None:
    publish(zoo, "compact-cifar10-trades")
    path = zoo / "compact-cifar10-trades.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"its digest is .*expected"):
        models.load("compact:trades")


def test_a_card_about_another_network_is_refused(zoo: Path) -> None:
    publish(zoo, "compact-cifar10-trades", architecture="preact18:width=2,normalise=half")
    with pytest.raises(BadInput, match=r"its digest is .*expected"):
        models.load("compact:trades")


def test_a_card_that_says_too_little_is_refused(zoo: Path) -> None:
    publish(zoo, "compact-cifar10-trades")
    (zoo / "compact-cifar10-trades.json").write_text('{"clean": {"hits": 1, "total": 2}}')
    with pytest.raises(BadInput, match="card"):
        models.load("compact:trades")


def test_an_unknown_name_lists_the_known_ones(zoo: Path) -> None:
    with pytest.raises(BadSpec, match=r"did you mean compact\?.*no module 'compcat'"):
        models.load("compcat:trades")
    with pytest.raises(BadSpec, match=r"'wrn28-11'.*wrn28-10"):
        models.load("wrn28-11:mart")
    with pytest.raises(BadSpec, match="mart, hydra, awp, pretraining"):
        models.load("wrn28-10:trades,path=x")


@pytest.mark.parametrize("text", ["shop", "shop.py:make", "./shop.py:make", "elsewhere/shop.py:make", "shop:make"])
def test_a_wrong_name_says_how_to_name_a_network_of_your_own(text: str) -> None:
    with pytest.raises(BadSpec) as error:
        models.load(text)
    assert f"MODULE:FUNCTION, such as shop:make, and shop.py is looked for in {Path.cwd()}" in str(error.value)


# ---------------------------------------------------------------- your own networks


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Make a user's package in the current directory, and unload it afterwards."""
    (tmp_path / "mine_of_this_test").mkdir()
    (tmp_path / "mine_of_this_test" / "__init__.py").touch()
    (tmp_path / "mine_of_this_test" / "nets.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "def make_net(): return nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.Dropout()).double()\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self): super().__init__(4, 2)\n"
        "    @classmethod\n"
        "    def make(cls): return cls()\n"
        "def fails(): raise RuntimeError('no weights here')\n"
        "def exits(): raise SystemExit('bye')\n"
        "def lacks(): import a_package_nobody_has\n"
        "def number(): return 3\n"
        "constant = 5\n"
        "instance = Net()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    yield "mine_of_this_test.nets"
    for name in [name for name in sys.modules if name.startswith("mine_of_this_test")]:
        del sys.modules[name]


def test_a_network_of_your_own_enters_by_import_path(module: str) -> None:
    path, state = list(sys.path), torch.get_rng_state()
    network = models.load(f"{module}:make_net")
    assert network(torch.zeros(2, 3, 2, 2)).shape == (2, 3)
    assert not network.training
    assert {p.dtype for p in network.parameters()} == {torch.float32}
    assert not any(p.requires_grad for p in network.parameters())
    assert sys.path == path
    assert torch.equal(torch.get_rng_state(), state)


def test_untrained_weights_of_your_own_are_the_same_in_every_process(module: str) -> None:
    first = models.digest(models.load(f"{module}:Net"))
    torch.rand(5)
    assert models.digest(models.load(f"{module}:Net.make")) == first


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fails", "RuntimeError: no weights here"),
        ("exits", "SystemExit: bye"),
        ("lacks", "No module named 'a_package_nobody_has'"),
        ("number", "returned int; return an nn.Module"),
        ("constant", "TypeError"),
        ("instance", "is a network"),
        ("absent", "AttributeError"),
    ],
)
def test_whatever_goes_wrong_in_your_code_is_one_sentence(module: str, name: str, reason: str) -> None:
    with pytest.raises(BadInput, match=reason) as error:
        models.load(f"{module}:{name}")
    assert f"{module}:{name}" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_not_said_to_lack_its_card(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a file"):
        models.load(f"file:{tmp_path / 'none.safetensors'}")


def test_a_module_that_is_not_there_is_unknown(module: str) -> None:
    with pytest.raises(BadSpec, match=r"no module 'mine_of_this_test\.neets'"):
        models.load("mine_of_this_test.neets:make_net")


def test_a_registered_name_comes_before_a_module(zoo: Path) -> None:
    (zoo.parent / "compact.py").write_text("def trades(): raise AssertionError('the module was imported')\n")
    with pytest.raises(BadInput, match="no compact-cifar10-trades in the package"):
        models.load("compact:trades")


# ---------------------------------------------------------------- digest, canonical, cards


def test_digest_is_of_names_types_shapes_and_bytes() -> None:
    network = nn.Linear(2, 1)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0, -2.0]]))
        network.bias.zero_()
    written = b"bias torch.float32 (1,)\n" + bytes(4)
    written += b"weight torch.float32 (1, 2)\n" + bytes.fromhex("0000803f") + bytes.fromhex("000000c0")
    assert models.digest(network) == "sha256:" + hashlib.sha256(written).hexdigest()


@pytest.mark.parametrize("change", ["weight", "counter", "constant", "type"])
def test_digest_sees_every_change(change: str) -> None:
    network = models.build(ARCHITECTURE)
    before = models.digest(network)
    with torch.no_grad():
        if change == "weight":
            network.get_parameter("fc.weight")[0, 0] += 1e-6
        elif change == "counter":
            network.get_buffer("bn.num_batches_tracked").add_(1)
        elif change == "constant":
            network.get_buffer("normalise.mean")[0] += 1e-6
        else:
            network.half()
    assert models.digest(network) != before


def test_digest_does_not_see_mode_or_layout() -> None:
    network = models.build(ARCHITECTURE)
    before = models.digest(network)
    network.eval().requires_grad_(False)
    assert models.digest(network.to(memory_format=torch.channels_last)) == before  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("compact", "compact:standard"),
        ("compact:trades", "compact:trades"),
        ("compact:variant=trades,data=cifar10", "compact:trades"),
        ("compact:data=cifar100,variant=awp", "compact:awp,data=cifar100"),
        ("wrn28-10:mart,path=/some/where.pt", "wrn28-10:mart"),
        ("resnet50:path=/some/where.pt", "resnet50:v1.5"),
        ("file:/some/where.pt,architecture=(wrn:16,4)", "file:architecture=(wrn:16,4)"),
        (" my.module:make_net ", "my.module:make_net"),
    ],
)
def test_canonical_names(text: str, normal: str) -> None:
    assert models.canonical(text) == normal
    if not normal.startswith("file"):
        assert models.canonical(normal) == normal


def test_a_network_in_hand_keeps_its_name_and_unknown_options_are_refused() -> None:
    assert models.canonical(" mine ") == "mine"
    with pytest.raises(BadSpec, match=r"'variants'.* variant\b"):
        models.canonical("compact:variants=trades")


def test_cards_are_listed_with_the_text_that_loads_them(zoo: Path) -> None:
    publish(zoo, "compact-cifar10-trades")
    publish(zoo, "compact-cifar100-awp")
    publish(zoo.parent / "weights", "resnet18-cifar10-standard")
    (zoo / "alone.json").write_text("a card without weights is not listed, so it is not even read")
    assert [card.spec for card in models.cards()] == [
        "compact:trades",
        "compact:awp,data=cifar100",
        "resnet18:standard",
    ]
    for card in models.cards():
        assert models.digest(models.load(card.spec)) == card.weights
    names = [line["name"] for line in models.catalogue()]
    assert names[:3] == [card.spec for card in models.cards()]
    assert "wrn28-10:hydra,path=FILE" in names
    assert models.catalogue()[0]["clean"] == "89.1%"


def test_cards_are_written_and_read_back(tmp_path: Path) -> None:
    card = Card(
        "compact-cifar10-trades",
        ARCHITECTURE,
        "antiadv train trades",
        30,
        62.5,
        "a GPU",
        {"name": "cifar10", "train": "sha256:a", "test": "sha256:b"},
        {"digest": "sha256:c", "bytes": 1},
        Accuracy(9, 10),
        Accuracy(4, 10, {"eps": "8/255"}),
        more={"recipe": "trades"},
    )
    write_card(card, tmp_path / "card.json")
    assert read_card(tmp_path / "card.json") == card
    assert json.loads((tmp_path / "card.json").read_text())["pgd20"] == {"hits": 4, "total": 10, "eps": "8/255"}
    assert [p.name for p in tmp_path.iterdir()] == ["card.json"]
