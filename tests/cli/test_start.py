"""How the package and the command start: public names load at first use, help needs no torch, and Ctrl-C during the
imports ends the command in one line."""

from __future__ import annotations

import ast
import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import antiadv
from antiadv import data, train
from antiadv.cli import options, start
from antiadv.cli.__main__ import VERBS
from antiadv.engine.precision import AUTO, PRECISIONS
from antiadv.evaluation.cell import LOOKS

PATIENCE = 120.0
SLOW = {"torch", "numpy", "scipy", "PIL", "safetensors", "matplotlib", "jinja2", "ray", "rich"}


def python(code: str) -> str:
    """Run code in a new process; return what it prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---------------------------------------------------------------- the package


def test_importing_the_package_imports_nothing_slow() -> None:
    seen = set(python("import sys, antiadv; print(*sys.modules)").split())
    assert not seen & {*SLOW, "typer", "click"}


def test_the_library_in_use_imports_none_of_the_command_lines_packages() -> None:
    seen = set(python("import sys, antiadv; antiadv.attack, antiadv.verdict; print(*sys.modules)").split())
    assert "torch" in seen
    assert not seen & {"typer", "click", "rich", "scipy", "matplotlib", "jinja2", "ray"}


def test_the_package_costs_little_beyond_torch() -> None:
    """Importing everything takes less processor time than torch, and the package alone almost none. The functions
    `antiadv.evaluate` and `antiadv.report` are then not hidden by packages of these names."""
    code = (
        "from time import process_time as now\n"
        "a = now()\nimport torch\nb = now()\nimport antiadv\nc = now()\n"
        "for name in antiadv.__all__: getattr(antiadv, name)\n"
        "print(b - a, c - b, now() - c, type(antiadv.evaluate).__name__, type(antiadv.report).__name__)"
    )
    *seconds, evaluate, report = python(code).split()
    torch, alone, every = map(float, seconds)
    assert (evaluate, report) == ("function", "function")
    assert alone < 0.1
    assert every < torch


def test_names_are_declared_where_they_are_loaded_from() -> None:
    """The names under `if TYPE_CHECKING` are those that are imported at first use."""
    tree = ast.parse(Path(antiadv.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    declared = {
        alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert sorted(declared) == sorted(antiadv.__all__)
    loaded = {name: antiadv._HOMES.get(name) or antiadv._MODULES[name].rpartition(".")[0] for name in antiadv.__all__}
    assert declared == loaded


def test_every_public_name_can_be_listed_and_had() -> None:
    assert {*antiadv.__all__, "__version__", "attacks", "defences"} <= set(dir(antiadv))
    assert antiadv.models.load is not None
    assert antiadv.data.load is data.load
    assert antiadv.errors.BadSpec is antiadv.core.errors.BadSpec
    assert antiadv.defences.DEFENCES["anti_adversary"] is antiadv.AntiAdversary
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        antiadv.nothing_of_ours  # noqa: B018


def test_a_function_is_not_hidden_by_its_package() -> None:
    """Also when modules of those packages were imported before."""
    modules = "antiadv.evaluation.store, antiadv.reporting.flags"
    code = f"import antiadv, {modules}; print(type(antiadv.evaluate).__name__, type(antiadv.report).__name__)"
    assert python(code).split() == ["function", "function"]


# ---------------------------------------------------------------- help


def test_help_needs_no_torch() -> None:
    """Every page of help, in one process: none imports what is slow."""
    lines = [[], ["--help"], ["--version"], ["data", "import", "--help"], *([verb, "--help"] for verb in VERBS)]
    code = (
        "import sys, antiadv.__main__\n"
        f"for words in {lines}:\n"
        "    sys.argv = ['antiadv', *words]\n"
        "    assert antiadv.__main__.main() == 0\n"
        "    print('\\0')\n"
        "print(*sys.modules)"
    )
    *pages, modules = python(code).split("\0")
    assert not set(modules.split()) & SLOW
    for words, page in zip(lines, pages, strict=True):
        assert page.strip()
        if words and words[0] in VERBS and words[0] not in ("serve", "data"):  # the log of `serve` is JSON in any case
            assert "--json" in page, words


def test_what_help_repeats_is_what_the_library_has() -> None:
    assert (options.AUTO, options.PRECISIONS) == (AUTO, PRECISIONS)
    assert options.SPEEDS == train.SPEEDS
    assert options.LOOKS == LOOKS
    assert options.DATA == data.DIRECTORY


@pytest.mark.parametrize("verb", ["attack", "evaluate", "verdict", "reproduce"])
def test_the_fast_path_is_the_default(verb: str) -> None:
    """The fast setting needs no flag; any other can be asked for."""
    defaults = {p.name: p.default for p in inspect.signature(VERBS[verb].command).parameters.values()}
    assert (defaults["precision"], defaults["compiled"]) == ("auto", "auto")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["evaluate", "--compile"], ["evaluate", "--compile", "yes"]),
        (["reproduce", "--compile", "table-3"], ["reproduce", "--compile", "yes", "table-3"]),
        (["evaluate", "--compile", "--json"], ["evaluate", "--compile", "yes", "--json"]),
        (["evaluate", "--compile", "no"], ["evaluate", "--compile", "no"]),
        (["evaluate", "--compile=auto"], ["evaluate", "--compile=auto"]),
        ([], []),
    ],
)
def test_compile_alone_means_yes(words: list[str], meant: list[str]) -> None:
    assert options.spelled_out(words) == meant


# ---------------------------------------------------------------- Ctrl-C


@pytest.mark.parametrize(("blow", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    "module",
    [
        "torch._C",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("typer", "numpy", "torch.nn", "antiadv.core.ball", "antiadv.reporting.flags")
        ),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="sends signals as a terminal and a batch system do")
def test_a_signal_during_the_imports_is_one_line(module: str, blow: int, code: int) -> None:
    """Python prints each imported module to stderr; the signal is sent right after the given module."""
    command = [sys.executable, "-X", "importtime", "-m", "antiadv", "list", "attacks"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen = (line.rpartition("|")[2].strip() for line in process.stderr)
        reached = module in seen
        process.send_signal(blow)
        out, err = process.communicate(timeout=PATIENCE)
    assert reached, f"{module} was never imported"
    said = [line for line in err.splitlines() if not line.startswith("import time:")]
    assert (process.returncode, out) == (code, "")
    assert len(said) == 1, err
    assert said[0].startswith("antiadv: ")


# ---------------------------------------------------------------- processors that are shared


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, start.SPINS),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, None),  # who set one of them knows better
    ],
)
def test_a_command_lets_threads_wait_briefly_before_it_imports_torch(given: dict[str, str], found: str | None) -> None:
    code = (
        "import os, sys\nfrom antiadv.__main__ import main\nsys.argv = ['antiadv', '--version']\nmain()\n"
        "assert 'torch' not in sys.modules\nprint(os.environ.get('GOMP_SPINCOUNT'))"
    )
    free = {name: value for name, value in os.environ.items() if name not in start.WAITS}
    done = subprocess.run(
        [sys.executable, "-c", code], env=free | given, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.split()[-1] == str(found), done.stderr
