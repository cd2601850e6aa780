"""Random command lines of the commands around the library: check, tune, verdict, league, certify, export, serve, play.

As in `test_fuzz_calls.py`: each works, or is refused in one line. A server that could start ends at once.
"""

from __future__ import annotations

import importlib
import math
import socket
from pathlib import Path

import pytest
import torch
import uvicorn

from antiadv.cli.__main__ import main
from tests.serving import test_bundle as bundles
from tests.system.fuzz import files, harmless, seeds
from tests.system.test_fuzz_calls import twisted

MODEL = "--model tests.toys:make_small_net"
COMMANDS = (
    f"check {MODEL} --samples 0:2",
    f"tune {MODEL} --samples 0:16 --attacked 1 --keep 0.9 --threat linf:8/255,queries=2 --out {{here}}/out",
    f"verdict {MODEL} --defence anti_adversary:steps=1 --samples 0:2 --minutes 0.01 --store {{here}}/out",
    "verdict --model http://127.0.0.1:{closed}/v2/models/net,retries=0 --samples 0:2 --store {here}/out",
    f"league {MODEL} --samples 0:1 --minutes 0.01 --threat linf:8/255,queries=2 --entrants rounded_scores "
    "--store {here}/out --out {here}/out",
    f"certify {MODEL} --samples 0:2 --std 0.25 --n0 2 --n 4 --alpha 0.1 --store {{here}}/out --csv {{here}}/out/a.csv",
    f"export --out {{here}}/out/bundle {MODEL} --defence none --format pt2 --images 2 --verdict {{here}}/said.txt",
    "export --out {here}/out/bundle --model tests.toys:make_small_net --format onnx --images 0",
    "serve {here}/bundle --port 0 --threads 1 --keys {here}/keys --ledger {here}/out/ledger --quiet",
    f"serve {MODEL} --defence none --shape 3,32,32 --backend eager --port 0 --batch 2 --wait-ms 1 --rows 4 --queue 8 "
    "--body-mb 1 --timeout 2 --drain 0",
    "serve {here}/bundle --runner local --replicas 1 --host 127.0.0.1 --port 0 --name net",
    "play --port 0 --no-open --json",
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a bundle and files for the options; the process runs in its folder `in` and writes to `out`."""
    bundles.write(tmp_path / "bundle")
    (tmp_path / "said.txt").write_text("A verdict.")
    (tmp_path / "keys").write_text(f"client {'0' * 64} 5\n")
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path / "in")
    few = {
        "cli.check.FEW": 2,
        "cli.verdict.FEW": 2,
        "cli.certify.FEW": 2,
        "cli.tune.FEW": 16,
        "reporting.league.SAMPLES": 2,
    }
    for name, number in few.items():  # for command lines without --samples
        module, _, constant = name.rpartition(".")
        monkeypatch.setattr(importlib.import_module(f"antiadv.{module}"), constant, number)
    start = uvicorn.Server.startup

    async def once(self: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
        await start(self, sockets)
        self.should_exit = True

    monkeypatch.setattr(uvicorn.Server, "startup", once)
    return tmp_path


def test_command_lines(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        closed = taken.getsockname()[1]
    before = files(here)
    for seed, dice in seeds(0.25):  # slower than all others
        words = twisted(dice.choice(COMMANDS).format(here=here, closed=closed).split(), dice)
        if "--debug" in words:
            continue
        with harmless(f"{words}, seed {seed}", apart_from=(), seconds=900):
            code = main(words)
        said = capsys.readouterr().err
        assert code in (0, 2) or (code == 1 and words[0] == "check"), (seed, words, said)
        errors = [line for line in said.splitlines() if line.startswith("antiadv: ")]
        assert "Traceback" not in said, (seed, words, said)
        assert len(errors) == 1 or code != 2, (seed, words, said)
        written = files(here) - before
        mine = (here / "in", here / "out")  # where the process runs, and what it was told
        assert all(any(m in (path, *path.parents) for m in mine) for path in written), (seed, words)


ABSURD = (
    "serve --timeout inf",
    "serve --timeout nan",
    "serve --wait-ms 1e308",
    "serve --drain nan",
    f"serve --threads {2**62}",
    "serve --threads 1000000000",
    "serve --shape 1048575,1048575",
    "serve --batch 1000000000000 --rows 1",
    "serve --batch 1048576",
    f"serve --rows {2**62}",
    "serve --device cpu,,nothing",
    "serve --keys /dev/zero",
    "serve --keys {here}/keys --ledger /dev/zero",
    "certify --std 1e308",
    "certify --n 1000000000000",
    "certify --alpha 0",
    "tune --keep nan",
    "tune --latency-ms nan --samples 0:16",
    "league --minutes nan",
)


@pytest.mark.parametrize("line", ABSURD)
def test_numbers_that_no_machine_has(line: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--defence", "none", "--port", "0"] if line.startswith("serve") else []
    verb, *words = line.format(here=here).split()
    with harmless(line, apart_from=(), seconds=900):
        code = main([verb, *MODEL.split(), *more, *words])
    said = capsys.readouterr().err
    assert code == 2, said
    assert said.startswith("antiadv: ")
    assert len(said.splitlines()) == 1


class Spoilt(torch.nn.Module):
    """Answers one class, and NaN for dark images."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        s = torch.arange(10.0) + x.mean((1, 2, 3))[:, None]
        return torch.where(x.mean((1, 2, 3))[:, None] < 0.4, math.nan, s)


class Raises(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("too dark.\nAnd more of it")


@pytest.mark.parametrize("network", ["Spoilt", "Raises"])
@pytest.mark.parametrize(
    "line",
    [
        "tune --samples 0:16",
        "league --samples 0:16 --entrants rounded_scores",
        "certify --samples 0:16 --n0 1 --n 2",
        "verdict --samples 0:16 --minutes 60",
        "export --out {here}/out --format pt2 --images 16",
    ],
)
def test_a_network_that_raises_or_answers_nan_is_one_sentence(
    line: str, network: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([*line.format(here=here).split(), "--model", f"tests.system.test_fuzz_commands:{network}"])
    said = capsys.readouterr()
    assert code == 2, said
    assert sum(word.startswith("antiadv: ") for word in said.err.splitlines()) == 1
    assert ("NaN" if network == "Spoilt" else "too dark") in said.err
