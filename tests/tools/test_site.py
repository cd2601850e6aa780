"""The site that `make site` built, in a real browser: pages, search, versions, nothing asked from elsewhere. And how
versions are listed.

Where ANTIADV_SCREENSHOT names a folder, the picture of the site is written there as site.png.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

import antiadv
from tests.reporting.browser import Browser
from tools.site import build, folder_of, versions, write_index

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "site"
PYTHON = ROOT / ".venv-site" / "bin" / "python"


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["dev"], ["dev"]),
        (["0.9", "dev", "0.10", "1.0"], ["1.0", "0.10", "0.9", "dev"]),
        (["0.2", "notes"], ["0.2"]),
    ],
)
def test_releases_come_first_and_the_index_leads_to_the_newest(
    names: list[str], order: list[str], tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text("")
    assert versions(tmp_path) == order
    write_index(tmp_path)
    listed = json.loads((tmp_path / "versions.json").read_text())
    assert [version["version"] for version in listed] == order
    assert [version["aliases"] for version in listed] == [["latest"], *[[]] * (len(order) - 1)]
    assert f"url={order[0]}/" in (tmp_path / "index.html").read_text()


def test_a_fix_goes_into_the_folder_of_its_release() -> None:
    assert folder_of("0.2.0") == folder_of("0.2.7") == "0.2"
    assert folder_of("1.0.0.dev3") == "dev"


def test_the_reference_has_every_public_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    assert [name for name in antiadv.__all__ if f"::: antiadv.{name}" not in text] == []


@pytest.mark.skipif(not PYTHON.exists(), reason="no mkdocs here: run make site")
def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text("site_name: test\n")
    for link, code in (("index.md", 0), ("nowhere.md", 1)):
        (tmp_path / "docs" / "index.md").write_text(f"# Test\n\n[link]({link})\n")
        assert build(tmp_path / "mkdocs.yml", tmp_path / "site", str(PYTHON)) == code


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing is written about requests."""


@pytest.fixture
def url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
@pytest.mark.skipif(not (SITE / "versions.json").exists(), reason="no site here: run make site")
def test_the_site_in_a_browser(browser: Browser, url: str, tmp_path: Path) -> None:
    version = versions(SITE)[0]
    page = browser.open(f"{url}/{version}/tutorials/layer/")
    page.until("document.querySelector('.md-version') !== null")
    assert version in str(page.value("document.querySelector('.md-version').textContent"))
    assert page.value("document.querySelectorAll('article .highlight').length > 3")
    assert page.value("document.querySelector('article').textContent.includes('Outcome(')")
    picture = page.screenshot(tmp_path / "site.png")
    page.value(
        "(() => { document.getElementById('__search').click();"
        " const q = document.querySelector('.md-search__input'); q.focus(); q.value = 'step_size';"
        " for (const kind of ['keyup', 'input']) q.dispatchEvent(new Event(kind, {bubbles: true})) })()"
    )
    page.until("document.querySelectorAll('.md-search-result__item').length > 0")
    assert page.complaints == []
    assert {asked.split("/")[2] for asked in page.requests if asked.startswith("http")} == {url.split("/")[2]}
    api = browser.open(f"{url}/{version}/api/")
    assert api.value("document.getElementById('antiadv.attack') !== null")
    home = browser.open(f"{url}/")
    home.until(f"location.pathname === '/{version}/' && document.querySelector('article') !== null")
    if folder := os.environ.get("ANTIADV_SCREENSHOT"):
        with Image.open(picture) as shot:
            few = shot.convert("RGB").quantize(64)
            few.save(Path(folder) / "site.png", optimize=True)
