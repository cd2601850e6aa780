"""Random command lines, specs and library calls: each works, or is refused with an AntiadvError in one line."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import antiadv
from antiadv import attacks, data, defences, models
from antiadv.cli.__main__ import main
from antiadv.core import spec
from antiadv.core.threat import Access, parse_threat
from antiadv.evaluation import Store, parse_runner
from antiadv.evaluation.cell import parse_samples
from tests.engine.probes import RECEIPT, cell, record
from tests.system.fuzz import damaged, files, harmless, seeds
from tests.toys import small_net

# ---------------------------------------------------------------- command lines

COMMANDS = (
    "attack {here}/a.png --model compact:standard --attack pgd:steps=1 --threat linf:8/255 --out {here}/out",
    "attack {here}/a.png --model compact:standard --label 3 --size 32 --seed 1 --json --out {here}/out",
    "evaluate --model compact:standard --attack pgd:steps=1 --threat linf:8/255 --samples 0:2 --store {here}/out",
    "report --store {here}/store",
    "report table-1 --store {here}/store --json",
    "reproduce table-4 --samples 1 --list --store {here}/store",
    "data import {here}/nothing --dir {here}/out",
    "list attacks",
    "theory theorem-9",
)
WORDS: tuple[str, ...] = (
    "",
    "-1",
    "0",
    "1e400",
    "nan",
    "inf",
    "8/0",
    "9" * 30,
    "((((",
    "pgd:steps=",
    "linf:",
    "l2:-1",
    "\x00",
    "\x1b[2J",
)
WORDS += ("é\u202e", "../..", "=", ",", "--", "-", "--json", "--help", "none", "cuda:99", "file:/etc/passwd", "0:0")
WORDS += ("compact:nobody", "square:p=2", "anti_adversary:steps=0", "a" * 3000, "cifar10:test,dir=/nowhere", "5:2", "^")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a picture and a store; the process runs in its folder `in` and writes to `out`."""
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(tmp_path / "a.png")
    Store(tmp_path / "store").append(cell(), [record(i) for i in range(4)], RECEIPT)
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    monkeypatch.setattr(sys.modules["antiadv.evaluation.plan"], "SAMPLES", 4)  # for command lines without --samples
    return tmp_path


def twisted(words: list[str], dice: random.Random) -> list[str]:
    """The words with one to three changed, removed or inserted. The first, the command, stays."""
    words = list(words)
    for _ in range(dice.choice([1, 1, 2, 3])):
        at = dice.randrange(1, len(words) + 1)
        how = dice.randrange(5)
        if how == 0:
            words[at:at] = [dice.choice(WORDS)]
        elif how == 1:
            del words[at : at + 1]
        elif how == 2 and at < len(words):
            words[at] = damaged(words[at].encode(), dice).decode(errors="replace")[:3000]
        elif at < len(words):
            words[at] = dice.choice(WORDS)
    return words


