"""The first hour of a new user: run the commands of the documentation, and keep what they print and how long they take.

    python -m tools.run_first_hour              run them in an empty folder, and write results/first-hour.json
    python -m tools.run_first_hour --install    install into a fresh environment first, and use that
    python -m tools.run_first_hour --small --out FILE      the same commands on few samples

`make docs` makes docs/first-hour.md of the file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "results" / "first-hour.json"
URL = "http://127.0.0.1:8000/v2/models/bundle"
MINE = "--model mine:make --data arrays:mine.npz"
GATED = "anti_adversary:steps=2,step_size=0.01,gate=0.99"  # exported where tune recommends nothing
PATIENCE = 3600.0  # seconds for one command


@dataclass(frozen=True)
class Step:
    """A command, the page that has it, and what is added where only few samples are wanted."""

    title: str
    words: str
    command: str
    page: str
    small: str = ""


@dataclass(frozen=True)
class Done:
    """What became of a step."""

    title: str
    command: str
    seconds: float
    printed: str


INSTALL = Step(
    "Install", "Into an empty virtual environment, with what export and serving need.",
    "pip install '.[onnx,serve]'", "docs/index.md",
)  # fmt: skip
STEPS = (
    Step("Your own model", "The file `mine.py` (in `examples/own_model`) draws pictures of four shapes and trains a "
         "small network on them. Its function `make` returns the network.", "python mine.py", "docs/your-model.md"),
    Step("Check", "Is the network what antiadv expects?", f"antiadv check {MINE}", "docs/your-model.md"),
    Step("Verdict", "What is the layer worth on this network?", f"antiadv verdict {MINE} --defence anti_adversary",
         "docs/your-model.md", "--samples 0:8 --threat linf:8/255,queries=10"),
    Step("Tune", "Which settings suit it? The last paragraph names a spec for the next command.",
         f"antiadv tune {MINE}", "docs/your-model.md",
         "--samples 0:32 --attacked 8 --threat linf:8/255,queries=10 --keep 0.9"),
    Step("Export", "One ONNX file with the defence inside, compared with PyTorch.",
         "antiadv export --model mine:make --data arrays:mine.npz --defence SPEC --out bundle", "docs/your-model.md"),
    Step("Serve", "In another terminal. The time is that until it is ready.", "antiadv serve bundle",
         "docs/your-model.md"),
    Step("Ask", "Any client of the Open Inference Protocol can ask; `antiadv.Remote` is one.",
         'python -c "import antiadv, mine; x, y = mine.draw(16, seed=2); '
         f"live = antiadv.Remote('{URL}'); "
         "print(y, live(mine.images(x)).argmax(1).numpy())\"", "docs/serving.md"),
    Step("Attack what is live", "The same verdict, through the network connection.",
         f"antiadv verdict --model {URL} --data arrays:mine.npz --samples 0:16", "docs/deploy.md",
         "--samples 0:4 --threat linf:8/255,queries=10"),
)  # fmt: skip


def port_is_free() -> bool:
    """Whether the port that the pages name is free on this machine."""
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", 8000)) != 0


class Walk:
    """The steps in a folder, with the programs of one environment."""

    def __init__(self, folder: Path, python: Path, small: bool) -> None:
        self.folder, self.small, self.spec = folder, small, GATED
        self.environment = os.environ | {
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "120", "NO_COLOR": "1",
            "PYTHONPATH": str(ROOT / "src") if python == Path(sys.executable) else "",
        }  # fmt: skip
        self.server: subprocess.Popen[str] | None = None

    def run(self, step: Step) -> Done:
        command = step.command.replace("SPEC", self.spec)
        shown = command
        if self.small:
            command += f" {step.small}"
        start = time.monotonic()
        printed = self._serve(command) if step.title == "Serve" else self._finish(command)
        seconds = time.monotonic() - start
        if (named := re.search(r"^Use (\S+?)\. ", printed, re.MULTILINE)) is not None:
            self.spec = named[1]
        return Done(step.title, shown, round(seconds, 1), printed)

    def _finish(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.environment, capture_output=True, text=True,
            timeout=PATIENCE,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"{command} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout.rstrip()

    def _serve(self, command: str) -> str:
        with (self.folder / "serve.log").open("w") as log:
            self.server = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
                text=True,
            )
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.server.poll() is not None:
                raise SystemExit(f"{command} ended:\n{(self.folder / 'serve.log').read_text()}")
            try:
                urllib.request.urlopen(URL).close()
                return ""
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"{command} was not ready in time")

    def close(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait()


def walk(folder: Path, small: bool, install: bool) -> list[Done]:
    shutil.copy(ROOT / "examples" / "own_model" / "mine.py", folder)
    found, python = [], Path(sys.executable)
    if install:
        start = time.monotonic()
        subprocess.run([sys.executable, "-m", "venv", str(folder / ".venv")], check=True)
        python = folder / ".venv" / "bin" / "python"
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", f"{ROOT}[onnx,serve]"], check=True)
        found.append(Done(INSTALL.title, INSTALL.command, round(time.monotonic() - start, 1), ""))
        print(f"{found[-1].seconds:7.1f} s  {found[-1].command}", flush=True)
    going = Walk(folder, python, small)
    try:
        for step in STEPS:
            found.append(going.run(step))
            print(f"{found[-1].seconds:7.1f} s  {found[-1].command}", flush=True)
    finally:
        going.close()
    return found


def machine() -> dict[str, object]:
    import torch

    return {
        "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1), "kind": platform.machine(),
        "python": platform.python_version(), "torch": torch.__version__,
    }  # fmt: skip


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--install", action="store_true", help="install into a fresh environment first, and use it")
    p.add_argument("--small", action="store_true", help="few samples")
    p.add_argument("--out", type=Path, default=STORED, help="where the record goes")
    a = p.parse_args()
    if not port_is_free():
        raise SystemExit("port 8000, which the pages name, is in use; stop the program that uses it.")
    before = machine()
    with tempfile.TemporaryDirectory() as folder:
        done = walk(Path(folder), a.small, a.install)
    record = {"machine": before, "small": a.small, "steps": [asdict(d) for d in done]}
    a.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
