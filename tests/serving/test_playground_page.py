"""The playground in a real browser: every control, an attack to its end, step and stop, uploads, share, a telephone.
Skipped, with the reason, where there is no browser.

Where ANTIADV_SCREENSHOT names a folder, the picture of docs/playground.md is written there as playground.png.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.reporting.browser import Browser, Page
from tests.serving.live import PATIENCE, ROOT
from tests.serving.test_playground import picture

READY = "document.documentElement.dataset.ready === 'yes'"
ENDED = "document.getElementById('status').textContent === 'Done.'"

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def playing(*words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A playground in a process of its own, as a user starts it."""
    command = [sys.executable, "-m", "antiadv", "play", "--port", "0", "--no-open", "--json", "--device", "cpu", *words]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=env)
    assert process.stdout is not None
    try:
        said = "".join(process.stdout.readline() for _ in range(3))
        yield str(json.loads(said)["url"]), process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with playing() as (address, process):
        yield address
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


def text(page: Page, name: str) -> str:
    return str(page.value(f"document.getElementById('{name}').textContent"))


def choose(page: Page, name: str, value: object) -> None:
    """Set a control as a visitor does: with the events of an input."""
    said = page.value(
        f"(() => {{ const c = document.getElementById('{name}'); c.value = {json.dumps(value)};"
        " for (const kind of ['input', 'change']) c.dispatchEvent(new Event(kind, {bubbles: true}));"
        " return c.value })()"
    )
    assert said == str(value)


def click(page: Page, name: str) -> None:
    page.value(f"document.getElementById('{name}').click()")


def enabled(page: Page, name: str) -> bool:
    return bool(page.value(f"!document.getElementById('{name}').disabled"))


def drawn(page: Page) -> int:
    """The number of points of the margin curve."""
    script = "(document.querySelector('#picked polyline.each')?.getAttribute('points') || '').split(' ').length"
    return int(page.value(script))


def opened(browser: Browser, url: str, **look: Any) -> Page:
    page = browser.open(url, **look)
    page.until(READY)
    return page


def check_quiet(page: Page, url: str) -> None:
    """Nothing was complained of, and nothing but the playground was asked for."""
    assert page.complaints == []
    assert all(asked.startswith((url, "data:", "blob:")) for asked in page.requests)


def test_an_attack_with_every_control_to_its_end(browser: Browser, url: str, tmp_path: Path) -> None:
    page = opened(browser, url, height=1090)
    click(page, "random")
    choose(page, "sample", 5)
    page.value("document.querySelector('#thumbs button[data-sample=\"8\"]').click()")
    assert page.value("document.getElementById('sample').value") == "8"
    choose(page, "defence", "none")
    assert [enabled(page, name) for name in ("alpha", "steps", "gate")] == [False] * 3
    choose(page, "defence", "anti_adversary")
    for name, value, shown in (
        ("alpha", "0.06", "0.060"),
        ("steps", "2", "2"),
        ("gate", "0.95", "0.95"),
        ("radius", "8", "8/255"),
        ("queries", "90", "90"),
    ):
        choose(page, name, value)
        assert page.value(f"document.querySelector('output[for={name}]').textContent") == shown
    choose(page, "network", "compact:awp")
    choose(page, "attack", "square")
    click(page, "start")
    page.until(ENDED)
    assert drawn(page) > 1
    assert page.value("document.querySelectorAll('#picked .bar').length") == 20
    assert page.value("[...document.querySelectorAll('#stage img')].every(i => !i.hidden && i.naturalWidth === 32)")
    title = text(page, "picked-name")
    assert all(word in title for word in ("square", "compact:awp", "0.06", "0.95", "8/255"))
    assert page.value("[...document.querySelectorAll('.verdict')].every(v => !v.hidden && v.textContent)")
    assert (enabled(page, "start"), enabled(page, "stop"), enabled(page, "share")) == (True, False, True)
    check_quiet(page, url)
    page.until("document.getAnimations().length === 0")  # the bars have come to rest
    shot = page.screenshot(tmp_path / "playground.png")
    assert shot.stat().st_size > 10_000
    if wanted := os.environ.get("ANTIADV_SCREENSHOT"):
        small = Image.open(shot).convert("P", palette=Image.Palette.ADAPTIVE, colors=128)
        small.save(Path(wanted) / "playground.png", optimize=True)


@pytest.mark.parametrize("attack", ["pgd", "transfer"])
def test_the_keyboard_starts_an_attack(attack: str, browser: Browser, url: str) -> None:
    page = opened(browser, url)
    choose(page, "attack", attack)
    page.value("document.getElementById('start').focus()")
    page.press("Enter", 13, "\r")
    page.until(ENDED)
    assert drawn(page) > 1
    assert page.value("document.querySelector('#adaptive .track').hidden") == (attack == "transfer")
    check_quiet(page, url)