def test_command_lines(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(here) - files(here / "out")
    for seed, dice in seeds(0.5):  # the slowest fuzzer
        words = twisted(dice.choice(COMMANDS).format(here=here).split(), dice)
        if "--debug" in words:
            continue
        with harmless(f"{words}, seed {seed}", apart_from=()):
            code = main(words)
        said = capsys.readouterr()
        assert code in (0, 2), (seed, words, said.err)
        if code == 2:
            errors = [line for line in said.err.splitlines() if " samples, " not in line]  # without progress lines
            assert len(errors) == 1, (seed, words, said.err)
            assert errors[0].startswith("antiadv: "), (seed, words)
        written = {path for path in files(here) if here / "out" not in (path, *path.parents)} - before
        assert not {p for p in written if here / "in" not in (p, *p.parents)}, (
            seed,
            words,
        )  # except where the process runs


# ---------------------------------------------------------------- spec texts

SPECS: dict[Callable[[str], object], tuple[str, ...]] = {
    attacks.parse: (
        "pgd:steps=20,step_size=1/4",
        "transfer:attack=(pgd:steps=100,restarts=5)",
        "square",
        "eot:draws=4",
    ),
    lambda text: spec.read(text, defences.DEFENCES, "defence"): (
        "anti_adversary:steps=2,step_size=0.15",
        "small_noise",
    ),
    data.canonical: ("cifar10:test", "arrays:a.npz", "imagenet:dir=(a,b)"),
    models.canonical: ("compact:trades", "wrn28-10:mart,path=FILE", "my.module:make", "file:a,architecture=(wrn:16,4)"),
    lambda text: parse_threat(text, Access.LABELS): ("linf:8/255,queries=1000", "l2:0.5,access=gradients"),
    parse_runner: ("local", "processes:4"),
    parse_samples: ("0:100", "10"),
}


@pytest.mark.parametrize("read", SPECS)
def test_spec_texts(read: Callable[[str], object]) -> None:
    for seed, dice in seeds():
        text = damaged(dice.choice(SPECS[read]).encode(), dice).decode(errors="replace")
        with harmless(f"{text!r}, seed {seed}"):
            read(text)


# ---------------------------------------------------------------- library calls


def odd_images(dice: random.Random) -> Tensor:
    shape = dice.choice([(2, 3, 8, 8), (2, 3, 8, 8), (0, 3, 8, 8), (3, 8, 8), (8,), (2, 3, 1, 1), (1, 3, 8, 8)])
    x = torch.rand(shape, generator=torch.Generator().manual_seed(dice.randrange(100)))
    how = dice.randrange(12)
    if how == 0:
        x = x * dice.choice([2, -1, 255, 1e30])
    elif how == 1 and x.numel():
        x.view(-1)[0] = dice.choice([float("nan"), float("inf"), -float("inf"), 1 + 1e-3])
    elif how == 2:
        x = x.to(dice.choice([torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]))
    elif how == 3 and x.ndim == 4:
        x = x.to(memory_format=torch.channels_last)
    elif how == 4:
        x = x.expand_as(x).transpose(-1, -1).requires_grad_(True)
    elif how == 5 and x.ndim == 4:
        x = x[:, :, ::2, ::2]
    return x


def odd_labels(dice: random.Random) -> Tensor:
    y = torch.tensor(dice.choice([[0, 1], [1, 1], [9, 10], [-1, 0], [0], [0, 1, 2], [[0, 1]], [2**40, 0], []]))
    return y.to(dice.choice([torch.int64, torch.int64, torch.int64, torch.int32, torch.float32, torch.bool]))


def test_library_calls() -> None:
    net, other = small_net(), small_net()
    for seed, dice in seeds():
        x, y = odd_images(dice), odd_labels(dice)
        kept = x.detach().clone(), y.clone()
        how = {
            "queries": dice.choice([None, None, 0, 1, -1, 10**30, 2.5, "x"]),
            "seed": dice.choice([0, 0, -1, 2**63 - 1, 1.5]),
            "batch": dice.choice([1, 256, 256, 0, -3]),
            "precision": dice.choice(["float32", "float32", "none", ""]),
        }
        attack = dice.choice(["pgd:steps=1", "square:steps=2", "apgd:steps=2", "nobody", "pgd:steps=-1"])
        ball = antiadv.Linf(dice.choice([0.0, 8 / 255, 1.0, 1e30]))
        with harmless(f"{attack} of {tuple(x.shape)} {x.dtype}, {y}, {how}, seed {seed}"):
            defended = antiadv.AntiAdversary(net, steps=dice.choice([0, 1])) if dice.random() < 0.3 else net
            antiadv.attack(defended, x, y, attack, ball, **how)  # type: ignore[arg-type]
        assert torch.equal(kept[0].nan_to_num(), x.detach().nan_to_num()), seed
        assert torch.equal(kept[1], y), seed
    for one, another in zip(net.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(one, another)
