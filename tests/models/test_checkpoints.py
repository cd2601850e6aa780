"""Files in the layouts that were published: each loads, and other files are refused.

The small network stands for the large ones: a layout is a matter of keys and wrappers. The full sizes are at the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from antiadv import models
from antiadv.core.errors import BadInput
from antiadv.models import checkpoints

SMALL = "wrn:depth=10,widen=1"
State = dict[str, Tensor]


def trained(text: str = SMALL) -> nn.Module:
    """Return a network in which every tensor, including counters, differs from an untrained one."""
    network = models.build(text + (",seed=3" if ":" in text else ":seed=3"))
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            if name.endswith("num_batches_tracked"):
                tensor.fill_(77)
            else:
                tensor.add_(torch.rand(tensor.shape, generator=generator) / 8)
    return network


def loaded(path: Path, text: str = SMALL) -> nn.Module:
    network = models.build(text)
    checkpoints.fill(network, checkpoints.plain(checkpoints.read(path)), str(path))
    return network


def with_sub_block(state: State) -> State:
    """TRADES, MART, HYDRA and RST-AWP have a second first group that no forward pass uses."""
    dead = {
        key.replace("block1.", "sub_block1."): value * 0 for key, value in state.items() if key.startswith("block1.")
    }
    return state | dead


def with_prefix(prefix: str) -> Callable[[State], State]:
    return lambda state: {prefix + key: value for key, value in state.items()}


def without_counters(state: State) -> State:
    return {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")}


LAYOUTS: dict[str, Callable[[State], Any]] = {
    "TRADES, MART: the state_dict alone, dead block": with_sub_block,
    "RST-AWP: wrapped, module., dead block": lambda s: {"state_dict": with_prefix("module.")(with_sub_block(s))},
    "HYDRA, dense: training state around it": lambda s: {
        "epoch": 100,
        "arch": "wrn_28_10",
        "state_dict": with_prefix("module.")(with_sub_block(s)),
        "best_prec1": torch.tensor(88.97),
        "optimizer": {"state": {0: {"momentum_buffer": torch.zeros(3)}}, "param_groups": [{"lr": 0.01, "params": [0]}]},
    },
    "ImageNet-Pre: DataParallel, of old": lambda s: with_prefix("module.")(without_counters(s)),
    "AT-AWP: plain": lambda s: s,
    "RobustBench: model inside a model": lambda s: {"model_state_dict": with_prefix("model.module.")(s)},
    "kuangliu: net and accuracy": lambda s: {"net": with_prefix("module.")(s), "acc": 95.4, "epoch": 199},
    "compiled": with_prefix("_orig_mod."),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_published_layouts_load(layout: str, tmp_path: Path) -> None:
    network = trained()
    torch.save(LAYOUTS[layout](network.state_dict()), tmp_path / "file.pt")
    found, due = loaded(tmp_path / "file.pt").state_dict(), network.state_dict()
    for key, value in due.items():
        if not key.endswith("num_batches_tracked"):
            assert torch.equal(found[key], value), key


def test_only_the_start_of_a_key_is_a_prefix() -> None:
    """Two published loaders wrongly cut seven characters off every key that contains `module`."""
    state = {"submodule.weight": torch.zeros(1), "module.block.module.weight": torch.ones(1)}
    assert set(checkpoints.plain(state)) == {"submodule.weight", "block.module.weight"}


def test_counters_are_kept_where_the_file_has_them(tmp_path: Path) -> None:
    network = trained()
    torch.save(network.state_dict(), tmp_path / "file.pt")
    assert loaded(tmp_path / "file.pt").state_dict()["bn1.num_batches_tracked"] == 77
    assert models.digest(loaded(tmp_path / "file.pt")) == models.digest(network)


def test_the_old_file_format_and_safetensors_load(tmp_path: Path) -> None:
    network = trained()
    torch.save(network.state_dict(), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    safetensors.torch.save_file(network.state_dict(), tmp_path / "new.safetensors")
    assert models.digest(loaded(tmp_path / "old.pth")) == models.digest(network)
    assert models.digest(loaded(tmp_path / "new.safetensors")) == models.digest(network)


def test_half_precision_is_loaded_as_float32(tmp_path: Path) -> None:
    network = trained()
    torch.save(
        {k: v.half() if v.is_floating_point() else v for k, v in network.state_dict().items()}, tmp_path / "f.pt"
    )
    found = loaded(tmp_path / "f.pt")
    assert {p.dtype for p in found.parameters()} == {torch.float32}
    for value, due in zip(found.parameters(), network.parameters(), strict=True):
        assert torch.equal(value, due.half().float())


# ---------------------------------------------------------------- HYDRA's pruned file


def test_popup_scores_prune_the_lowest_nine_tenths_of_each_layer(tmp_path: Path) -> None:
    network, generator = trained(), torch.Generator().manual_seed(9)
    state = network.state_dict()
    pruned = [key for key in state if "conv" in key or key == "fc.weight"]
    scores = {k.replace("weight", "popup_scores"): torch.randn(state[k].shape, generator=generator) for k in pruned}
    content = with_prefix("module.")(with_sub_block(state) | scores)
    torch.save({"epoch": 20, "arch": "wrn", "state_dict": content, "best_prec1": 88.0}, tmp_path / "hydra.pth.tar")
    found = loaded(tmp_path / "hydra.pth.tar").state_dict()
    for key in pruned:
        importance = scores[key.replace("weight", "popup_scores")].abs()
        kept = found[key] != 0
        assert int((~kept).sum()) == int(0.9 * kept.numel())
        assert importance[kept].min() > importance[~kept].max()
        assert torch.equal(found[key][kept], state[key][kept])
    assert torch.equal(found["fc.bias"], state["fc.bias"])


def test_scores_without_their_weight_are_refused() -> None:
    with pytest.raises(BadInput, match=r"conv1\.popup_scores.*conv1\.weight"):
        checkpoints.plain({"conv1.popup_scores": torch.zeros(2)})


# ---------------------------------------------------------------- RobustBench's constants, and the head's other name


def test_constants_in_the_file_must_be_the_networks_own(tmp_path: Path) -> None:
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.50708, 0.48655, 0.44092), (0.26733, 0.25644, 0.27615)))
    torch.save(trained().state_dict() | {"mu": mean, "sigma": std}, tmp_path / "wu.pt")
    loaded(tmp_path / "wu.pt", SMALL + ",normalise=cifar100")
    with pytest.raises(BadInput, match=r"wu\.pt.*\bmu\b.*\[0\.507.*\[0\.49"):
        loaded(tmp_path / "wu.pt", SMALL + ",normalise=cifar10")
    with pytest.raises(BadInput, match="mu is"):
        loaded(tmp_path / "wu.pt")


def test_imagenet_models_of_robustbench(tmp_path: Path) -> None:
    network = trained("resnet50:width=2")
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    content = with_prefix("model.")(network.state_dict()) | {"normalize.mean": mean, "normalize.std": std}
    torch.save({"state_dict": content}, tmp_path / "salman.pt")
    found = loaded(tmp_path / "salman.pt", "resnet50:width=2,normalise=imagenet")
    assert torch.equal(found.state_dict()["fc.weight"], network.state_dict()["fc.weight"])


@pytest.mark.parametrize("text", ["resnet18:width=2", "preact18:width=2"])
def test_a_head_called_linear(text: str, tmp_path: Path) -> None:
    network = trained(text)
    torch.save({k.replace("fc.", "linear."): v for k, v in network.state_dict().items()}, tmp_path / "file.pt")
    assert models.digest(loaded(tmp_path / "file.pt", text)) == models.digest(network)


# ---------------------------------------------------------------- strictness


def test_a_missing_key_is_named() -> None:
    state = trained().state_dict()
    del state["block2.layer.0.bn1.running_var"]
    with pytest.raises(BadInput, match=r"lacks block2\.layer\.0\.bn1\.running_var"):
        checkpoints.fill(models.build(SMALL), state, "file.pt")


def test_a_surplus_key_is_named() -> None:
    state = trained().state_dict() | {"fc2.weight": torch.zeros(1)}
    with pytest.raises(BadInput, match=r"file\.pt.*WideResNet.*fc2\.weight"):
        checkpoints.fill(models.build(SMALL), state, "file.pt")


def test_a_head_by_both_names_is_one_too_many() -> None:
    state = trained().state_dict()
    with pytest.raises(BadInput, match=r"linear\.weight too many"):
        checkpoints.fill(models.build(SMALL), state | {"linear.weight": state["fc.weight"] + 1}, "file.pt")


def test_a_normalisation_of_other_channels_is_named() -> None:
    state = trained(SMALL + ",normalise=cifar10").state_dict() | {"mu": torch.tensor([0.5])}
    with pytest.raises(BadInput, match=r"mu is \[0.5\]"):
        checkpoints.fill(models.build(SMALL + ",normalise=cifar10"), state, "file.pt")


def test_a_file_that_holds_itself_ends(tmp_path: Path) -> None:
    content: dict[str, object] = {}
    content["model"] = content
    torch.save(content, tmp_path / "self.pt")
    with pytest.raises(BadInput, match=r"dict.*'model'"):
        checkpoints.read(tmp_path / "self.pt")


def test_many_keys_are_counted() -> None:
    with pytest.raises(BadInput, match=r"lacks block1\.layer\.1\.bn1\.weight.*\d+ more"):
        checkpoints.fill(models.build("wrn:depth=16,widen=1"), trained().state_dict(), "file.pt")


def test_a_misshapen_weight_is_named() -> None:
    with pytest.raises(BadInput, match=r"fc\.weight .*\(10, 64\).*\(100, 64\)"):
        checkpoints.fill(models.build(SMALL + ",classes=100"), trained().state_dict(), "file.pt")


def test_two_networks_in_one_file_are_refused() -> None:
    with pytest.raises(BadInput, match=r"conv1\.weight twice"):
        checkpoints.plain({"conv1.weight": torch.zeros(1), "module.conv1.weight": torch.zeros(1)})


# ---------------------------------------------------------------- other files


class Bomb:
    """Unpickling this would run a command."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.trace}",)


