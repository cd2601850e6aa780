"""The command in its own process: exit codes, stdout and stderr, a traceback only with --debug, live progress on a
terminal, and finished work kept after Ctrl-C or SIGTERM."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from antiadv import __version__
from antiadv.attacks import ATTACKS
from antiadv.cli.__main__ import main
from antiadv.core.errors import BadSpec
from antiadv.evaluation import Store

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [str(Path(sys.executable).with_name("antiadv"))]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "100"}
MODEL, ATTACK = "tests.toys:make_small_net", "square:steps=600"
EVALUATE = ["evaluate", "--model", MODEL, "--attack", ATTACK, "--threat", "linf:4/255"]
PATIENCE = 900.0  # a watchdog: beside other work everything takes longer


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, words)]
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE)


def start(*words: object, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    command = [*COMMAND, *map(str, words)]
    return subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=stderr, text=True)


def test_json_is_all_there_is_on_stdout() -> None:
    done = run("list", "attacks", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line["name"] for line in json.loads(done.stdout)["attacks"]] == list(ATTACKS)


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "antiadv", "--version"]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{__version__}\n", "")


def test_bad_input_is_one_line_and_a_traceback_only_when_asked_for() -> None:
    words = ("evaluate", "--model", "tests.toys:make_rule", "--attack", "pdg", "--threat", "linf:8/255")
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "pgd" in done.stderr, "the name that was meant"
    with pytest.raises(BadSpec):
        main([*words, "--debug"])


def test_a_closed_pipe_is_no_traceback() -> None:
    """`antiadv list --help | head -1`, after head has ended."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, "list", "--help"]
    try:
        done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, stdout=writing, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writing)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--version"], id="few bytes"),
        pytest.param(["list", "attacks", "--json"], marks=pytest.mark.slow, id="many"),
    ],
)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_behind_stdout_is_one_line(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, *words], cwd=ROOT, env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr.startswith("antiadv: No space left on device; ")
    assert done.stderr.count("\n") == 1


def test_a_terminal_that_lacks_a_letter_shows_the_rest() -> None:
    plain = ENVIRONMENT | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*COMMAND, "list", "attacks"], cwd=ROOT, env=plain, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(name in done.stdout for name in ATTACKS)
    assert done.stdout.isascii()


@pytest.mark.slow
@pytest.mark.parametrize(("blow", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.skipif(sys.platform != "linux", reason="sends signals as a terminal and a batch system do")
def test_ctrl_c_and_sigterm_keep_what_is_done_and_the_same_command_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], blow: int, code: int
) -> None:
    words = [*EVALUATE, "--shard", "10", "--store", str(tmp_path)]
    process = start(*words, "--samples", "0:1000")
    end = time.monotonic() + PATIENCE
    while len(list(tmp_path.glob("*/*.json.?z"))) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "two shards did not come"
        time.sleep(0.01)
    process.send_signal(blow)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (code, "")
    (told,) = (line for line in err.splitlines() if line.startswith("antiadv: "))
    assert told.startswith("antiadv: stopped; ")
    assert "Traceback" not in err
    assert not list(tmp_path.rglob("*.tmp"))
    kept = {path: path.read_bytes() for path in tmp_path.glob("*/*.json.?z")}
    (cell,) = Store(tmp_path).cells()
    stored = Store(tmp_path).read(cell)
    assert len(stored) == 10 * len(kept) >= 20
    more = len(stored) + 10
    assert main([*words, "--samples", f"0:{more}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["robust"]["n"] == more
    assert Store(tmp_path).read(cell) == stored
    assert all(path.read_bytes() == content for path, content in kept.items())
    assert len(list(tmp_path.glob("*/*.json.?z"))) == len(kept) + 1, "only the rest was run"


@pytest.mark.skipif(sys.platform != "linux", reason="needs a terminal of Linux")
def test_a_terminal_shows_samples_fooled_queries_and_time_left(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = start(*EVALUATE, "--shard", 50, "--samples", "0:100", "--store", tmp_path, "--json", stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end was closed
            break
        if not part:
            break
        seen += part
    out, _ = process.communicate(timeout=PATIENCE)
    os.close(ours)
    assert process.returncode == 0
    live = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert f"{ATTACK} on {MODEL}" in live
    assert re.search(r"\b0 of 100 samples, 0 fooled, 0 robust\s+[1-9][\d,]* queries, \d+:\d\d so far", live)
    first = r"\b50 of 100 samples, \d+ fooled, \d+ robust\s+[1-9][\d,]* queries, "
    assert re.search(first + r"[\d.]+ samples a \w+, about \d+:\d\d left", live)
    assert json.loads(out)["rows"][0]["robust"]["n"] == 100, "and stdout is for the result"
