"""Without the packages of the extra, the server says in one sentence what to install; wrong options are refused."""

from __future__ import annotations

import importlib.util
import socket
import sys
from pathlib import Path

import pytest

from antiadv.cli.__main__ import main
from antiadv.core.errors import MissingExtra
from antiadv.serving import app, metrics, serve
from antiadv.serving.playground import app as playground
from antiadv.serving.playground import run

MODULES = [
    (app, "starlette.applications"),
    (serve, "uvicorn"),
    (metrics, "prometheus_client"),
    (playground, "starlette.applications"),
    (run, "uvicorn"),
]


@pytest.mark.parametrize(("module", "package"), MODULES, ids=[m.__name__ for m, _ in MODULES])
def test_a_missing_package_is_named_with_its_extra(
    module: object, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # importing it fails from here on
    spec = importlib.util.spec_from_file_location("probe", str(module.__file__))  # type: ignore[attr-defined]
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(MissingExtra, match=r"antiadv\[serve\]"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_several_missing_packages_are_one_sentence() -> None:
    said = "this needs uvicorn and httptools, which must be installed first: pip install 'antiadv[serve]'"
    assert str(MissingExtra("uvicorn and httptools", "serve")) == said


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--model", "compact:trades", "a-bundle"],
        ["--model", "compact:trades", "--shape", "3,x"],
        ["--model", "compact:trades", "--shape", "1,5,5"],
        ["--model", "compact:trades", "--runner", "moon"],
        ["--model", "compact:trades", "--backend", "graph", "--device", "cpu"],
        ["--model", "compact:trades", "--keys", "no-such-file"],
        ["--model", "compact:trades", "--ledger", "file"],
        ["--model", "compact:trades", "--runner", "ray", "--ledger", "file"],
        ["--model", "compact:trades", "--wait-ms", "-1"],
        ["--model", "nothing"],
    ],
    ids=" ".join,
)
def test_wrong_options_are_one_sentence(
    options: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANTIADV_KEYS", raising=False)
    assert main(["serve", "--port", "0", *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_port_in_use_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["play", "--no-open", "--port", str(taken.getsockname()[1])]) == 2
    assert capsys.readouterr().err.count("\n") == 1
