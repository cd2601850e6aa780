"""A network is compiled in another process, and the engine goes on with it when it is ready."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from antiadv import defences, models
from antiadv.core.defence import base_of
from antiadv.core.losses import ce
from antiadv.engine import background
from antiadv.engine.background import QUERIES_THAT_PAY, Background, is_filled, note_of, start
from antiadv.engine.fast import Fast, engine
from antiadv.models.noise import GaussianNoise
from tests.toys import small_net

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")),
]
PATIENCE = 600.0  # seconds that a busy machine may take to compile


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No note of an earlier process, and an empty cache."""
    monkeypatch.setattr(background, "NOTES", tmp_path / "notes")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "notes"


class Locked(nn.Module):
    """It cannot be copied or sent."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.lock = small_net(), threading.Lock()

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self.net(x)
        return s


def images() -> Tensor:
    return torch.rand((32, 3, 8, 8), generator=torch.Generator().manual_seed(0))


def test_a_short_job_starts_nothing() -> None:
    made = Background("float32", QUERIES_THAT_PAY - 1)
    assert not made.ready(small_net(), images())
    assert made._process is None


def test_a_filled_cache_is_read_at_once_if_the_job_is_long_enough(tmp_path: Path) -> None:
    note = note_of(small_net(), images(), "float32")
    assert not is_filled(note)
    note.parent.mkdir(parents=True)
    note.write_text(str(tmp_path))
    assert is_filled(note)
    assert Background("float32", QUERIES_THAT_PAY).ready(small_net(), images())
    assert not Background("float32", QUERIES_THAT_PAY - 1).ready(small_net(), images())
    note.write_text(str(tmp_path / "gone"))
    assert not Background("float32", QUERIES_THAT_PAY).ready(small_net(), images()), "the cache was removed"


def test_a_note_is_for_one_kind_of_network() -> None:
    net, x = small_net(), images()
    first = note_of(net, x, "half")
    assert note_of(small_net(), x[:5], "half") == first, "neither weights nor the number of images matter"
    others = [note_of(net, x, "mixed"), note_of(nn.Sequential(net), x, "half"), note_of(net, x[:, :1], "half")]
    assert len({first, *others}) == 4


def test_a_model_that_cannot_be_sent_or_compiled_runs_as_it_is(notes: Path) -> None:
    assert start(Locked(), images(), "float32", notes / "note") is None
    noisy = Background("float32", QUERIES_THAT_PAY)
    assert not noisy.ready(nn.Sequential(GaussianNoise(0.1), small_net()).eval(), images())
    assert noisy._process is None


def test_the_judge_is_another_engine_while_the_network_may_change() -> None:
    fast, net = Fast(plain=True), small_net()
    assert fast.judge(net) is fast
    fast.compile_if_it_pays(QUERIES_THAT_PAY)
    assert fast.judge(net) is not fast


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about its own compiler
@pytest.mark.parametrize("device", DEVICES)
def test_the_compiled_network_takes_over_and_answers_alike(device: str, notes: Path) -> None:
    net = defences.wrap("anti_adversary", models.load("compact:trades")).to(device)
    base_of(net).register_forward_hook(lambda *_: None)  # hooks cannot be sent, and need not be
    x = torch.rand((32, 3, 32, 32), generator=torch.Generator().manual_seed(0)).to(device)
    y = torch.arange(32, device=device) % 10
    fast = engine(torch.device(device), 32)
    before = fast.scores(net, x), *fast.gradient(net, x, ce, y)
    fast.compile_if_it_pays(QUERIES_THAT_PAY)
    fast.scores(net, x)
    assert not fast.compiled, "nothing waits"
    assert fast._background is not None
    assert fast._background._process is not None
    assert fast._background._process.wait(PATIENCE) == 0
    fast.scores(net, x)
    assert fast.compiled
    assert len(list(notes.iterdir())) == 1
    for found, asked in zip((fast.scores(net, x), *fast.gradient(net, x, ce, y)), before, strict=True):
        torch.testing.assert_close(found, asked, rtol=1e-2, atol=1e-3)
    later = engine(torch.device(device), 32)
    later.compile_if_it_pays(QUERIES_THAT_PAY)
    later.scores(net, x)
    assert later.compiled, "the note says that the cache is filled"


@pytest.mark.slow
def test_a_process_that_fails_changes_nothing_and_one_that_is_not_needed_ends(notes: Path) -> None:
    class Here(nn.Module):
        """Another process cannot import it."""

    Here.__qualname__ = "Here"
    globals()["Here"] = Here
    made = Background("float32", QUERIES_THAT_PAY)
    made.ready(Here(), images())
    process = made._process
    assert process is not None
    assert process.wait(PATIENCE) != 0
    assert not made.ready(Here(), images())
    running = Background("float32", QUERIES_THAT_PAY)
    running.ready(small_net(), images())
    process = running._process
    assert process is not None
    del running
    assert process.poll() is not None
    assert not notes.exists()
