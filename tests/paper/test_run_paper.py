"""tools/run_paper.py runs the cells of the tables within a number of minutes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from antiadv import paper
from antiadv.evaluation import Store
from tests.said import in_order
from tools import run_paper

ROOT = Path(__file__).resolve().parents[2]


def ended(out: str) -> tuple[int, ...]:
    """How many cells are complete, of how many, and how many failed."""
    (found,) = re.findall(r"\b(\d+) of (\d+) cells\b.*\b(\d+) failed", out)
    return tuple(map(int, found))


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_the_script_runs_what_fits_and_continues_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    args = ["run_paper.py", "--experiments", "table-3", "--only", "compact:mart", "--samples", "3", "--shard", "2"]
    args += ["--store", str(tmp_path), "--device", "cpu"]

    def run(*more: str) -> str:
        monkeypatch.setattr(sys, "argv", [*args, *more])
        assert run_paper.main() == 0
        return capsys.readouterr().out

    assert ended(run("--minutes", "0")) == (0, 10, 0)
    assert Store(tmp_path).cells() == []
    out = run("--minutes", "60", "--processes", "2")
    assert ended(out) == (10, 10, 0)
    cells = Store(tmp_path).cells()
    assert {len(Store(tmp_path).read(c)) for c in cells} == {3}
    assert len(list(tmp_path.rglob("*.xz"))) == 20  # shard by shard
    assert "3/3" in run("--list")
    assert out.count("samples, clean") == 10
    filled = paper.filled("table-3", tmp_path, samples=3)
    shown = zip(filled.layout.lines, filled.numbers, strict=True)
    assert {line.network.name for line, numbers in shown if numbers["AA"].ours is not None} == {"compact:mart"}


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_two_processes_never_work_on_one_cell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A cell that another process works on is skipped. It is free again when that process dies."""
    words = ["--experiments", "table-3", "--only", "compact:mart", "--only", "apgd", "--samples", "1"]
    words += ["--device", "cpu"]
    monkeypatch.setattr(sys, "argv", ["run_paper.py", *words, "--store", str(tmp_path), "--minutes", "60"])
    assert run_paper.main() == 0
    assert ended(capsys.readouterr().out) == (6, 6, 0)
    store = Store(tmp_path)
    held, *_ = store.cells()
    shutil.rmtree(tmp_path / held.key)
    code = (
        "import dataclasses, pathlib, sys, types\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from tools import run_paper\n"
        f"store = types.SimpleNamespace(root=pathlib.Path({str(tmp_path)!r}))\n"
        f"with run_paper.alone(types.SimpleNamespace(key={held.key!r}), store) as mine:\n"
        "    print(mine, flush=True)\n"
        "    input()\n"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "True\n"
    assert run_paper.main() == 0
    assert ended(capsys.readouterr().out) == (5, 6, 0)
    other.kill()
    other.communicate()
    assert run_paper.main() == 0
    assert ended(capsys.readouterr().out) == (6, 6, 0)


def test_the_script_needs_no_packages_of_the_command_line() -> None:
    code = (
        "import sys\n"
        "for name in ('typer', 'rich', 'matplotlib', 'jinja2', 'ray'): sys.modules[name] = None\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "sys.argv = ['run_paper.py', '--experiments', 'table-4', '--samples', '2', '--list', '--device', 'cpu']\n"
        "from tools import run_paper\n"
        "sys.exit(run_paper.main())\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    facts = ("qeba", "linf:8/255,queries=10000", "compact:awp", "anti_adversary")
    assert any(in_order(line, *facts) for line in done.stdout.splitlines())
