"""A real browser for tests: headless Chromium, spoken to through a pair of pipes in its DevTools protocol.

    page = browser.open(path)           # the fixture `browser` of tests/conftest.py
    page.value("document.title"), page.until("document.title === 'Samples'"), page.screenshot(…)

Over pipes a message is JSON and a zero byte, so no package is needed for it. Everything that a page complains about,
and every address it asks for, is kept: `page.complaints`, `page.requests`.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--mute-audio")
PATIENCE = 300.0  # seconds, a watchdog: on a busy machine everything takes longer
QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars")


def find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    def __init__(self, binary: str, seconds: float = 60) -> None:
        self._seconds, self._number, self._left = seconds, 0, b""
        self._pages: dict[str, Page] = {}
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._from, self._to = self._start([binary, *FLAGS, *QUIET, f"--user-data-dir={self._home.name}"])

    def _start(self, command: list[str]) -> tuple[int, int]:
        """Chromium reads commands from its file 3 and answers in its file 4: a shell puts our pipes there."""
        (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out)]  # clear of 3 and 4 themselves
        wired = 'exec "$@" 3<&{0} 4>&{1} {0}<&- {1}>&-'.format(*high)
        self._process = subprocess.Popen(
            ["bash", "-c", wired, "bash", *command, "--remote-debugging-pipe", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=high,
        )
        for fd in (theirs_in, theirs_out, *high):
            os.close(fd)
        return ours_in, ours_out

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.ask("Browser.close")
        finally:
            os.close(self._from)
            os.close(self._to)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._home.cleanup()

    def ask(self, method: str, session: str = "", **words: object) -> dict[str, Any]:
        """Send a command, and hear events until its answer comes."""
        self._number += 1
        said: dict[str, Any] = {"id": self._number, "method": method, "params": words}
        said |= {"sessionId": session} if session else {}
        os.write(self._to, json.dumps(said).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == self._number:
                assert "error" not in heard, f"{method}: {heard['error']}"
                return dict(heard["result"])

    def _hear(self) -> dict[str, Any]:
        end = time.monotonic() + self._seconds
        while b"\0" not in self._left:
            assert select.select([self._from], [], [], max(0.0, end - time.monotonic()))[0], "the browser says nothing"
            part = os.read(self._from, 1 << 20)
            assert part, "the browser is gone"
            self._left += part
        whole, self._left = self._left.split(b"\0", 1)
        heard: dict[str, Any] = json.loads(whole)
        if "method" in heard and (page := self._pages.get(heard.get("sessionId", ""))) is not None:
            page.hear(heard["method"], heard["params"])
        return heard

    def open(self, path: Path | str, **media: object) -> Page:
        """Open a file, or the page of an address."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.ask(f"{domain}.enable")
        page.look(**media)  # type: ignore[arg-type]
        page.ask("Page.navigate", url=path if isinstance(path, str) else path.resolve().as_uri())
        while not page.loaded:
            self._hear()
        return page


class Page:
    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session, self.loaded = browser, session, False
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def ask(self, method: str, **words: object) -> dict[str, Any]:
        return self._browser.ask(method, self._session, **words)

    def hear(self, method: str, words: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(words["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(words["exceptionDetails"].get("exception", words["exceptionDetails"])))
        elif method == "Runtime.consoleAPICalled" and words["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(words["args"]))
        elif method == "Log.entryAdded" and words["entry"]["level"] in ("error", "warning"):
            self.complaints.append(words["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.complaints.append(f"a dialogue: {words['message']}")

    def look(self, width: int = 1280, height: int = 900, dark: bool = False, media: str = "screen") -> None:
        """Through a window of that size; a narrow one is a telephone's."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def value(self, script: str) -> Any:
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until the script is true."""
        end = time.monotonic() + PATIENCE
        while self.value(script) is not True:
            if time.monotonic() > end:
                raise AssertionError(f"never true: {script}; the page shows: {self.value('document.body.innerText')}")
            time.sleep(0.02)

    def press(self, key: str, code: int, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)

    def screenshot(self, path: Path, whole: bool = False) -> Path:
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", captureBeyondViewport=whole)["data"]))
        return path

    def printed(self) -> bytes:
        """The page on paper, as PDF."""
        return base64.b64decode(self.ask("Page.printToPDF", preferCSSPageSize=True)["data"])
