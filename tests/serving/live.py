"""A real server in a process of its own, for tests: on 127.0.0.1, at a free port."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 300.0  # a watchdog: on a busy machine everything takes longer


@dataclass
class Live:
    """A running server. `lines` are its logs so far."""

    process: subprocess.Popen[str]
    url: str = ""
    lines: list[dict[str, Any]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    def wait_for(self, event: str) -> dict[str, Any]:
        def found() -> bool:
            return any(line["event"] in (event, "gone") for line in self.lines)

        with self.changed:
            assert self.changed.wait_for(found, PATIENCE), f"no {event}: {self.lines}"
            return next(line for line in self.lines if line["event"] in (event, "gone"))

    def read(self) -> None:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            line = json.loads(text) if text.startswith("{") else {"event": "text", "text": text}
            with self.changed:
                self.lines.append(line)
                self.changed.notify_all()
        with self.changed:
            self.lines.append({"event": "gone"})
            self.changed.notify_all()

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@contextmanager
def serving(*options: str, port: int = 0) -> Iterator[Live]:
    command = [sys.executable, "-m", "antiadv", "serve", "--port", str(port), "--threads", "1", *options]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=env, cwd=ROOT)
    live = Live(process)
    reader = threading.Thread(target=live.read, daemon=True)
    reader.start()
    try:
        started = live.wait_for("listening")
        assert "url" in started, live.lines
        live.url = started["url"]
        yield live
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        reader.join(PATIENCE)
        assert process.stderr is not None
        process.stderr.close()
