"""Pruned weights come back to the bit, whatever their shape, and a damaged file says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from antiadv import models
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.models.checkpoints import read
from antiadv.models.loaders import zoo_folder
from antiadv.models.sparse import expand, squeeze


def pruned(*shape: int, keep: float = 0.1, seed: int = 0) -> Tensor:
    dice = Draws.of(seed, torch.arange(1))
    values, kept = dice.normal(*shape)[0], dice.fold(1).uniform(*shape)[0] < keep
    return (values * kept).half()


@given(st.lists(st.integers(1, 9), min_size=2, max_size=4), st.floats(0, 1), st.integers(0, 99))
def test_what_goes_in_comes_out(shape: list[int], keep: float, seed: int) -> None:
    state = {"a": pruned(*shape, keep=keep, seed=seed), "b": torch.zeros(7), "c": torch.arange(4)}
    back = expand(squeeze(state))
    assert back.keys() == state.keys()
    for name, t in state.items():
        assert torch.equal(back[name], t)
        assert back[name].dtype == t.dtype


def test_only_what_is_mostly_zeros_is_written_short() -> None:
    dense, sparse = pruned(20, 20, keep=0.6), pruned(20, 20, keep=0.4)
    assert set(squeeze({"d": dense, "s": sparse})) == {"d", "s:kept", "s:values", "s:shape"}


def test_a_pruned_network_of_the_zoo_takes_a_sixth_of_the_others() -> None:
    sizes = {p.stem: p.stat().st_size for p in zoo_folder().glob("compact-cifar10-*.safetensors")}
    assert sizes["compact-cifar10-hydra"] < sizes["compact-cifar10-trades"] / 5
    weights = [p for p in models.load("compact:hydra").parameters() if p.dim() == 4]
    assert sum(int((p == 0).sum()) for p in weights) / sum(p.numel() for p in weights) == pytest.approx(0.9, abs=1e-3)


@pytest.mark.parametrize("lost", ["w:kept", "w:values", "w:shape"])
def test_a_missing_part_is_named(tmp_path: Path, lost: str) -> None:
    short = squeeze({"w": pruned(9, 9)})
    del short[lost]
    save_file(short | {"b": torch.zeros(1)}, tmp_path / "x.safetensors")
    if lost == "w:kept":  # then the others are surplus keys, which whoever fills a network names
        assert "w:values" in read(tmp_path / "x.safetensors")
        return
    with pytest.raises(BadInput, match=r"^\S*x\.safetensors holds a part of the pruned tensor w"):
        read(tmp_path / "x.safetensors")


@pytest.mark.parametrize("damage", ["a value less", "another shape", "a stray bit"])
def test_parts_that_do_not_fit_are_refused(damage: str) -> None:
    short = squeeze({"w": pruned(9, 9)})
    if damage == "a value less":
        short["w:values"] = short["w:values"][1:]
    elif damage == "another shape":
        short["w:shape"] = torch.tensor([9, 10])
    else:
        short["w:kept"][-1] |= 128
    with pytest.raises(BadInput, match="get it again"):
        expand(short)


@pytest.mark.parametrize("part", ["w:kept", "w:values", "w:shape"])
def test_a_part_that_is_no_list_is_refused(part: str) -> None:
    short = squeeze({"w": pruned(9, 9)})
    with pytest.raises(BadInput, match="holds parts of the pruned tensor w that are no lists"):
        expand(short | {part: short[part][None]})
    with pytest.raises(BadInput, match="no lists"):
        expand(short | {"w:shape": -short["w:shape"]})
