"""Large float16 weights are packed without loss, small networks stay plain, and a damaged file is refused."""

from __future__ import annotations

import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from antiadv import models
from antiadv.core.draws import Draws
from antiadv.core.errors import BadInput
from antiadv.models import packing
from antiadv.models.checkpoints import read
from antiadv.models.loaders import zoo_folder
from antiadv.models.packing import NETWORK, TENSOR, pack, unpack
from antiadv.train import Settings, parse, train
from tests.train.tiny import colours


@pytest.fixture(scope="module")
def weights() -> Tensor:
    """Normally distributed, as trained weights nearly are."""
    return (0.02 * Draws.of(0, torch.arange(1)).normal(100, 100, 10, 10)[0]).half()


@pytest.fixture(scope="module")
def written(weights: Tensor) -> dict[str, Tensor]:
    return pack({"w": weights})


@pytest.fixture
def short(written: dict[str, Tensor]) -> dict[str, Tensor]:
    return dict(written)


def same(a: Tensor, b: Tensor) -> bool:
    """Equal bit for bit, including NaN and the sign of zero."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.view(torch.int16), b.view(torch.int16))


# ---------------------------------------------------------------- packing and unpacking


def test_every_half_there_is_comes_back() -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.float16).repeat(16)
    assert len(every.view(torch.int16).unique()) == 2**16
    assert same(unpack(pack({"w": every}))["w"], every)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(0, 2**15))
def test_any_shape_in_any_order_of_memory_comes_back(shape: list[int], first: int) -> None:
    count = torch.Size(shape).numel()
    t = torch.arange(first, first + count).to(torch.int16).view(torch.float16).view(shape)
    state = {"a": t, "b": t.transpose(0, -1), "c": torch.arange(4)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "TENSOR", 1)
        patch.setattr(packing, "NETWORK", 1)
        short = pack(state)
    assert {"a:low", "b:low", "c"} < short.keys()
    back = unpack(short)
    assert back.keys() == state.keys()
    assert all(same(back[name], state[name].contiguous()) for name in "ab")
    assert torch.equal(back["c"], state["c"])


def test_weights_take_five_sixths_of_the_bytes(tmp_path: Path, weights: Tensor, short: dict[str, Tensor]) -> None:
    save_file({"w": weights}, tmp_path / "plain.safetensors")
    save_file(short, tmp_path / "short.safetensors")
    plain, shorter = ((tmp_path / f"{name}.safetensors").stat().st_size for name in ("plain", "short"))
    assert shorter < 0.86 * plain
    save_file(read(tmp_path / "short.safetensors"), tmp_path / "back.safetensors")  # as docs/zoo.md says
    assert (tmp_path / "back.safetensors").read_bytes() == (tmp_path / "plain.safetensors").read_bytes()


def test_only_the_large_half_tensors_of_a_large_network_are_written_short() -> None:
    large = {"w": torch.zeros(NETWORK).half(), "v": torch.zeros(TENSOR).half()}
    others = {"small": torch.zeros(TENSOR - 1).half(), "float": torch.zeros(NETWORK), "int": torch.arange(TENSOR)}
    assert set(pack(large | others)) == {f"{w}:{part}" for w in "wv" for part in ("low", "high", "shape")} | set(others)
    little = {"w": torch.zeros(NETWORK - 1).half()} | others
    assert pack(little).keys() == little.keys()


def test_the_networks_of_the_package_are_packed() -> None:
    """All of them together must stay small; `models.load` unpacks them."""
    found = sorted(zoo_folder().glob("*.safetensors"))
    assert found
    for path in found:
        state = load_file(path)
        assert any(name.endswith(":low") for name in state), path.name
        assert pack(unpack(state)).keys() == state.keys(), path.name


def test_training_writes_short_what_is_large_and_a_user_loads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "NETWORK", 10_000)  # so that a network of a second's training is large
    monkeypatch.setattr(packing, "TENSOR", 1_000)
    out = tmp_path / "small.safetensors"
    card = train(parse("standard"), "preact18:width=4", "cifar10", out, Settings(epochs=1, batch=16), load=colours)
    assert any(name.endswith(":high") for name in load_file(out))
    assert card.file["bytes"] == out.stat().st_size
    assert models.digest(models.load(f"file:{out}")) == card.weights


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("lost", ["w:low", "w:high", "w:shape"])
def test_a_missing_part_is_named(tmp_path: Path, short: dict[str, Tensor], lost: str) -> None:
    del short[lost]
    save_file(short, tmp_path / "x.safetensors")
    with pytest.raises(BadInput, match=r"^\S*x\.safetensors .* tensor w\b"):
        read(tmp_path / "x.safetensors")


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "another type": lambda t: t.to(torch.int32),
    "another dimension": lambda t: t[None],
}


@pytest.mark.parametrize("part", ["w:low", "w:high", "w:shape"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_the_wrong_kind_is_refused(short: dict[str, Tensor], part: str, kind: str) -> None:
    short[part] = KINDS[kind](short[part])
    with pytest.raises(BadInput, match=r"^the file .* tensor w\b.*wrong type"):
        unpack(short)


@pytest.mark.parametrize("size", [[10**6 + 1], [-1, -(10**6)], [2**32, 2**32], [0], []])
def test_a_shape_of_another_count_is_refused(short: dict[str, Tensor], size: list[int]) -> None:
    short["w:shape"] = torch.tensor(size, dtype=torch.int64)
    with pytest.raises(BadInput, match=r"1000000 low bytes for w of shape \["):
        unpack(short)


def test_a_tensor_given_twice_is_refused(short: dict[str, Tensor], weights: Tensor) -> None:
    with pytest.raises(BadInput, match="tensor w twice"):
        unpack(short | {"w": weights})


def raw(t: Tensor) -> bytes:
    return t.numpy().tobytes()


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


STREAMS: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda packed: b"",
    "cut": lambda packed: packed[:-1],
    "cut in the middle": lambda packed: packed[: len(packed) // 2],
    "a flipped bit": flipped,
    "no stream": lambda packed: bytes(len(packed)),
    "the older container": lambda packed: lzma.compress(lzma.decompress(packed), lzma.FORMAT_ALONE),
    "a byte after it": lambda packed: packed + b"\0",
    "a second stream": lambda packed: packed + lzma.compress(b""),
    "a byte too few": lambda packed: lzma.compress(lzma.decompress(packed)[1:]),
    "a byte too many": lambda packed: lzma.compress(lzma.decompress(packed) + b"\0"),
    "a bomb": lambda packed: lzma.compress(bytes(2**26)),
    "a greedy one": lambda packed: lzma.compress(lzma.decompress(packed), preset=9),  # a dictionary of 64 MiB
}


@pytest.mark.parametrize("damage", STREAMS)
def test_a_stream_that_is_not_what_is_due_is_refused(short: dict[str, Tensor], damage: str) -> None:
    spoilt = STREAMS[damage](raw(short["w:high"]))
    short["w:high"] = torch.tensor(list(spoilt), dtype=torch.uint8)
    with pytest.raises(BadInput, match=r"^x: .* w are .*; get the file again$"):
        unpack(short, "x")


def test_a_bomb_is_not_unpacked(short: dict[str, Tensor]) -> None:
    """A stream of a few kilobytes holds 64 MiB: only the expected million bytes are unpacked."""
    short["w:high"] = torch.frombuffer(bytearray(STREAMS["a bomb"](b"")), dtype=torch.uint8)
    tracemalloc.start()
    try:
        with pytest.raises(BadInput, match="one stream of 1000000"):
            unpack(short)
        assert tracemalloc.get_traced_memory()[1] < 2**24  # a stream's own memory, 9 MB, is in it
    finally:
        tracemalloc.stop()