def test_a_file_that_could_run_code_is_refused_and_does_not_run(tmp_path: Path) -> None:
    torch.save({"state_dict": trained().state_dict(), "extra": Bomb(tmp_path / "trace")}, tmp_path / "bomb.pt")
    with pytest.raises(BadInput, match=r"bomb\.pt.*(posix|nt|os)\.system"):
        checkpoints.read(tmp_path / "bomb.pt")
    assert not (tmp_path / "trace").exists()


def test_a_pickled_module_is_refused_with_its_name(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
    with pytest.raises(BadInput, match=r"needs torch\.nn\.modules\.linear\.Linear.*state_dict"):
        checkpoints.read(tmp_path / "module.pt")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.98])
@pytest.mark.parametrize("name", ["file.pt", "file.safetensors"])
def test_a_truncated_file_is_one_sentence(name: str, share: float, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "file.pt":
        torch.save(trained().state_dict(), path)
    else:
        safetensors.torch.save_file(trained().state_dict(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(BadInput, match="truncated or no") as error:
        checkpoints.read(path)
    assert "\n" not in str(error.value)


def test_other_files_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text.pt").write_text("this is not a checkpoint at all, but it is long enough to look like one\n" * 9)
    torch.save([1, 2, 3], tmp_path / "list.pt")
    torch.save({"conv1.weight": "text"}, tmp_path / "words.pt")
    torch.save({}, tmp_path / "empty.pt")
    for name, reason in {
        "text.pt": "neither a zip nor a pickle",
        "list.pt": "holds list, not a state_dict",
        "words.pt": "holds str under 'conv1.weight', not a tensor",
        "empty.pt": "not a state_dict",
        "absent.pt": "is not a file",
    }.items():
        with pytest.raises(BadInput, match=reason) as error:
            checkpoints.read(tmp_path / name)
        assert "\n" not in str(error.value)


# ---------------------------------------------------------------- official names, in full size


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("wrn28-10:mart", "wrn:depth=28,widen=10"),
                ("wrn34-10:trades", "wrn:depth=34,widen=10"),
                ("wrn34-10:awp", "wrn:depth=34,widen=10,classes=100,normalise=cifar100"),
                ("resnet50", "resnet50:v1.5,normalise=imagenet"),
            ]
        ),
        ("wrn28-10:pretraining,data=cifar100", "wrn:depth=28,widen=10,classes=100,normalise=half"),
        ("resnet50:v1", "resnet50:v1,normalise=resnet50-v1"),
    ],
)
def test_official_names_make_the_right_network(name: str, architecture: str, tmp_path: Path) -> None:
    network = models.build(architecture + ",seed=2")
    half = {key: value.half() if value.dim() > 1 else value for key, value in network.state_dict().items()}
    torch.save({"state_dict": with_prefix("module.")(half)}, tmp_path / "file.pt")
    network.load_state_dict(half)
    found = models.load(f"{name}{',' if ':' in name else ':'}path={tmp_path / 'file.pt'}")
    assert models.digest(found) == models.digest(network)  # constants of the normalisation included
    for module, due in zip(found.modules(), network.modules(), strict=True):
        assert not isinstance(module, nn.Conv2d) or module.stride == due.stride


@pytest.mark.parametrize("name", ["wrn28-10:mart", "wrn28-10:hydra", "wrn28-10:awp", "wrn34-10:trades", "resnet50"])
def test_official_names_need_a_file(name: str) -> None:
    with pytest.raises(BadInput, match=rf"^{name}.*path=FILE"):
        models.load(name)


def test_what_was_not_published_is_refused() -> None:
    with pytest.raises(BadInput, match=r"wrn28-10:mart .*cifar10 only"):
        models.load("wrn28-10:mart,path=x,data=cifar100")
    with pytest.raises(BadInput, match=r"wrn34-10:awp .*cifar100 only"):
        models.load("wrn34-10:awp,path=x,data=cifar10")
