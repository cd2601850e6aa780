"""Collect the pages and the report of a checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from antiadv.core.errors import BadInput


def collect(root: Path, out: Path) -> None:
    """Copy README.md and docs/ of the checkout, and write its report: report.md, report.json and the CSV tables."""
    if not (root / "README.md").is_file() or not (root / "src" / "antiadv").is_dir():
        raise BadInput(f"--root must be a checkout of the project; {root} has no README.md and src/antiadv.")
    if out.exists() and any(out.iterdir()):
        raise BadInput(f"--collect must be a new or empty folder; {out} has files in it. Name another.")
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    for page in pages:
        copy(page, out / page.relative_to(root))
    with tempfile.TemporaryDirectory() as folder:
        write_report(root, Path(folder))
        for pattern in ("report.md", "report.json", "tables/*.csv"):
            for path in Path(folder).glob(pattern):
                copy(path, out / "report" / path.relative_to(folder))


def write_report(root: Path, out: Path) -> None:
    """Write the report of `results/` with the source of the checkout, in a process of its own."""
    command = [sys.executable, "-m", "antiadv", "report", "--store", "results", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise BadInput(f"the report of {root} could not be written: {done.stderr.strip()}")


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