def test_every_control_has_a_name_and_is_reached_by_tab(browser: Browser, url: str) -> None:
    page = opened(browser, url)
    controls = "[...document.querySelectorAll('button, input, select')].filter(c => !c.disabled)"
    assert page.value(f"{controls}.every(c => c.labels?.length || c.ariaLabel || c.textContent.trim())")
    wanted, reached = int(page.value(f"{controls}.length")), set()
    page.value("document.body.focus()")
    for _ in range(wanted):
        page.press("Tab", 9)
        reached.add(page.value(f"{controls}.indexOf(document.activeElement)"))
    assert reached == set(range(wanted))


def test_step_continue_and_stop(browser: Browser, url: str) -> None:
    page = opened(browser, url)
    choose(page, "queries", "5000")
    choose(page, "radius", "0.5")
    click(page, "step")
    page.until("document.getElementById('start').textContent === 'Continue'")
    page.until("!!document.querySelector('polyline.each')")
    assert drawn(page) == 1
    click(page, "step")
    page.until("document.querySelector('polyline.each')?.getAttribute('points').split(' ').length === 2")
    page.until("document.getElementById('start').textContent === 'Continue'")
    click(page, "start")
    page.until("document.querySelector('polyline.each').getAttribute('points').split(' ').length > 4")
    assert not enabled(page, "start")
    click(page, "stop")
    page.until("document.getElementById('status').textContent.startsWith('Stopped')")
    assert enabled(page, "start")
    check_quiet(page, url)


def drop(page: Page, content: bytes, place: str = "drop") -> None:
    """Let a file fall onto the page, in the box or beside it."""
    page.value(
        "(() => { const held = new DataTransfer();"
        f" const bytes = Uint8Array.from(atob('{base64.b64encode(content).decode()}'), c => c.charCodeAt(0));"
        " held.items.add(new File([bytes], 'mine.jpg'));"
        f" for (const kind of ['dragover', 'drop']) document.getElementById('{place}')"
        ".dispatchEvent(new DragEvent(kind, {dataTransfer: held, bubbles: true, cancelable: true})) })()"
    )


def test_uploads_good_and_bad(browser: Browser, url: str, tmp_path: Path) -> None:
    page = opened(browser, url)

    def give(content: bytes) -> None:
        (tmp_path / "picture.png").write_bytes(content)
        place = page.ask("Runtime.evaluate", expression="document.getElementById('file')")["result"]["objectId"]
        page.ask("DOM.setFileInputFiles", files=[str(tmp_path / "picture.png")], objectId=place)

    give(b"no picture")
    page.until("document.getElementById('status').className === 'bad'")
    assert "\n" not in text(page, "status")
    page.complaints.clear()  # a browser notes every answer of 400
    for way in ("chosen", "drop", "stage"):
        choose(page, "sample", 1)
        give(picture(200, 300)) if way == "chosen" else drop(page, picture(300, 200, "jpeg"), way)
        page.until("document.getElementById('source').textContent.startsWith('Your picture')")
    choose(page, "attack", "pgd")
    click(page, "start")
    page.until(ENDED)
    check_quiet(page, url)


def test_when_the_playground_ends_the_page_can_start_again(browser: Browser) -> None:
    with playing("--model", "compact:trades", "--data", "cifar10") as (url, process):
        page = opened(browser, url)
        assert page.value("document.getElementById('network').length") == 1
        assert text(page, "when")
        choose(page, "queries", "5000")
        choose(page, "radius", "0.5")
        click(page, "start")
        page.until("!!document.querySelector('polyline.each')")
        process.kill()
        process.wait()
        page.until("document.getElementById('status').className === 'bad'")
        assert enabled(page, "start")


def test_the_shared_file_opens_without_the_playground(browser: Browser, url: str, tmp_path: Path) -> None:
    page = opened(browser, url)
    choose(page, "attack", "pgd")
    click(page, "start")
    page.until(ENDED)
    browser.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    click(page, "share")
    end, file = time.monotonic() + PATIENCE, tmp_path / "antiadv-playground.html"
    while not file.exists() and time.monotonic() < end:
        page.value("1")
        time.sleep(0.02)
    shared = browser.open(file)
    assert shared.complaints == []
    assert {asked.split(":")[0] for asked in shared.requests} == {"file", "data"}
    assert shared.value("[...document.images].length > 2 && [...document.images].every(i => i.naturalWidth === 32)")
    assert shared.value("document.querySelectorAll('polyline').length") > 1
    assert shared.value("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_telephone(dark: bool, browser: Browser, url: str, tmp_path: Path) -> None:
    page = opened(browser, url, width=390, height=844, dark=dark)
    choose(page, "attack", "pgd")
    click(page, "start")
    page.until(ENDED)
    assert page.value("document.documentElement.scrollWidth <= innerWidth"), "the page itself must not scroll sideways"
    back = page.value("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, str(back)[4:-1].split(","))) < 200) == dark
    page.screenshot(tmp_path / "telephone.png", whole=True)
    check_quiet(page, url)
